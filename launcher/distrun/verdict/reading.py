"""The end of a task's log, read for what it died of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_TRACEBACK = "Traceback (most recent call last):"
_FATAL = "Fatal Python error: "
_CURRENT = "Current thread 0x"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
"""Python prints these without a traceback where they are in the program itself."""
_GROUP = re.compile(r"^ +[|+] ?(?!-)")
"""What stands before each line of an ExceptionGroup."""
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)(?:,)? in (.+)')
_LOGGED = re.compile(r"[IWEF]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] ")
"""How a line of TensorFlow's own log begins: such may stand in the midst of a traceback."""
_NOISE = ("To enable the following instructions:", "WARNING: All log messages before absl::")
"""What TensorFlow prints in each start without a mark of its log."""
_UNALARMING = re.compile(r"[IW]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] ")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3")
_MARKER = b"--- attempt "
_LAST_LINES = 20
_STALE_LINES = 200
"""A traceback so far from the end was not the end."""
_LONGEST = 400
_BEFORE_MARK = 100


@dataclass(frozen=True)
class Tail:
    """The last bytes of a log, and whether they are all of it."""

    raw: bytes
    is_whole: bool = True


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
    """One attempt's last lines, and the last error in them."""

    def __init__(self, tail: Tail) -> None:
        raw, skipped = tail.raw, 0
        marker = raw.rfind(b"\n" + _MARKER)
        if marker >= 0 or raw.startswith(_MARKER):
            behind = raw.find(b"\n", marker + 1) + 1
            skipped = raw.count(b"\n", 0, behind)
            raw = raw[behind:]
        text = raw.decode("utf-8", "replace").rstrip("\n")
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        self.lines = [_GROUP.sub("", line, count=1) for line in lines]
        self._first = skipped + 1 if tail.is_whole else None

    def place(self, index: int) -> str:
        """Where a line stands, for people."""
        if self._first is not None:
            return f"line {self._first + index}"
        before = len(self.lines) - 1 - index
        return "the last line" if before == 0 else f"{before} lines before the end"

    @cached_property
    def text(self) -> str:
        return "\n".join(self.lines)

    @cached_property
    def traceback(self) -> int | None:
        """The index of the last traceback's first line, where that was the end."""
        for index in range(len(self.lines) - 1, max(-1, len(self.lines) - _STALE_LINES), -1):
            if _TRACEBACK in self.lines[index]:
                return index
        return None

    @cached_property
    def exception(self) -> int | None:
        """The index of the line that names the exception."""
        if self.traceback is None:
            return self._syntax_error
        for index in range(self.traceback + 1, len(self.lines)):
            line = self.lines[index]
            if line and not line[0].isspace() and not _LOGGED.match(line):
                return index
        return None

    @property
    def _syntax_error(self) -> int | None:
        found = self.find_last(_SYNTAX)
        return None if found is None or found[1].start() > 0 else found[0]

    @cached_property
    def crash(self) -> int | None:
        """The index of Python's own line about a signal that it died of."""
        for index in range(len(self.lines) - 1, -1, -1):
            if self.lines[index].startswith(_FATAL):
                return index
        return None

    @cached_property
    def error(self) -> range:
        """The lines of the last error: tracebacks that belong together, or the last lines."""
        if self.exception is None:
            return range(max(0, len(self.lines) - _LAST_LINES), len(self.lines))
        first = self.exception if self.traceback is None else self.traceback
        for index in range(first - 1, -1, -1):
            if any(each in self.lines[index] for each in _CHAINED):
                first = index
            elif _TRACEBACK in self.lines[index]:
                if first > index and any(
                    each in line for line in self.lines[index : first + 1] for each in _CHAINED
                ):
                    first = index
                else:
                    break
        return range(first, self._end_of_message)

    @property
    def _end_of_message(self) -> int:
        """Behind it stands what TensorFlow logs while Python takes everything down."""
        after = range((self.exception or 0) + 1, len(self.lines))
        return next((i for i in after if _LOGGED.match(self.lines[i])), len(self.lines))

    @cached_property
    def error_text(self) -> str:
        lines = [self.lines[index] for index in self.error]
        return "\n".join(line for line in lines if not _UNALARMING.match(line))

    @cached_property
    def message(self) -> str:
        """The exception and what it says, from its own line on; empty where there is none."""
        return "" if self.exception is None else "\n".join(self.lines[self.exception :])

    @cached_property
    def frame(self) -> tuple[int, Frame] | None:
        """The deepest frame in the user's own files, with the index of its line."""
        if self.crash is not None and self.traceback is None:
            own = self._own_frames(range(self.crash, len(self.lines)))
            return own[0] if own else None  # the most recent call comes first there
        if self.traceback is None:
            return None
        own = self._own_frames(range(self.traceback, len(self.lines)))
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

    def find(self, text: str, where: range) -> int | None:
        """The first of these lines in which a text stands that is no mere note of TensorFlow's."""
        wanted = text.strip("\n")
        for index in where:
            if wanted in self.lines[index] and not _UNALARMING.match(self.lines[index]):
                return index
        return None

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
            if line.strip() and not _LOGGED.match(line) and not line.startswith(_NOISE):
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
