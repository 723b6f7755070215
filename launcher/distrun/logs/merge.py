"""Merges the existing output of several tasks into one stream, in the order of writing."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from distrun.frozen import Frozen, field
from distrun.logs.line_buffer import LineBuffer
from distrun.logs.tail import failure_start, last_lines, line_count, line_start
from distrun.logs.view import Formatter

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

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
    on_dropped: Callable[[str, int], None] | None = None,
    failed: Container[str] = (),
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
        on_dropped: called with a task, and how many bytes at the start of its log were dropped,
            before they could be shown.
        failed: tasks whose last lines are all shown, even TensorFlow's start-up lines.
    """
    if ends is None:
        ends = [log.extent().size for log in logs]
    if until is not None:
        ends = [min(end, _line_since(log, until)) for log, end in zip(logs, ends, strict=True)]
    wholes = [
        failure_start(log, end) if log.task in failed else end
        for log, end in zip(logs, ends, strict=True)
    ]
    sections = [
        _Section(log, view, order, ends[order], since, last, wholes[order])
        for order, log in enumerate(logs)
    ]
    for section in sections:
        section.report_dropped(on_dropped)
    excess = 0
    if last is not None and len(sections) > 1:
        excess = max(0, sum(line_count(block) for _, _, block in _in_order(sections)) - last)
    verbatim = view.verbatim and len(sections) == 1
    if view.startup is not None:
        view.startup.reset()
    for section, written, selected in _in_order(sections, verbatim=verbatim):
        block = selected
        if excess:
            block, excess = _without_first(block, excess)
            if excess and view.startup is not None:
                view.startup.count = 0
        if block:
            yield section.formatter.prefixed(block, written)


class _Section:
    """The part of one log to show. `since` and `last` are those of :func:`merged`."""

    def __init__(
        self,
        log: TaskLog,
        view: View,
        order: int,
        end: int,
        since: float | None,
        last: int | None,
        whole_from: int,
    ) -> None:
        self.formatter = Formatter(view, log.task)
        self._raw = view.raw
        self._log = log
        self._order = order
        self._dropped = log.start()
        self._start = min(end, self._dropped)
        self._end = end
        self.whole_from = whole_from
        """From this offset, start-up lines are shown, too."""
        if since is not None:
            self._start = max(self._start, min(end, _line_since(log, since)))
        if last is not None:
            self._start = last_lines(
                log, self.formatter, last, start=self._start, end=end, whole_from=whole_from
            )

    def report_dropped(self, on_dropped: Callable[[str, int], None] | None) -> None:
        """Call the function if lines to show may have been dropped."""
        if on_dropped and self._dropped and self._start <= self._dropped:
            on_dropped(self._log.task, self._dropped)

    def spans(self) -> Iterator[_Span]:
        start = self._start
        for written, end in self._log.spans(start, self._end):
            cuts = [self.whole_from] if start < self.whole_from < end else []
            for cut in (*cuts, end):
                yield _Span(int(written * _TICKS), self._order, cut, written)
            start = end

    def reader(self, *, verbatim: bool) -> _Reader:
        return _Reader(
            self._log, self._start, self._end, LineBuffer(verbatim=verbatim, raw=self._raw)
        )


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
                size = min(_CHUNK, self._end - self._at)
                start, self._ahead = self._log.read_kept(self._at, size)
                if start > self._at:
                    self._lines.discard()
                    self._ahead = self._ahead[: max(0, self._end - start)]
                    self._at = start
                    continue
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
            if selected := section.formatter.show(block, whole=span.end > section.whole_from):
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
