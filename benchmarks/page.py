"""Writes docs/benchmarks.md and its plot from the measured figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

Row = Mapping[str, Mapping[str, Any]]
"""What was measured, by launcher: `figures`, None if it hung, and their `text`."""
_OURS = "distrun"
_PLAIN = "distrun --no-preflight"


def _at_most(limit: float) -> tuple[str, Callable[[Row], float | None]]:
    return f"{limit:,.0f}", lambda row: _ratio(_first(row, _OURS), limit)


def _of(peer: str, factor: float = 1.0, ours: str = _OURS) -> Any:
    def ratio(row: Row) -> float | None:
        theirs = _first(row, peer)
        return None if theirs is None else _ratio(_first(row, ours), theirs * factor)

    return f"{factor:.1f} of {peer}", ratio


def _faster(peer: str, factor: float) -> Any:
    def ratio(row: Row) -> float | None:
        ours, theirs = _first(row, _OURS), _first(row, peer)
        return None if not ours or theirs is None else theirs * factor / ours

    return f"{factor:.1f} of {peer}", ratio


GOALS: dict[str, tuple[str, Callable[[Row], float | None]]] = {
    "`--help`, ms": _at_most(60),
    "start and finish 2 tasks, ms": _of("honcho"),
    "start and finish 16 tasks, ms": _of("honcho"),
    "start and finish 64 tasks, ms": _of("GNU parallel"),
    "one of 8 tasks fails: until the launcher (all) has ended, ms": _at_most(50),
    "prefixed output in blocks, MB/s": (
        "250",
        lambda row: _ratio(250.0, _first(row, _OURS)),
    ),
    "prefixed output in single lines, MB/s": _faster("GNU parallel", 1.2),
    "16 idle tasks: CPU in 10 s, ms; memory (PSS), MB": (
        "0.9; 25",
        lambda row: _ratio(_figure(row, _OURS, 1), 25.0),
    ),
    "SIGINT, 0.5 s of clean-up: until the end, ms (tasks that did)": _at_most(540),
    "8 hosts over ssh, ms": _of("clush", 1.2),
    "32 hosts over ssh, ms": _of("clush", 1.2),
    "one of 8 fails over ssh: until the launcher (all) has ended, ms": _at_most(100),
}
"""For each row the goal in words, and how many times as much was measured."""
WITHOUT_PREFLIGHT = {
    name: _of("clush", 1.0, _PLAIN) for name in ("8 hosts over ssh, ms", "32 hosts over ssh, ms")
}
_OF_SCALE = """\
Each host is an agent on this machine, started by a stand-in for ssh without a key exchange. So all
agents share its cores. Simulated agents are in one process, which speaks the protocol and starts no
tasks. Only TF_CONFIG grows faster than the number of hosts: each task gets
one with the addresses of all, which are 60 kB at 4,000 hosts.
"""
_SSH_BOUND = (
    "the agents, which share these cores: each needs four times as long as Python's start. For 32 "
    "hosts, the launching machine uses {launching:,.0f} ms of CPU with distrun, and {clush:,.0f} "
    "ms with clush, which has no agent and does not end what it started"
)
_HELP, _BLOCKS = "`--help`, ms", "prefixed output in blocks, MB/s"
BOUNDS: dict[str, str] = {
    "start and finish 64 tasks, ms": (
        "for each task a fork of the agent, a session, a log and four records on disk"
    ),
    "one of 8 tasks fails: until the launcher (all) has ended, ms": (
        "all tasks end within 10 ms; the verdict, the end of the agent and the report follow one "
        "after another, with modules that only a failure needs"
    ),
    "prefixed output in single lines, MB/s": (
        "the tasks themselves: without a launcher and a reader, four such tasks write "
        "{unread:,.0f} MB/s into files on these cores"
    ),
    "16 idle tasks: CPU in 10 s, ms; memory (PSS), MB": (
        "four Python processes: the launch, the supervisor, the agent, and the guard that ends the "
        "tasks of a killed agent; the CPU is used for sampling the tasks"
    ),
    _HELP: "the machine, at the speed that it had: honcho's takes {help:,.0f} ms",
    _BLOCKS: "the tasks, which share these cores: GNU parallel shows {blocks:,.0f} MB/s of them",
    "SIGINT, 0.5 s of clean-up: until the end, ms (tasks that did)": (
        "0.5 s are the tasks' own; the end of the agent and the report follow"
    ),
    "8 hosts over ssh, ms": _SSH_BOUND,
    "32 hosts over ssh, ms": _SSH_BOUND,
}
"""What bounds a row whose goal is not reached. `unread`: see :mod:`logs`;
`launching` and `clush`: of :data:`LAUNCHING`; `help` and `blocks`: of peers, in the same run."""
LAUNCHING = "32 hosts over ssh: CPU of the machine that launches, ms"
_UNREAD = "4 tasks that write single lines, nobody reads"


def _first(row: Row, launcher: str) -> float | None:
    return _figure(row, launcher, 0)


def _figure(row: Row, launcher: str, place: int) -> float | None:
    figures = row.get(launcher, {}).get("figures")
    return None if figures is None else figures[place]


def _ratio(value: float | None, limit: float | None) -> float | None:
    return None if value is None or not limit else value / limit


def write(figures: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = [_head(figures), _launchers("On this machine", figures["here"])]
    if figures.get("ssh"):
        parts.append(_launchers("Over ssh", figures["ssh"]["rows"]))
        parts.append(
            "The hosts are network namespaces of the same machine, each with an sshd as Debian "
            "configures it, so all key exchanges share its cores.\n"
        )
        parts.append(_phases(figures["ssh"]["phases"]))
    parts.append(_goals(_all_rows(figures), figures["logs"]))
    if figures.get("scale"):
        parts.append(_scale(figures["scale"]))
    if figures.get("slurm"):
        parts.append(_slurm(figures["slurm"]))
    if figures.get("kubernetes"):
        parts.append(_kubernetes(figures["kubernetes"]))
    parts.append(_recovery(figures["recovery"]))
    if figures.get("training"):
        parts.append(_training(figures["training"]))
    parts.append(_logs(figures["logs"]))
    if figures.get("apart"):
        dates = (f"{part} on {date}" for part, date in sorted(figures["apart"].items()))
        parts.append(
            f"Measured in separate runs, each to be compared only in itself: {', '.join(dates)}.\n"
        )
    return "\n".join(parts)


def _head(figures: Mapping[str, Any]) -> str:
    machine = figures["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    return f"""\
