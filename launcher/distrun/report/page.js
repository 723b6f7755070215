"use strict";
// Zooms all plots to the same time, and hides the lines of tasks. The page is complete without.
(() => {
  const whole = Number(document.body.dataset.seconds);
  const nice = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800,
    21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];
  const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const namespace = "http://www.w3.org/2000/svg";
  let from = 0;
  let to = whole;

  const plots = [...document.querySelectorAll("svg.plot")].map((svg) => {
    const [, , , height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const labels = document.createElementNS(namespace, "g");
    svg.append(labels);
    return {
      svg, labels, height,
      left: Number(svg.dataset.left), right: Number(svg.dataset.right),
      ticks: Number(svg.dataset.ticks),
      times: svg.querySelector(".times"),
    };
  });

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
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", actions[button.dataset.zoom]);
  }

  for (const plot of plots) {
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
      if (event.type === "pointerup" && last - first > 4) zoom(time(first), time(last));
    };
    plot.svg.addEventListener("pointerup", end);
    plot.svg.addEventListener("pointercancel", end);
    plot.svg.addEventListener("dblclick", actions.all);
  }

  const boxes = [...document.querySelectorAll("#legend input")];
  function show() {
    for (const box of boxes) {
      for (const line of document.querySelectorAll(`.task[data-task="${box.dataset.task}"]`)) {
        line.classList.toggle("hidden", !box.checked);
      }
    }
  }
  for (const box of boxes) {
    box.disabled = false;
    box.addEventListener("change", show);
  }
  for (const button of document.querySelectorAll("[data-tasks]")) {
    button.addEventListener("click", () => {
      for (const box of boxes) {
        box.checked = button.dataset.tasks === "all"
          || (button.dataset.tasks === "marked" && "marked" in box.dataset);
      }
      show();
    });
  }
  document.getElementById("controls").hidden = false;
})();
