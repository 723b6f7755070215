"""The stacks of the tasks' threads: read from the hosts' answers, and grouped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from distrun import codec
from distrun.agent.protocol import Struct
from distrun.frozen import Frozen, field

_MAIN = "MainThread"
_EVALUATOR = "evaluator:"
CONVERTED = "/__autograph_generated_file"
"""In the path of a file that AutoGraph has made of a function, and that nobody can look at."""
_LIBRARY = re.compile(rf"/(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/|{CONVERTED}")
_OWN_FILE = re.compile(r"\.py$|^<(?:string|stdin)>$")
_LONGEST_TEXT = 1 << 21
_MOST_PROCESSES = 4096
_MOST_PLACES, _MOST_FRAMES, _MOST_TASKS, _LONGEST_PLACE = 8, 12, 64, 300
"""Of what is recorded."""


class Frame(Struct):
    """A call that has not returned: its function, its file, and the line in it."""

    function: str
    file: str
    line: int

    @property
    def is_of_library(self) -> bool:
        """Whether the file is installed or generated, and not of the user's program."""
        return _LIBRARY.search(self.file) is not None or _OWN_FILE.search(self.file) is None

    @property
    def place(self) -> str:
        """The file without its folders, and the line."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


class Thread(Frozen, kw_only=True):
    """A thread, its innermost frame first. `holds_gil`: whether it runs Python code now."""

    name: str
    is_main: bool
    holds_gil: bool
    frames: tuple[Frame, ...]

    @property
    def own_frame(self) -> Frame | None:
        """The innermost frame of the user's program."""
        return next((frame for frame in self.frames if not frame.is_of_library), None)


class Recording(Frozen, kw_only=True):
    """Some seconds of a process. Moments are milliseconds since its beginning."""

    frames: tuple[tuple[str, str, int, str], ...]
    """Function, file, line, and the text of that line if it is of the user's program."""
    stacks: tuple[tuple[int, ...], ...]
    """Indices of frames, the innermost first."""
    threads: tuple[tuple[tuple[float, int], ...], ...]
    """For each thread, its stacks: the moment from which on, and the index."""
    readings: tuple[tuple[float, float, float], ...]
    """Moment, CPU milliseconds of the process, and those that its threads waited for a core."""
    throttled: float
    """Seconds for which the quota of its cgroup kept it from running."""
    host_busy: float
    """CPU seconds that all processes of its host have used."""
    host_cores: int
    cores: int
    """Those that it may use."""
    quota: float
    """Cores that its cgroup may use; 0: as many as there are."""
    nice: int
    swapped_bytes: int
    clock_mhz: int
    """0: unknown."""
    celsius: int
    """The highest that its host measures; 0: unknown."""
    gpus: tuple[tuple[str, ...], ...]
    """Of each GPU that it may use, what nvidia-smi says: see :func:`distrun.advice.gpus.read`."""
    connections: tuple[tuple[int, int, int, int, int, int, int, int], ...]
    """Of each TCP connection: local and remote port; counted meanwhile: bytes sent and received,
    packets sent again, microseconds limited by the receiver; the round trip's microseconds, and
    the bytes a second that it delivered while there was something to send."""


class ProcessStacks(Frozen, kw_only=True):
    """The threads of one process of a task. `error`: why they are not known; '': they are."""

    task: str
    pid: int
    threads: tuple[Thread, ...] = ()
    error: str = ""
    recording: Recording | None = None

    @property
    def is_python(self) -> bool:
        """Whether it is a Python program, as far as is known."""
        return "find python" not in self.error.lower()

    @property
    def main(self) -> Thread | None:
        """Its main thread; the first one if none is called so."""
        named = (thread for thread in self.threads if thread.is_main or thread.name == _MAIN)
        return next(named, self.threads[0] if self.threads else None)

    @property
    def place(self) -> str:
        """Where its main thread is, by a line of the user's program if there is one."""
        main = self.main
        if main is None or not main.frames:
            return "no Python frame"
        inner, own = main.frames[0], main.own_frame
        if own is None or own is inner:
            return f"{inner.function}, {inner.place}"
        return f"{inner.function}, called from {own.function}, {own.place}"


class Stacks(Frozen, kw_only=True):
    """What the hosts have answered. `silent`: those that have not, and why."""

    processes: list[ProcessStacks] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)


class Entry(Frozen, kw_only=True):
    tasks: tuple[str, ...]
    process: ProcessStacks


class Place(Frozen, kw_only=True):
    """Where tasks were when their job stalled: `place`, and the frames, the innermost first."""

    tasks: tuple[str, ...]
    place: str
    frames: tuple[str, ...] = ()


def decode(text: str) -> list[ProcessStacks]:
    """Read what a host has sent.

    Raises:
        ValueError: it has another form.
    """
    if len(text) > _LONGEST_TEXT:
        raise ValueError("it is too long")
    found = codec.decode(list[ProcessStacks], text)
    if len(found) > _MOST_PROCESSES:
        raise ValueError("it has too many processes")
    for recording in filter(None, (each.recording for each in found)):
        used = {n for stack in recording.stacks for n in stack} - {*range(len(recording.frames))}
        seen = {n for each in recording.threads for _, n in each} - {*range(len(recording.stacks))}
        if used or seen:
            raise ValueError("a stack or a frame is not listed")
    return found


def places(processes: list[ProcessStacks]) -> tuple[Place, ...]:
    """Return the first entries of :func:`fold`, short enough for a job's record."""
    found = []
    for entry in fold(processes)[:_MOST_PLACES]:
        main = entry.process.main
        frames = [] if main is None else main.frames[:_MOST_FRAMES]
        words = tuple(f"{each.function} ({each.place})"[:_LONGEST_PLACE] for each in frames)
        place = entry.process.place[:_LONGEST_PLACE]
        found.append(Place(tasks=entry.tasks[:_MOST_TASKS], place=place, frames=words))
    return tuple(found)


def odd_one(found: Sequence[Place]) -> Place | None:
    """Return where the tasks are that differ from most; None if that is not clear.

    Evaluators do not count: they wait at places of their own.
    """
    joined: dict[str, list[str]] = {}
    for each in found:
        training = [task for task in each.tasks if not task.startswith(_EVALUATOR)]
        joined.setdefault(each.place, []).extend(training)
    frames = {each.place: each.frames for each in found}
    places = [
        Place(tasks=tuple(names), place=place, frames=frames[place])
        for place, names in joined.items()
        if names
    ]
    ranked = sorted(places, key=lambda each: len(each.tasks))
    is_clear = len(ranked) > 1 and len(ranked[0].tasks) < len(ranked[1].tasks)
    return ranked[0] if is_clear else None


def fold(processes: list[ProcessStacks]) -> list[Entry]:
    """Join tasks whose main threads have the same stack: the rarest stack first.

    Of each task, its processes with a stack are taken. Equal processes of one task count once.
    """
    places: dict[tuple[Any, ...], list[ProcessStacks]] = {}
    for process in processes:
        if process.main is not None:
            places.setdefault(process.main.frames, []).append(process)
    entries = [
        Entry(tasks=tuple(sorted({each.task for each in found}, key=_rank)), process=found[0])
        for found in places.values()
    ]
    return sorted(entries, key=lambda entry: len(entry.tasks))


def _rank(task: str) -> tuple[str, int, str]:
    """The order of tasks: by role, then by index."""
    role, _, index = task.partition(":")
    return role, int(index) if index.isdecimal() else 0, task