# Benchmarks

<!-- written by `make bench`: change benchmarks/, not this page -->

distrun compared with other launchers. Each task is a shell script. Measured on {figures["date"]}
with {machine["cores"]} cores, {machine["memory"]} GiB, Linux {machine["kernel"]}, Python
{machine["python"]}: {versions}. They run in turn, in {figures["rounds"]} rounds after one that does
not count; figures are medians. "never": not within 5 s after a failure, otherwise 20 s. "hung":
not ended after 20 s, or with an error. In parentheses after a failure: until everything that was
started has ended. Machines differ, so compare the ratios within one run, not the milliseconds. To
measure yours:

<!-- not run: half an hour -->
```sh
make bench
```

![Starting, failing and output of each launcher](benchmarks/launchers.svg)
"""


def _all_rows(figures: Mapping[str, Any]) -> dict[str, Row]:
    return {**figures["here"], **(figures.get("ssh") or {}).get("rows", {})}


def _phases(phases: Mapping[str, Mapping[str, float]]) -> str:
    """`phases`: ms after the start, by what was done then, for distrun now and perhaps before."""
    heads = " | ".join(f"{each}: ms after its start | ms of its own" for each in phases)
    lines = [
        "Where a launch on 32 of these hosts spends its time:\n",
        f"| | {heads} |",
        "| --- |" + " --- | --- |" * len(phases),
    ]
    last = dict.fromkeys(phases, 0.0)
    for name in phases["now"]:
        cells = [f"{found[name]:,.0f} | {found[name] - last[each]:,.0f}"
                 for each, found in phases.items()]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
        last = {each: found[name] for each, found in phases.items()}
    return "\n".join(lines) + "\n"


def _launchers(title: str, rows: Mapping[str, Row]) -> str:
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [f"## {title}\n", f"| | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    for name, row in rows.items():
        cells = [row[each]["text"] if each in row else "" for each in names]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _goals(rows: Mapping[str, Row], logs: Mapping[str, float]) -> str:
    launching = rows.get(LAUNCHING, {})
    known = {
        "unread": logs[_UNREAD],
        "launching": _first(launching, _PLAIN) or math.nan,
        "clush": _first(launching, "clush") or math.nan,
        "help": _first(rows.get(_HELP, {}), "honcho") or math.nan,
        "blocks": _first(rows.get(_BLOCKS, {}), "GNU parallel") or math.nan,
    }
    lines = ["## Goals\n", "| | goal | measured, of the goal | |", "| --- | --- | --- | --- |"]
    for goals, label in ((GOALS, ""), (WITHOUT_PREFLIGHT, " (without preflight)")):
        for name, (text, find) in goals.items():
            ratio = find(rows[name]) if name in rows else None
            if ratio is not None:
                is_reached = ratio <= 1.05
                bound = BOUNDS.get(name, "not reached").format(**known)
                note = "reached" if is_reached else bound
                lines.append(f"| {name}{label} | {text} | {ratio:.2f} | {note} |")
    lines.append("\nA figure within 5% of its goal counts as reached: two runs differ by as much.")
    return "\n".join(lines) + "\n"


def _scale(runs: list[Mapping[str, float]]) -> str:
    head = (
        "hosts", "until all tasks run", "supervisor's CPU until then", "its memory",
        "idle, in 10 s", "`status`", "`logs` of all", "`logs -f`: a line of each", "`plan`",
        "one task dies: until the end", "record",
    )  # fmt: skip
    lines = [
        "## Many hosts\n",
        _OF_SCALE,
        f"| {' | '.join(head)} |",
        "| --- " * len(head) + "|",
    ]
    for run in runs:
        exchange = run["key_exchange"]
        login = f", {exchange * 1000:.0f} ms of a core for each login" if exchange else ""
        login += ", simulated" if run["is_simulated"] else ""
        cells = (
            f"{run['hosts']:,.0f}{login}",
            f"{run['until_all_run']:.1f} s", f"{run['supervisor_cpu']:.1f} s",
            f"{run['supervisor_memory']:.0f} MB", f"{run['idle_cpu']:.0f} ms",
            f"{run['status']:.1f} s", f"{run['logs']:.1f} s",
            "" if run["logs_follow"] is None else f"{run['logs_follow']:.1f} s",
            f"{run['plan']:.1f} s",
            f"{run['until_end']:.1f} s", f"{run['events_size']:.1f} MB",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _slurm(part: Mapping[str, Any]) -> str:
    found: Mapping[str, float | None] = part["ms"]
    by_ssh = found["distrun by ssh"]
    lines = [
        "## On Slurm\n",
        f"`true` on the {part['nodes']} nodes of an allocation, which are network namespaces.\n",
        "| | ms | of distrun's by ssh |",
        "| --- | --- | --- |",
    ]
    for name, value in found.items():
        ratio = _ratio(value, by_ssh)
        lines.append(f"| {name} | {_number(value)} | {'' if ratio is None else f'{ratio:.2f}'} |")
    return "\n".join(lines) + "\n"


_OF_KUBERNETES = """\
From the launch until all tasks run, in ms: in pods on two nodes, which are network namespaces; as a
bare Job, whose pods only sleep; and over ssh on as many namespaces.
"""


def _kubernetes(part: Mapping[str, Any]) -> str:
    counts = [str(each) for each in part["counts"]]
    lines = [
        "## On Kubernetes\n",
        _OF_KUBERNETES,
        f"| | {' | '.join(f'{each} pods or hosts' for each in counts)} |",
        "| --- | " + " | ".join("---" for _ in counts) + " |",
    ]
    for name, found in part["ms"].items():
        lines.append(f"| {name} | {' | '.join(_number(found[each]) for each in counts)} |")
    return "\n".join(lines) + "\n"


_OF_RECOVERY = """\
Two workers train MNIST on these cores. SIGKILL kills worker 1 in the middle of the second of three
epochs. By hand, two processes are started with TF_CONFIG, and nobody starts them again.
"""


def _recovery(found: Mapping[str, Mapping[str, float | None]]) -> str:
    lines = [
        "## After a failure\n",
        _OF_RECOVERY,
        "| | first step, s | from the kill to the next step, s | final test accuracy |",
        "| --- | --- | --- | --- |",
    ]
    for name, each in found.items():
        seconds = "" if each["seconds"] is None else f"{each['seconds']:.1f}"
        first = f"{each['first_step']:.1f}"
        lines.append(f"| {name} | {first} | {seconds} | {each['accuracy']:.4f} |")
    return "\n".join(lines) + "\n"


_OF_TRAINING = """\
The tutorial's script, unchanged, with two workers on these cores (3 epochs of 70 steps), {rounds}
times in turn: the median, the smallest and the largest, and the median of the ratios to the run by
hand of the same round. distrun has the C library keep [freed memory](spec.md#freed-memory). The
goal is 0.60 of by hand to the end, 1.00 to the first step, and 0.45 a step.
"""


def _training(found: Mapping[str, Mapping[str, list[float]]]) -> str:
    """`found`: for each way, the first of them by hand, the figures of its rounds."""
    by_hand, *_ = found.values()
    heads = "".join(f" {name} | of by hand |" for name in by_hand)
    lines = [
        "## Training\n",
        _OF_TRAINING.format(rounds=len(next(iter(by_hand.values())))),
        f"| |{heads}",
        "| --- |" + " --- | --- |" * len(by_hand),
    ]
    for way, figures in found.items():
        cells = [way]
        for name, values in figures.items():
            ratios = [ours / theirs for ours, theirs in zip(values, by_hand[name], strict=True)]
            middle, least, most = map(_short, (median(values), min(values), max(values)))
            cells += [f"{middle} ({least} to {most})", f"{median(ratios):.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _logs(found: Mapping[str, float]) -> str:
    lines = [
        "## Logs\n",
        "How fast the output of 4 tasks is prefixed, and merged by time.\n",
        "| | MB/s | of sed's |",
        "| --- | --- | --- |",
    ]
    for name, value in found.items():
        beside = found["4 writers, a sed each" if "writers" in name else "sed s/^/prefix/, 4 files"]
        ratio = "" if name == _UNREAD else f"{value / beside:.2f}"
        lines.append(f"| {name} | {value:,.0f} | {ratio} |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "hung" if value is None else f"{value:,.0f}"


_PLOTTED = (
    *("`--help`, ms", "start and finish 2 tasks, ms", "start and finish 64 tasks, ms"),
    "one of 8 tasks fails: until the launcher (all) has ended, ms",
    *("prefixed output in blocks, MB/s", "32 hosts over ssh, ms"),
)
_COLOUR, _PEERS_COLOUR = "#0072b2", "#999999"


def draw(figures: Mapping[str, Any], folder: Path) -> None:
    """Writes launchers.svg into the folder."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "distrun"  # the same figures make the same file
    import matplotlib.pyplot as plt

    rows = _all_rows(figures)
    shown = [name for name in _PLOTTED if name in rows]
    figure, axes = plt.subplots(2, 3, figsize=(13, 6))
    for place, name in zip(axes.flat, shown, strict=False):
        found = {each: _first(rows[name], each) for each in rows[name]}
        bars = {each: value for each, value in found.items() if value is not None}
        colours = [_COLOUR if each.startswith(_OURS) else _PEERS_COLOUR for each in bars]
        place.barh(list(bars), list(bars.values()), color=colours)
        place.invert_yaxis()
        place.set_xscale("log")
        place.set_title(name.replace("`", ""), fontsize=9)
        place.tick_params(labelsize=8)
    for place in axes.flat[len(shown) :]:
        place.axis("off")
    figure.tight_layout()
    figure.savefig(folder / "launchers.svg", metadata={"Date": None})
    plt.close(figure)
