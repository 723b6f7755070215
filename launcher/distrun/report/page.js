"use strict";
// Zooms all plots to the same time, hides the lines of tasks, and renews a page that is served. The
// page is complete without.
(() => {
  const nice = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800,
    21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];
  const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const namespace = "http://www.w3.org/2000/svg";
  let whole = Number(document.body.dataset.seconds);
  let from = 0;
  let to = whole;
  let plots = [];
  let isDragging = false;
  const switchedOff = new Set();
  const known = new WeakMap();

  function plotOf(svg) {
    if (known.has(svg)) return known.get(svg);
    const [, , , height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const labels = document.createElementNS(namespace, "g");
    svg.append(labels);
    const plot = {
      svg, labels, height,
      left: Number(svg.dataset.left), right: Number(svg.dataset.right),
      ticks: Number(svg.dataset.ticks),
      times: svg.querySelector(".times"),
    };
    known.set(svg, plot);
    makeDraggable(plot);
    return plot;
  }

  function duration(seconds) {
    if (seconds < 60) return seconds ? `${Number(seconds.toFixed(1))} s` : "0";
    const parts = [];
    let rest = Math.round(seconds);
    for (const [size, unit] of units) {
      if (rest >= size) parts.push(`${Math.floor(rest / size)} ${unit}`);
      rest %= size;
    }
    return parts.slice(0, 2).join(" ");
  }

  function draw() {
    const isWhole = from === 0 && to === whole;
    for (const plot of plots) {
      const width = plot.right - plot.left;
      const scale = whole / (to - from);
      const shift = plot.left - (plot.left + (from / whole) * width) * scale;
      for (const path of plot.svg.querySelectorAll(".data > path")) {
        path.setAttribute("transform", `matrix(${scale} 0 0 1 ${shift} 0)`);
      }
      plot.times.style.display = isWhole ? "" : "none";
      plot.labels.replaceChildren();
      if (isWhole) continue;
      const step = nice.find((each) => (to - from) / each <= plot.ticks) || to - from;
      for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
        const text = document.createElementNS(namespace, "text");
        text.setAttribute("x", plot.left + ((at - from) / (to - from)) * width);
        text.setAttribute("y", plot.height - 6);
        text.setAttribute("text-anchor", "middle");
        text.textContent = duration(at);
        plot.labels.append(text);
      }
    }
  }

  function zoom(start, end) {
    const length = Math.min(Math.max(end - start, whole / 2000), whole);
    from = Math.min(Math.max(start, 0), whole - length);
    to = length === whole ? whole : from + length;
    draw();
  }

  const actions = {
    in: () => zoom(from + (to - from) / 4, to - (to - from) / 4),
    out: () => zoom(from - (to - from) / 2, to + (to - from) / 2),
    earlier: () => zoom(from - (to - from) / 2, to - (to - from) / 2),
    later: () => zoom(from + (to - from) / 2, to + (to - from) / 2),
    all: () => zoom(0, whole),
  };

  function makeDraggable(plot) {
    let begin = null;
    let selection = null;
    const position = (event) => {
      const box = plot.svg.getBoundingClientRect();
      const scale = plot.svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale;
      return Math.min(Math.max(x, plot.left), plot.right);
    };
    const time = (x) => from + ((x - plot.left) / (plot.right - plot.left)) * (to - from);
    plot.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      begin = position(event);
      isDragging = true;
      selection = document.createElementNS(namespace, "rect");
      selection.setAttribute("class", "selection");
      selection.setAttribute("height", plot.height);
      plot.svg.append(selection);
      plot.svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    plot.svg.addEventListener("pointermove", (event) => {
      if (begin === null) return;
      const x = position(event);
      selection.setAttribute("x", Math.min(begin, x));
      selection.setAttribute("width", Math.abs(x - begin));
    });
    const end = (event) => {
      if (begin === null) return;
      const x = position(event);
      selection.remove();
      const [first, last] = [Math.min(begin, x), Math.max(begin, x)];
      begin = null;
      isDragging = false;
      if (event.type === "pointerup" && last - first > 4) zoom(time(first), time(last));
    };
    plot.svg.addEventListener("pointerup", end);
    plot.svg.addEventListener("pointercancel", end);
    plot.svg.addEventListener("dblclick", actions.all);
  }

  const boxes = () => [...document.querySelectorAll("#legend input")];
  function show() {
    for (const box of boxes()) {
      box.disabled = false;
      box.checked = !switchedOff.has(box.dataset.task);
      for (const line of document.querySelectorAll(`.task[data-task="${box.dataset.task}"]`)) {
        line.classList.toggle("hidden", !box.checked);
      }
    }
  }
  document.addEventListener("change", (event) => {
    if (!event.target.matches("#legend input")) return;
    if (event.target.checked) switchedOff.delete(event.target.dataset.task);
    else switchedOff.add(event.target.dataset.task);
    show();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button === null) return;
    if ("zoom" in button.dataset) actions[button.dataset.zoom]();
    if ("action" in button.dataset) act(button);
    if (!("tasks" in button.dataset)) return;
    switchedOff.clear();
    for (const box of boxes()) {
      const isShown = button.dataset.tasks === "all"
        || (button.dataset.tasks === "marked" && "marked" in box.dataset);
      if (!isShown) switchedOff.add(box.dataset.task);
    }
    show();
  });

  function begin() {
    plots = [...document.querySelectorAll("svg.plot")].map(plotOf);
    draw();
    show();
    for (const name of ["controls", "actions"]) {
      const shown = document.getElementById(name);
      if (shown !== null) shown.hidden = false;
    }
  }
  begin();

  // The rest is of a page that is served: `data-refresh` has the seconds until the next one.
  const parts = "#header, main > section";
  const inputs = "button, input, summary, a";
  const sent = new Map([...document.querySelectorAll(parts)].map((part) => [part.id, ""]));

  async function act(button) {
    if ("ask" in button.dataset && !confirm(button.dataset.ask)) return;
    const answer = document.getElementById("answer");
    answer.hidden = false;
    answer.textContent = "…";
    answer.dataset.of = button.dataset.action;
    try {
      const response = await fetch(button.dataset.action, { method: "POST" });
      answer.textContent = await response.text();
    } catch {
      answer.textContent = "no answer";
    }
  }

  // A part that somebody uses keeps its state.
  function renew(old, made) {
    const selection = getSelection();
    if (isDragging || (!selection.isCollapsed && selection.containsNode(old, true))) return false;
    const isOpen = [...old.querySelectorAll("details")].map((each) => each.open);
    const answer = old.querySelector("#answer");
    const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    old.replaceWith(made);
    made.querySelectorAll("details").forEach((each, at) => { each.open = isOpen[at] ?? each.open; });
    made.querySelectorAll(".scroll").forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
    const hasEnded = made.querySelector("#actions :enabled") === null;
    const isOver = answer?.dataset.of === "stop" && hasEnded;  // the page's head says how
    if (answer !== null && !isOver) made.querySelector("#answer").replaceWith(answer);
    return true;
  }

  function renewAll(made) {
    const shown = new Map([...document.querySelectorAll(parts)].map((part) => [part.id, part]));
    const next = [...made.querySelectorAll(parts)];
    const html = new Map(next.map((part) => [part.id, part.outerHTML]));
    const user = document.activeElement.closest(parts);
    const focused = user && [...user.querySelectorAll(inputs)].indexOf(document.activeElement);
    for (const [id, part] of shown) if (!html.has(id)) part.remove();
    let before = null;
    for (const part of next) {
      const [old, text] = [shown.get(part.id), html.get(part.id)];
      if (old === undefined) before.after(part); // such as the first interruption
      if (old === undefined || (text !== sent.get(part.id) && renew(old, part))) sent.set(part.id, text);
      before = document.getElementById(part.id);
    }
    document.title = made.title;
    const isWhole = to === whole;
    whole = Number(made.body.dataset.seconds);
    document.body.dataset.refresh = made.body.dataset.refresh;
    if (isWhole && from === 0) to = whole;
    begin();
    const input = user && document.getElementById(user.id)?.querySelectorAll(inputs)[focused];
    input?.focus({ preventScroll: true });
  }

  async function refresh() {
    let problem = "distrun report --serve has ended, or cannot be reached: this is the last it has sent";
    const tell = (text) => {
      const connection = document.getElementById("connection");
      connection.textContent = text;
      connection.hidden = !text;
    };
    const late = setTimeout(tell, 5000 * document.body.dataset.refresh, problem);
    try {
      const response = await fetch("", { cache: "no-store" });
      const text = await response.text();
      const made = new DOMParser().parseFromString(text, "text/html");
      if (response.ok && "refresh" in made.body.dataset) { // else another server has the port now
        renewAll(made);
        problem = "";
      } else if (response.status === 503) problem = text;
    } catch { /* there is no server */ }
    clearTimeout(late);
    tell(problem);
    setTimeout(wait, 1000 * document.body.dataset.refresh);
  }

  function wait() {
    if (!document.hidden) refresh();
    else document.addEventListener("visibilitychange", wait, { once: true });
  }
  if ("refresh" in document.body.dataset) setTimeout(wait, 1000 * document.body.dataset.refresh);
})();
