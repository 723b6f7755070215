"""The job's last profile as flame graphs: where main threads and makers of input were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from distrun.job.stacks import Frame
from distrun.spec.regular_file import read_regular_file

_MOST_BYTES = 64 << 20
_MOST_TASKS, _MOST_DEPTH = 16, 60
_LEAST_PERCENT = 1.0
"""Of the width: what is narrower cannot be read."""
INPUT_MARK = " (input)"
"""Ends the name of a thread of the program that makes the input for which its task waits."""
_MOST_TIME = 1e9
"""Milliseconds."""


class Box(NamedTuple):
    """A call: where it begins and how long it lasts in percent, and how deep it is, from 0."""

    left: float
    width: float
    depth: int
    name: str
    title: str
    is_own: bool
    """Whether it is of the user's program."""


class Flame(NamedTuple):
    """The calls of one thread. `seconds`: how long it was looked at."""

    task: str
    seconds: float
    boxes: list[Box]

    @property
    def rows(self) -> int:
        return 1 + max((each.depth for each in self.boxes), default=0)


class _Calls:
    """A call with those that it has made, by their frames, and the time of all in it."""

    def __init__(self) -> None:
        self.time = 0.0
        self.made: dict[int, _Calls] = {}

    def add(self, stack: list[int], time: float) -> None:
        calls = self
        calls.time += time
        for frame in stack[:_MOST_DEPTH]:
            calls = calls.made.setdefault(frame, _Calls())
            calls.time += time


def read_flames(path: Path) -> list[Flame]:
    """Return the flame graphs of what `distrun profile` has saved; none: nothing, or damaged."""
    try:
        saved = json.loads(read_regular_file(str(path), largest=_MOST_BYTES) or b"{}")
        listed = saved.get("shared", {}).get("frames", ())
        frames = [Frame(each["name"], each["file"], each["line"]) for each in listed]
        shown = [
            each
            for each in saved.get("profiles", ())
            if " thread " not in each["name"] or each["name"].endswith(INPUT_MARK)
        ]
        return [_flame(each, frames) for each in shown[:_MOST_TASKS]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


def _flame(saved: dict[str, Any], frames: list[Frame]) -> Flame:
    calls = _Calls()
    functions: dict[tuple[str, str], int] = {}
    """A frame of each function: its lines are drawn as one call."""
    same = [functions.setdefault((each.function, each.file), n) for n, each in enumerate(frames)]
    for stack, weight in zip(saved["samples"], saved["weights"], strict=True):
        if not 0 <= weight <= _MOST_TIME:  # NaN is neither
            raise ValueError("a damaged weight")
        calls.add([same[n] for n in stack], weight)
    boxes = list(_boxes(calls, frames, 100 / calls.time)) if calls.time else []
    return Flame(str(saved["name"]), calls.time / 1e3, boxes)


def _boxes(
    calls: _Calls, frames: list[Frame], scale: float, left: float = 0.0, depth: int = 0
) -> Iterator[Box]:
    for index, made in sorted(calls.made.items(), key=lambda item: -item[1].time):
        frame, width = frames[index], made.time * scale
        if width < _LEAST_PERCENT:
            return
        title = f"{frame.function} ({frame.place}): {width:.1f}% of the time"
        yield Box(left, width, depth, frame.function, title, not frame.is_of_library)
        yield from _boxes(made, frames, scale, left, depth + 1)
        left += width
