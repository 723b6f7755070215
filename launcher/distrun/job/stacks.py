"""The stacks of the tasks' threads: read from the hosts' answers, and grouped."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from distrun import codec
from distrun.agent.protocol import Struct
from distrun.frozen import Frozen, field, replace

_Thread = TypeVar("_Thread")
_MAIN = "MainThread"
_EVALUATOR = "evaluator:"
CONVERTED = "/__autograph_generated_file"
"""In the path of a file that AutoGraph has made of a function, and that nobody can look at."""
_LIBRARY = re.compile(
    rf"/(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/|{CONVERTED}"
    r"|^<string> (?:.*\.)?(?:<lambda>|__\w+__)$"  # of a namedtuple or a dataclass
)
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
        where = f"{self.file} {self.function}"
        return _LIBRARY.search(where) is not None or _OWN_FILE.search(self.file) is None

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
    def own_frames(self) -> tuple[Frame, ...]:
        """The frames of the user's program."""
        return tuple(frame for frame in self.frames if not frame.is_of_library)

    @property
    def place(self) -> str:
        """Where it is, by a line of the user's program if there is one."""
        if not self.frames:
            return "no Python frame"
        inner, own = self.frames[0], next(iter(self.own_frames), None)
        if own is None or own is inner:
            return f"{inner.function}, {inner.place}"
        return f"{inner.function}, called from {own.function}, {own.place}"


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
    first_thread: tuple[tuple[float, float], ...] = ()
    """More rarely: a moment, and the milliseconds its first thread ran or waited for a core."""
    throttled: float
    """Seconds for which the quota of its cgroup kept it from running."""
    host_busy: float
    """CPU seconds that all processes of its host have used."""
    helpers_busy: float = 0.0
    """The same of the task's other processes."""
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
    """The threads of one process of a task. `error`: why they are not known, or do not change."""

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
    def is_suspended(self) -> bool:
        """Whether it is suspended (SIGSTOP); `error` has the command that lets it continue."""
        return "kill -CONT" in self.error

    @property
    def main(self) -> Thread | None:
        """Its main thread; the first one if none is called so."""
        named = (thread for thread in self.threads if thread.is_main or thread.name == _MAIN)
        return next(named, self.threads[0] if self.threads else None)

    @property
    def own_threads(self) -> dict[Hashable, Thread]:
        """Its other threads in the user's program, by their frames there."""
        others = (each for each in self.threads if each is not self.main)
        return {each.own_frames: each for each in others if each.own_frames}


class Stacks(Frozen, kw_only=True):
    """What the hosts have answered. `silent`: those that have not, and why."""

    processes: list[ProcessStacks] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)


class Entry(Frozen, kw_only=True):
    """Tasks that are at the same places.

    `thread`: one besides the main thread, in the user's program, that not all of the tasks have
    whose main threads are there.
    """

    tasks: tuple[str, ...]
    process: ProcessStacks
    thread: Thread | None

    @property
    def place(self) -> str:
        """Where that thread is, or the main thread."""
        thread = self.thread or self.process.main
        return "" if thread is None else thread.place


class Place(Frozen, kw_only=True):
    """Where tasks were when their job stalled: `place`, and the frames, the innermost first.

    `main`: where their main threads were, if that is the place of a thread that others lack.
    """

    tasks: tuple[str, ...]
    place: str
    frames: tuple[str, ...] = ()
    main: str = ""


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
        thread = entry.thread or main
        frames = () if thread is None else thread.frames[:_MOST_FRAMES]
        words = tuple(f"{each.function} ({each.place})"[:_LONGEST_PLACE] for each in frames)
        place, tasks = entry.place[:_LONGEST_PLACE], entry.tasks[:_MOST_TASKS]
        at = main.place[:_LONGEST_PLACE] if main is not None and entry.thread is not None else ""
        found.append(Place(tasks=tasks, place=place, frames=words, main=at))
    return tuple(found)


def odd_one(found: Sequence[Place]) -> Place | None:
    """Return where the tasks are that differ from most; None if that is not clear.

    Of two tasks whose main threads are at one place, the one differs that has a thread elsewhere.
    Evaluators do not count: they wait at places of their own.
    """
    joined: dict[tuple[str, str], Place] = {}
    counts: dict[str, int] = {}
    """Tasks, by where their main threads are."""
    for each in found:
        names = tuple(task for task in each.tasks if not task.startswith(_EVALUATOR))
        main = each.main or each.place
        same = joined.get((main, each.place))
        if names:
            counts[main] = counts.get(main, 0) + len(names)
            tasks = (*same.tasks, *names) if same is not None else names
            joined[main, each.place] = replace(each, tasks=tasks)

    def rank(place: Place) -> tuple[int, int, bool]:
        return counts[place.main or place.place], len(place.tasks), not place.main

    ranked = sorted(joined.values(), key=rank)
    if len(ranked) < 2:
        return None
    first, second = map(rank, ranked[:2])
    is_clear = first < second and (first[0] < second[0] or ranked[0].main)
    return ranked[0] if is_clear else None


def fold(processes: list[ProcessStacks]) -> list[Entry]:
    """Join tasks that are at the same places: the rarest first, by the line and then the stack.

    Their main threads have the same stack, and other threads are at the same places of the user's
    program. Of each task, its processes with a stack are taken. Equal processes of one task count
    once.
    """
    known = [
        (each, each.main.frames, each.own_threads) for each in processes if each.main is not None
    ]
    differing = differing_threads((main, threads) for _, main, threads in known)
    joined: dict[tuple[Hashable, ...], tuple[set[str], ProcessStacks, Thread | None, Hashable]] = {}
    tasks_at: dict[Hashable, set[str]] = {}
    for (process, main, threads), thread in zip(known, differing, strict=True):
        for at in (main, main[:1]):
            tasks_at.setdefault(at, set()).add(process.task)
        new = (set[str](), process, thread, main[:1])
        names, *_ = joined.setdefault((main, frozenset(threads)), new)
        names.add(process.task)
    ranked = [
        (
            (*(len(tasks_at[at]) for at in (place, main)), len(names), thread is None),
            Entry(tasks=tuple(sorted(names, key=_rank)), process=process, thread=thread),
        )
        for (main, _), (names, process, thread, place) in joined.items()
    ]
    ranked.sort(key=lambda each: (each[0], _rank(each[1].tasks[0])))
    return [entry for _, entry in ranked]


def differing_threads(
    found: Iterable[tuple[Hashable, Mapping[Hashable, _Thread]]],
) -> list[_Thread | None]:
    """Return for each the first thread that not all have whose main threads are at that place.

    `found`: where each main thread is, and the other threads by where they are.
    """
    known = list(found)
    common: dict[Hashable, set[Hashable]] = {}
    for main, threads in known:
        common[main] = common.get(main, {*threads}) & {*threads}
    return [
        next((each for at, each in threads.items() if at not in common[main]), None)
        for main, threads in known
    ]


def _rank(task: str) -> tuple[str, int, str]:
    """The order of tasks: by role, then by index."""
    role, _, index = task.partition(":")
    return role, int(index) if index.isdecimal() else 0, task
