"""Merges the existing output of several tasks into one stream, in the order of writing."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from distrun.frozen import Frozen, field
from distrun.logs.line_buffer import LineBuffer
from distrun.logs.tail import last_lines, line_count, line_start
from distrun.logs.view import Formatter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distrun.logs.task_log import TaskLog
    from distrun.logs.view import View

_CHUNK = 1 << 16
_TICKS = 10  # a second: the resolution of the index


class _Span(Frozen, order=True):
    """The bytes of a log up to `end`, which were written before `written` (Unix time)."""

    tick: int
    order: int  # the log's place: within a tick, the first task's bytes come first
    end: int
    written: float = field(compare=False)


def merged(
    logs: Sequence[TaskLog],
    view: View,
    *,
    since: float | None = None,
    until: float | None = None,
    last: int | None = None,
    ends: Sequence[int] | None = None,
) -> Iterator[bytes]:
    """Blocks of the view's lines, merged by the logs' indexes with a resolution of 100 ms.

    It starts at once and holds at most one block of each log, however long the logs are.

    Args:
        logs: the logs to show.
        view: how to show them.
        since: leave out what was written before this Unix time.
        until: leave out what was written at or after this Unix time.
        last: show only the last so many lines. The logs are read from their ends.
        ends: the offset at which to stop in each log. Default: its current end, which also ends
            its last line. With :func:`line_ends`, a Follower that starts at the same offsets
            shows the rest; no line is lost or shown twice.
    """
    if ends is None:
        ends = [log.extent().size for log in logs]
    if until is not None:
        ends = [min(end, _line_since(log, until)) for log, end in zip(logs, ends, strict=True)]
    sections = [
        _Section(log, view, order, ends[order], since, last) for order, log in enumerate(logs)
    ]
    excess = 0
    if last is not None and len(sections) > 1:
        excess = max(0, sum(line_count(block) for _, _, block in _in_order(sections)) - last)
    verbatim = view.verbatim and len(sections) == 1
    for section, written, selected in _in_order(sections, verbatim=verbatim):
        block = selected
        if excess:
            block, excess = _without_first(block, excess)
        if block:
            yield section.formatter.prefixed(block, written)


class _Section:
    """The part of one log to show. `since` and `last` are those of :func:`merged`."""

    def __init__(
        self, log: TaskLog, view: View, order: int, end: int, since: float | None, last: int | None
    ) -> None:
        self.formatter = Formatter(view, log.task)
        self._log = log
        self._order = order
        self._start = 0
        self._end = end
        if since is not None:
            self._start = min(end, _line_since(log, since))
        if last is not None:
            self._start = last_lines(log, self.formatter, last, start=self._start, end=end)

    def spans(self) -> Iterator[_Span]:
        for written, end in self._log.spans(self._start, self._end):
            yield _Span(int(written * _TICKS), self._order, end, written)

    def reader(self, *, verbatim: bool) -> _Reader:
        return _Reader(self._log, self._start, self._end, LineBuffer(verbatim=verbatim))


def _line_since(log: TaskLog, when: float) -> int:
    """The start of the first line that was written at or after `when` (Unix time).

    A line is as old as its end; an unfinished line is as old as its last byte.
    """
    first, size = log.written_since(when), log.extent().size
    return size if first >= size else line_start(log, first)


class _Reader:
    """Reads one section from its start to its end, in chunks, each byte once."""

    def __init__(self, log: TaskLog, start: int, end: int, lines: LineBuffer) -> None:
        self._log = log
        self._at = start
        self._end = end
        self._lines = lines
        self._ahead = b""  # bytes from _at on that were read already

    def up_to(self, offset: int) -> Iterator[bytes]:
        """Blocks of the lines that end before `offset`; at the end also the unfinished line."""
        while self._at < offset:
            if not self._ahead:
                self._ahead = self._log.read(self._at, min(_CHUNK, self._end - self._at))
            if not self._ahead:  # the log was truncated
                break
            wanted = offset - self._at
            chunk, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
            self._at += len(chunk)
            yield self._lines.feed(chunk)
        if offset == self._end:
            yield self._lines.flush()


def _in_order(
    sections: Sequence[_Section], *, verbatim: bool = False
) -> Iterator[tuple[_Section, float, bytes]]:
    readers = [section.reader(verbatim=verbatim) for section in sections]
    for span in heapq.merge(*(section.spans() for section in sections)):
        section = sections[span.order]
        for block in readers[span.order].up_to(span.end):
            if selected := section.formatter.select(block):
                yield section, span.written, selected


def _without_first(block: bytes, lines: int) -> tuple[bytes, int]:
    """`block` without its first `lines` lines, and how many lines are still to be removed."""
    count = line_count(block)
    if count <= lines:
        return b"", lines - count
    at = 0
    for _ in range(lines):
        at = block.find(b"\n", at) + 1
    return block[at:], 0
