"""The end of a task's log, read for what it died of."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from distrun.verdict.loglines import (
    DEADLY,
    FATAL,
    LOGGED,
    NOISE,
    UNALARMING,
    is_abort,
    is_by_the_way,
)
from distrun.verdict.statement import Statement
from distrun.verdict.tracebacks import tracebacks, type_of, without_group

if TYPE_CHECKING:
    from distrun.verdict.tracebacks import Traceback

_CURRENT = "Current thread 0x"
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)(?:,)? in (.+)')
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3")
_MARKER = re.compile(
    rb"^--- attempt \d+, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: restarted after .*\n?", re.MULTILINE
)
_TENSORFLOW = "tensorflow."
_MESSAGE_ENDS = ("[[", "[Op:")
_LAST_LINES = 20
_LAST_FORMS = 5
_LAST_ABORT = 60
_MOST_BEHIND = 3
_MOST_BEHIND_EXIT_1 = 25
"""Python exits 1 after a traceback: what follows it may then be a long message."""
_LONGEST = 400
_BEFORE_MARK = 100


def attempt_start(raw: bytes) -> int:
    """Where the last attempt's output begins in the end of a log: behind distrun's own line."""
    last = 0
    for match in _MARKER.finditer(raw):
        last = match.end()
    return last


@dataclass(frozen=True)
class Tail:
    """The last bytes of a log, and whether they are all of it."""

    raw: bytes
    is_whole: bool = True

    @property
    def is_enough(self) -> bool:
        """Whether it is more than the end of one long line, whose beginning would tell more."""
        return self.is_whole or -1 < self.raw.find(b"\n") < len(self.raw) // 2


@dataclass(frozen=True)
class Frame:
    path: str
    line: int
    function: str

    @property
    def is_own(self) -> bool:
        """Whether it is the user's code, not a library's."""
        inside = any(each in self.path for each in _LIBRARIES)
        return not inside and not self.path.startswith("<")

    def __str__(self) -> str:
        name = self.path.rpartition("/")[2]
        return f"{name}:{self.line}" + (
            "" if self.function == "<module>" else f" in {self.function}"
        )


class Reading:
    """One attempt's last lines, and the last error in them. `code` is what the task exited with."""

    def __init__(self, tail: Tail, code: int | None = None) -> None:
        start = attempt_start(tail.raw)
        text = tail.raw[start:].decode("utf-8", "replace").rstrip("\n")
        raw = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        self.lines = [without_group(line) for line in raw]
        self._raw = raw
        self._code = code
        self._first = tail.raw.count(b"\n", 0, start) + 1 if tail.is_whole else None

    def place(self, index: int) -> str:
        """Where a line stands, for people."""
        if self._first is not None:
            return f"line {self._first + index}"
        before = len(self.lines) - 1 - index
        return "the last line" if before == 0 else f"{before} lines before the end"

    @cached_property
    def raised(self) -> Traceback | None:
        """The traceback of the exception that ended it; one beside it where there is no other."""
        most = _MOST_BEHIND_EXIT_1 if self._code == 1 else _MOST_BEHIND
        latest = reversed(self._tracebacks)
        ends = list(itertools.takewhile(lambda each: self._behind(each) <= most, latest))
        main = (each for each in ends if not each.aside)
        return next(main, ends[0] if ends else None)

    @cached_property
    def _tracebacks(self) -> list[Traceback]:
        return tracebacks(self._raw, self.lines)

    def _behind(self, which: Traceback) -> int:
        """How many lines follow that the program printed when it had got over it."""
        shown = set(range(self._own_message_end(which)))
        for each in self._tracebacks:
            if each.first > which.exception:
                shown.update(range(each.first, self._own_message_end(each)))
        stop = len(self.lines) if self.crash is None else self.crash
        rest = (index for index in range(which.exception + 1, stop) if index not in shown)
        return sum(not is_by_the_way(self.lines[index]) for index in rest)

    def _own_message_end(self, which: Traceback) -> int:
        """As far as that can be told: lines that are further in, and TensorFlow's own marks."""
        index = which.exception + 1
        while index < which.stop and self._raw[index][:1].isspace():
            index += 1
        if not type_of(self.lines[which.exception]).startswith(_TENSORFLOW):
            return index
        marks = (
            i + 1
            for i in range(which.stop - 1, which.exception, -1)
            if any(each in self.lines[i] for each in _MESSAGE_ENDS)
        )
        return next(marks, index)

    @property
    def is_last_word(self) -> bool:
        """Whether the program printed nothing after an exception that may have ended it."""
        raised = self.raised
        return raised is not None and not raised.is_ignored and self._behind(raised) == 0

    @cached_property
    def exception(self) -> int | None:
        """The index of the line that names the exception."""
        return None if self.raised is None else self.raised.exception

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """What it said of its end: its exception and the causes of that, or its last lines."""
        if self.raised is not None:
            return tuple(self._of_exception(each) for each in self.raised.chain())
        last = self.last_said()
        said = () if last is None else (Statement(lines=((last, self.lines[last]),)),)
        return (*said, *self.logged, self._forms)

    def _of_exception(self, which: Traceback) -> Statement:
        line = self.lines[which.exception].strip()
        inside = range(which.exception, which.stop)
        frames = range(which.first, which.exception)
        return Statement(
            type=type_of(line),
            lines=tuple((index, self.lines[index]) for index in inside),
            frames=tuple((i, self.lines[i]) for i in frames if _FRAME.match(self.lines[i])),
            is_tensorflows=type_of(line).startswith(_TENSORFLOW),
        )

    @property
    def said(self) -> str:
        """The text of all that it said of its end."""
        return "\n".join(line for said in self.statements for _, line in said.lines)

    @property
    def logged(self) -> tuple[Statement, ...]:
        """The last errors in TensorFlow's own log."""
        last = range(max(0, len(self.lines) - _LAST_LINES), len(self.lines))
        return tuple(
            Statement(lines=((index, self.lines[index]),), is_tensorflows=True)
            for index in last
            if LOGGED.match(self.lines[index]) and not UNALARMING.match(self.lines[index])
        )

    @property
    def _forms(self) -> Statement:
        """The last few lines that a program printed: a shell may say more after its last one."""
        said = [
            (index, line)
            for index, line in enumerate(self.lines)
            if line.strip() and not LOGGED.match(line)
        ]
        return Statement(
            lines=tuple(said[-_LAST_FORMS:]),
            before=tuple(line for _, line in said[-_LAST_LINES:]),
            is_printed=True,
        )

    @cached_property
    def abort(self) -> int | None:
        """The index of the last line in which native code says why it ends the process."""
        last = range(len(self.lines) - 1, max(-1, len(self.lines) - _LAST_ABORT), -1)
        return next((index for index in last if is_abort(self.lines[index])), None)

    @property
    def aborting(self) -> tuple[Statement, ...]:
        """All that native code says of why it ends the process."""
        last = range(max(0, len(self.lines) - _LAST_ABORT), len(self.lines))
        return tuple(self._of_abort(index) for index in last if is_abort(self.lines[index]))

    def _of_abort(self, first: int) -> Statement:
        is_tensorflows = DEADLY.match(self.lines[first]) is not None
        stop = first + 1
        while is_tensorflows and stop < len(self.lines) and not self._ends_abort(stop):
            stop += 1
        lines = tuple((index, self.lines[index]) for index in range(first, stop))
        return Statement(lines=lines, is_tensorflows=is_tensorflows)

    def _ends_abort(self, index: int) -> bool:
        line = self.lines[index]
        return LOGGED.match(line) is not None or line.startswith(FATAL)

    @cached_property
    def crash(self) -> int | None:
        """The index of Python's own line about a signal that it died of."""
        for index in range(len(self.lines) - 1, -1, -1):
            if self.lines[index].startswith(FATAL):
                return index
        return None

    @cached_property
    def message(self) -> str:
        """The exception and what it says, from its own line on; empty where there is none."""
        if self.raised is None:
            return ""
        return "\n".join(self.lines[self.raised.exception : self.raised.stop])

    @cached_property
    def frame(self) -> tuple[int, Frame] | None:
        """The deepest frame in the user's own files, with the index of its line."""
        if self.crash is not None and self.raised is None:
            own = self._own_frames(range(self.crash, len(self.lines)))
            return own[0] if own else None  # the most recent call comes first there
        if self.raised is None:
            return None
        own = self._own_frames(range(self.raised.first, self.raised.stop))
        return own[-1] if own else None

    @cached_property
    def standstill(self) -> int | None:
        """The line of the deepest own frame of the thread that took the signal; None without."""
        if self.crash is None:
            return None
        current = (i for i in range(self.crash, len(self.lines)) if _CURRENT in self.lines[i])
        own = self._own_frames(range(next(current, self.crash), len(self.lines)))
        return own[0][0] if own else None

    def _own_frames(self, where: range) -> list[tuple[int, Frame]]:
        found = []
        for index in where:
            match = _FRAME.match(self.lines[index])
            if match is not None:
                frame = Frame(match[1], int(match[2]), match[3].strip())
                if frame.is_own:
                    found.append((index, frame))
        return found

    def find_last(self, pattern: re.Pattern[str]) -> tuple[int, re.Match[str]] | None:
        """The last line that has it, and what it is there."""
        for index in range(len(self.lines) - 1, -1, -1):
            match = pattern.search(self.lines[index])
            if match is not None:
                return index, match
        return None

    def last_said(self) -> int | None:
        """The last line that is not empty and not TensorFlow's log."""
        for index in range(len(self.lines) - 1, -1, -1):
            line = self.lines[index]
            if line.strip() and not LOGGED.match(line) and not line.startswith(NOISE):
                return index
        return None

    def shown(self, index: int, mark: str = "") -> str:
        """A line for people; of a long one, what is around `mark`."""
        line = self.lines[index].strip()
        start = 0
        if len(line) > _LONGEST and mark in line[_BEFORE_MARK:]:
            start = max(0, line.index(mark) - _BEFORE_MARK)
        cut = line[start : start + _LONGEST]
        return ("…" if start else "") + cut + ("…" if start + _LONGEST < len(line) else "")
