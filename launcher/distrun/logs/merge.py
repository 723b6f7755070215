"""Merges the existing output of several tasks into one stream, in the order of writing."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence

from distrun.logs.line_buffer import LineBuffer
from distrun.logs.tail import last_lines, line_count, line_start
from distrun.logs.task_log import TaskLog
from distrun.logs.view import Formatter, View

_CHUNK = 1 << 16
_TICKS = 10  # a second: the resolution of the index
_PAUSE = 0.1  # seconds; what was found so far is shown then


def merged(
    logs: Sequence[TaskLog],
    view: View,
    *,
    since: float | None = None,
    until: float | None = None,
    last: int | None = None,
    ends: Sequence[int] | None = None,
    on_dropped: Callable[[str, int], None] | None = None,
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
    """
    if ends is None:
        ends = [log.extent().size for log in logs]
    if until is not None:
        ends = [min(end, _line_since(log, until)) for log, end in zip(logs, ends, strict=True)]
    verbatim = view.verbatim and len(logs) == 1
    sections = [
        _Section(log, view, order, ends[order], since, last, verbatim=verbatim)
        for order, log in enumerate(logs)
    ]
    for section in sections:
        section.report_dropped(on_dropped)
    excess = 0
    if last is not None and len(sections) > 1:
        uncounted = ((each, Formatter(view, each.task)) for each in sections)
        count = sum(line_count(lines) for each, how in uncounted for *_, lines in each.parts(how))
        excess = max(0, count - last)
    found: list[bytes] = []
    size, shown_at = 0, 0.0
    # A clock that is set back changes no order: of what each log has next, the earliest follows.
    for _, order, written, lines in heapq.merge(*(each.parts(each.formatter) for each in sections)):
        shown = lines
        if excess:
            shown, excess = _without_first(lines, excess)
            if not shown:
                continue
        found.append(sections[order].formatter.prefixed(shown, written))
        size += len(shown)
        if size >= _CHUNK or time.monotonic() - shown_at > _PAUSE:
            yield b"".join(found)
            found.clear()
            size, shown_at = 0, time.monotonic()
    if found:
        yield b"".join(found)


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
        *,
        verbatim: bool,
    ) -> None:
        self.task = log.task
        self.formatter = Formatter(view, log.task, counts=True)
        self._raw, self._verbatim = view.raw, verbatim
        self._log = log
        self._order = order
        self._dropped = log.start()
        self._start = min(end, self._dropped)
        self._end = end
        if since is not None:
            self._start = max(self._start, min(end, _line_since(log, since)))
        if last is not None:
            uncounted = Formatter(view, log.task)
            self._start = last_lines(log, uncounted, last, start=self._start, end=end)

    def report_dropped(self, on_dropped: Callable[[str, int], None] | None) -> None:
        """Call the function if lines to show may have been dropped."""
        if on_dropped and self._dropped and self._start <= self._dropped:
            on_dropped(self.task, self._dropped)

    def parts(self, formatter: Formatter) -> Iterator[tuple[int, int, float, bytes]]:
        """The lines to show, in parts: the tick and the Unix time at which they were finished.

        Within a tick, the first log's lines come first.
        """
        for written, lines in self._timed(formatter):
            if lines:
                yield int(written * _TICKS), self._order, written, lines

    def _timed(self, formatter: Formatter) -> Iterator[tuple[float, bytes]]:
        """Read the log once, in chunks. Yields lines and when they were finished."""
        lines = LineBuffer(verbatim=self._verbatim, raw=self._raw)
        at = self._start
        spans = self._log.spans(at, self._end)
        span = (0.0, at)
        while at < self._end:
            start, chunk = self._log.read_kept(at, min(_CHUNK, self._end - at))
            if start > at:
                lines.discard()
                chunk = chunk[: max(0, self._end - start)]
                at = start
            if not chunk:  # the log was truncated
                break
            times, cuts = [], []
            upto = at + len(chunk)
            while span[1] < upto:
                if span[1] > at:
                    times.append(span[0])
                    cuts.append(span[1] - at)
                span = next(spans, (span[0], self._end))
            times.append(span[0])
            cuts.append(len(chunk))
            at = upto
            if lines.has_bars(chunk):
                first = 0
                for written, cut in zip(times, cuts, strict=True):
                    yield written, formatter.select(lines.feed(chunk[first:cut]))
                    first = cut
                continue
            held, block = len(lines), lines.feed(chunk)
            ends = [block.rfind(b"\n", 0, held + cut) + 1 for cut in cuts]
            ends[-1] = len(block)
            for number, shown in formatter.parts(block, ends):
                yield times[number], shown
        yield span[0], formatter.select(lines.flush())


def _line_since(log: TaskLog, when: float) -> int:
    """The start of the first line that was written at or after `when` (Unix time).

    A line is as old as its end; an unfinished line is as old as its last byte.
    """
    first, size = log.written_since(when), log.extent().size
    return size if first >= size else line_start(log, first)


def _without_first(block: bytes, lines: int) -> tuple[bytes, int]:
    """`block` without its first `lines` lines, and how many lines are still to be removed."""
    count = line_count(block)
    if count <= lines:
        return b"", lines - count
    at = 0
    for _ in range(lines):
        at = block.find(b"\n", at) + 1
    return block[at:], 0
