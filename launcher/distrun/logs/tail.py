"""Finds lines from the end of a log without reading what is before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distrun.logs.line_buffer import LONGEST_LINE
from distrun.logs.task_log import TaskLog
from distrun.logs.view import Formatter, View

_CHUNK = 1 << 16


def line_ends(logs: Sequence[TaskLog]) -> list[int]:
    """For each log the offset after its last finished line, where following should start."""
    return [line_start(log, log.extent().size) for log in logs]


def shown_end(log: TaskLog, view: View, most: int, *, begin: int = 0) -> list[str]:
    """The last lines of a log as a view shows them, without prefixes: of at most so many bytes.

    `begin`: what is before this offset is left out. Of one long line, the end is shown.
    """
    size = log.extent().size
    start, block = log.read_kept(max(begin if begin <= size else 0, size - most), size)
    if start > begin and b"\n" in block[:-1]:
        block = block[block.find(b"\n") + 1 :]
    shown = Formatter(view, log.task).select(block)
    return shown.decode("utf-8", "replace").rstrip("\n").split("\n") if shown else []


def line_start(log: TaskLog, offset: int) -> int:
    """The start of the line that contains the byte at `offset` (at most 1 MiB before it)."""
    for start, block in _backward(log, 0, offset):
        return start + block.rfind(b"\n") + 1
    return 0


def last_lines(log: TaskLog, formatter: Formatter, count: int, *, start: int, end: int) -> int:
    """The start of the last `count` lines that `formatter` selects between `start` and `end`."""
    if count == 0:
        return end
    for offset, found in _backward(log, start, end):
        block = found
        if offset + len(block) < end and not block.endswith(b"\n") and b"\r" in block:
            # Its line has been counted: of a long bar, only the last state is shown.
            block = block[: block.rfind(b"\n") + 1]
        selected = line_count(formatter.select(block))
        if selected >= count:
            return offset + _last_selected(block, formatter, count)
        count -= selected
    return start


def line_count(block: bytes) -> int:
    return block.count(b"\n") + bool(block and not block.endswith(b"\n"))


def _last_selected(block: bytes, formatter: Formatter, count: int) -> int:
    end = len(block)
    while count > 0:
        start = block.rfind(b"\n", 0, end - 1) + 1
        count -= bool(formatter.select(block[start:end]))
        end = start
    return end


def _backward(log: TaskLog, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines and their offsets, from the last to the first.

    The last line may be unfinished. A line longer than 1 MiB comes in pieces. A hole ends a line.
    """
    rest = b""  # the end of a line whose beginning has not been read
    while end > start:
        size = min(_CHUNK, end - start)
        end -= size
        chunk = log.read(end, size)
        whole = chunk.find(b"\n") + 1 if end > start else 0
        block = chunk[whole:] + rest
        if whole or end == start or len(block) > LONGEST_LINE:
            if block:
                yield end + whole, block
            rest = chunk[:whole]
        else:
            rest = block
        if end > start and not chunk.strip(b"\0"):
            kept = rest.lstrip(b"\0")
            yield end + len(rest) - len(kept), kept
            rest, end = b"", max(start, log.hole_start(end))
