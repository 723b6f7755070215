"""The tracebacks in a log: which exception each ends with, and what it has to do with others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrun.verdict.loglines import ASIDE, LOGGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_START = "Traceback (most recent call last):"
_GROUP_START = "Exception Group Traceback (most recent call last):"
_HANDLING = "During handling of the above exception, another exception occurred:"
_CAUSE = "The above exception was the direct cause of the following exception:"
_GROUP = re.compile(r"^ +[|+] ?(?!-)")
"""What stands before each line of an ExceptionGroup."""
_IN_GROUP = re.compile(r"^\s*[|+]")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
"""Python prints these without a traceback where they are in the program itself."""
_TYPE = re.compile(r"[A-Za-z_][\w.<>]*(?=:|$)")


@dataclass(frozen=True, kw_only=True)
class Traceback:
    """Indices of lines: its first, its exception's own, and the first behind the message.

    `aside` is the line above one that is not what the main thread died of; `cause` is the exception
    from which this one was raised.
    """

    first: int
    exception: int
    stop: int
    aside: str = ""
    cause: Traceback | None = None

    @property
    def is_ignored(self) -> bool:
        """Whether Python only mentions it and goes on, mostly on its way out."""
        return self.aside.startswith(("Exception ignored ", "Error in "))

    def chain(self) -> Iterator[Traceback]:
        """It and its direct causes."""
        link: Traceback | None = self
        while link is not None:
            yield link
            link = link.cause


def without_group(line: str) -> str:
    return _GROUP.sub("", line, count=1)


def type_of(line: str) -> str:
    """The type that an exception's own line names, with its module."""
    match = _TYPE.match(line)
    return match[0] if match is not None else ""


def tracebacks(raw: Sequence[str], lines: Sequence[str]) -> list[Traceback]:
    """All of a log, in order. `lines` are those of `raw` without the frame of a group."""
    found: list[Traceback] = []
    for first, stop in _spans(raw, lines):
        exception = _exception(lines, first, stop)
        if exception is None:
            continue
        above = _above(lines, first)
        linked = found[-1] if found and above in (_HANDLING, _CAUSE) else None
        aside = above if ASIDE.match(above) else ""
        found.append(
            Traceback(
                first=first,
                exception=exception,
                stop=_end_of_message(lines, exception, stop),
                aside=linked.aside if linked else aside,
                cause=linked if above == _CAUSE else None,
            )
        )
    return sorted([*found, *_of_syntax(lines, found)], key=lambda each: each.first)


def _spans(raw: Sequence[str], lines: Sequence[str]) -> list[tuple[int, int]]:
    """From each traceback's first line to the next one's; a group's parts are no others."""
    starts: list[int] = []
    inside = False
    for index, line in enumerate(lines):
        inside = inside and _IN_GROUP.match(raw[index]) is not None
        if _START in line and not inside:
            starts.append(index)
        inside = inside or _GROUP_START in line
    return list(zip(starts, [*starts, len(lines)][1:], strict=True))


def _exception(lines: Sequence[str], first: int, stop: int) -> int | None:
    """The first line that is not further in than the traceback's own first one."""
    before = lines[first].partition(_START)[0]
    prefix = before if before.isspace() else ""
    for index in range(first + 1, stop):
        line = lines[index].removeprefix(prefix)
        if line and not line[0].isspace() and not LOGGED.match(line):
            return index
    return None


def _above(lines: Sequence[str], first: int) -> str:
    for index in range(first - 1, -1, -1):
        line = lines[index].strip()
        if line and not LOGGED.match(line):
            return line
    return ""


def _end_of_message(lines: Sequence[str], exception: int, stop: int) -> int:
    """Behind it stands what TensorFlow logs while Python takes everything down, or another."""
    for index in range(exception + 1, stop):
        line = lines[index]
        if LOGGED.match(line) or ASIDE.match(line) or line.strip() in (_HANDLING, _CAUSE):
            return index
    return stop


def _of_syntax(lines: Sequence[str], found: list[Traceback]) -> Iterator[Traceback]:
    shown = {index for each in found for index in range(each.first, each.exception + 1)}
    for index, line in enumerate(lines):
        if _SYNTAX.match(line) and index not in shown:
            stop = _end_of_message(lines, index, len(lines))
            yield Traceback(first=index, exception=index, stop=stop)
