"""Finding lines from a log's end, without reading what is before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.logs.lines import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distrun.logs.tasklog import TaskLog
    from distrun.logs.view import Painter

_CHUNK = 1 << 16


def line_ends(logs: Sequence[TaskLog]) -> list[int]:
    """For each log the offset behind its last finished line: where following is to begin."""
    return [line_start(log, log.extent().size) for log in logs]


def line_start(log: TaskLog, offset: int) -> int:
    """Where the line begins that the byte at `offset` belongs to (at most 1 MiB before)."""
    for start, block in _backward(log, 0, offset):
        return start + block.rfind(b"\n") + 1
    return 0


def last_lines(log: TaskLog, painter: Painter, count: int, *, start: int, end: int) -> int:
    """Where the last `count` lines begin that `painter` selects between `start` and `end`."""
    if count == 0:
        return end
    for offset, block in _backward(log, start, end):
        selected = line_count(painter.select(block))
        if selected >= count:
            return offset + _last_selected(block, painter, count)
        count -= selected
    return start


def line_count(block: bytes) -> int:
    return block.count(b"\n") + bool(block and not block.endswith(b"\n"))


def _last_selected(block: bytes, painter: Painter, count: int) -> int:
    end = len(block)
    while count:
        start = block.rfind(b"\n", 0, end - 1) + 1
        count -= bool(painter.select(block[start:end]))
        end = start
    return end


def _backward(log: TaskLog, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines and their offsets, from the last to the first.

    The very last line may be unfinished. A line longer than 1 MiB comes in pieces.
    """
    begun = b""  # the end of a line whose beginning has not been read
    while end > start:
        size = min(_CHUNK, end - start)
        end -= size
        chunk = log.read(end, size)
        whole = chunk.find(b"\n") + 1 if end > start else 0
        block = chunk[whole:] + begun
        if whole or end == start or len(block) > LONGEST_LINE:
            if block:
                yield end + whole, block
            begun = chunk[:whole]
        else:
            begun = block
