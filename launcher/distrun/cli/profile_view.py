"""Where the time of tasks goes, as `profile` shows it, as JSON and as a file of speedscope."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from distrun import __version__
from distrun.advice.profile import Kind, Obstacle, Timeline
from distrun.cli.stacks_view import problems
from distrun.cli.table import Column, make_table
from distrun.codec import to_json
from distrun.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.advice.profile import Reason, Straggler, TaskProfile
    from distrun.supervisor.stack_collector import Stacks

_MOST_COLUMNS = 4
"""Of tasks. Of more, the one that the others wait for is shown, and the median of each role."""
_LEAST_SHOWN = 0.005
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_REASONS = {
    Obstacle.THROTTLED: "its cgroup's quota of {usual:.2g} cores stops it {amount:.0%} of the time",
    Obstacle.NICE: "it runs at nice {amount:.0f}, the others at {usual:.0f}",
    Obstacle.BUSY_NEIGHBOUR: ("other processes use {amount:.1f} of its host's {usual:.0f} cores"),
    Obstacle.FEWER_CORES: "it may use {amount:.0f} cores, the others {usual:.0f}",
    Obstacle.NO_CORE: "it waits for a core {amount:.0%} of its steps, the others {usual:.0%}",
    Obstacle.SWAPPED: "{megabytes:.0f} MB of its memory are in swap",
    Obstacle.SLOWER_CLOCK: "its CPU runs at {amount:.0f} MHz, the others at {usual:.0f}",
    Obstacle.LONGER_STEPS: (
        "it computes {amount:.0%} of the time, the others {usual:.0%}: more data a step, or slower "
        "cores"
    ),
    Obstacle.MORE_OF_A_KIND: "{kind}: {amount:.0%} of its time, {usual:.0%} of the others'{place}",
}


def profile_json(
    profiles: Sequence[TaskProfile], straggler: Straggler | None, found: Stacks
) -> dict[str, Any]:
    """Return what `profile --json` prints."""
    known = {each.task: each for each in profiles}
    tasks = []
    for process in found.processes:
        each = known.get(process.task)
        shares, places = (each.shares, each.places) if each is not None else ({}, {})
        kinds = [
            {"kind": kind.value, "share": round(share, 4), "place": places[kind]}
            for kind, share in shares.items()
        ]
        about = {"task": process.task, "pid": process.pid, "error": process.error, "kinds": kinds}
        used = 0.0 if each is None else each.cpu_seconds
        tasks.append({**about, "cpu_seconds": round(used, 2)})
    return {
        "tasks": tasks,
        "straggler": to_json(straggler),
        "hosts_without_answer": found.silent,
    }


def profile_view(
    profiles: Sequence[TaskProfile],
    straggler: Straggler | None,
    found: Stacks,
    width: int,
    *,
    has_program: bool,
) -> Group:
    """Return the profile as text, in some ten lines."""
    lines: list[Any] = []
    if profiles:
        lines.append(_table(profiles, straggler, width))
    if straggler is not None:
        lines.append(
            Text(
                f"the others wait for {straggler.task}: without that, the job would take "
                f"{straggler.gain:.0%} less time",
                "bold",
            )
        )
        lines += [Text(f"  {printable(reason_text(each))}") for each in straggler.reasons]
    if not has_program:
        lines.append(Text("what they do is not known without py-spy here: pip install py-spy"))
        found.processes[:] = [each for each in found.processes if each.recording is None]
    return Group(*lines, *map(Text, map(printable, problems(found))))


def reason_text(reason: Reason) -> str:
    """Say what sets a task apart."""
    place = f" ({reason.place})" if reason.place else ""
    return _REASONS[reason.obstacle].format(
        amount=reason.amount,
        usual=reason.usual,
        megabytes=reason.amount / 1e6,
        kind=reason.kind.value if reason.kind else "",
        place=place,
    )


def _table(profiles: Sequence[TaskProfile], straggler: Straggler | None, width: int) -> Any:
    first = None if straggler is None else straggler.task
    columns = {each.task: [each] for each in profiles}
    if len(columns) > _MOST_COLUMNS:
        columns = {}
        for each in sorted(profiles, key=lambda each: each.task != first):
            role = each.task.partition(":")[0]
            columns.setdefault(each.task if each.task == first else role, []).append(each)
    titles = {
        title: title if title in (each.task for each in group) else f"{title} ({len(group)})"
        for title, group in columns.items()
    }
    rows = []
    for kind in Kind:
        shares = {
            title: statistics.median(each.shares.get(kind, 0.0) for each in columns[name])
            for name, title in titles.items()
        }
        if max(shares.values()) < _LEAST_SHOWN:
            continue
        most = max(profiles, key=lambda each: each.shares.get(kind, 0.0))
        cells = {title: f"{share:.0%}" if share else "" for title, share in shares.items()}
        rows.append({"": kind.value, **cells, "line": most.places.get(kind, "")})
    heads = [Column(""), *(Column(each, right=True) for each in titles.values())]
    return make_table([*heads, Column("line")], rows, width)


def speedscope(profiles: Sequence[TaskProfile], name: str) -> dict[str, Any]:
    """Return the stacks of all threads of all tasks as one file of speedscope."""
    frames: dict[tuple[str, str, int], int] = {}
    threads = []
    for each in profiles:
        timeline = Timeline(each.recording)
        indices = [
            frames.setdefault((frame.function, frame.file, frame.line), len(frames))
            for frame in timeline.frames
        ]
        for number, thread in enumerate([timeline.main, *timeline.others]):
            if len(thread) < 2:
                continue
            stacks = [each.recording.stacks[stack] for _, stack in thread[:-1]]
            moments = [moment for moment, _ in thread]
            weights = [end - start for start, end in pairwise(moments)]
            threads.append(
                {
                    "type": "sampled",
                    "name": f"{each.task}{f' thread {number}' if number else ''}",
                    "unit": "milliseconds",
                    "startValue": moments[0],
                    "endValue": moments[-1],
                    "samples": [[indices[i] for i in reversed(stack)] for stack in stacks],
                    "weights": weights,
                }
            )
    listed = [{"name": name, "file": file, "line": line} for name, file, line in frames]
    return {
        "$schema": _SCHEMA,
        "exporter": f"distrun {__version__}",
        "name": name,
        "shared": {"frames": listed},
        "profiles": threads,
    }
