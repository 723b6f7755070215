"""When an attempt of a task printed first, by its log and the log's index."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrun.logs.task_log import TaskLog

_BEFORE = 0.5
"""Seconds. An attempt's log may be written while its start is being reported."""
_SEARCHED_BYTES = 256 * 1024


def first_output(log: TaskLog, attempt: int, started: float, ended: float) -> float | None:
    """Return when an attempt printed its first byte (Unix time); None: it has not, or not known.

    It is exact to the index's 100 ms.

    Args:
        log: the task's.
        attempt: from 0. The output of one that follows another begins after distrun's own line.
        started: when its program was executed (Unix time, by the clock of its host).
        ended: when it ended, or now.
    """
    start = log.written_since(started - _BEFORE)
    marker = b"--- attempt %d, " % attempt if attempt else b""
    text = b""
    for written, end in log.spans(start, log.extent().size):
        if written > ended + _BEFORE or len(text) > _SEARCHED_BYTES:
            return None
        if not marker:
            return max(written, started)
        text += log.read(start, min(end - start, _SEARCHED_BYTES))
        start = end
        line, _, after = (b"\n" + text).partition(b"\n" + marker)[2].partition(b"\n")
        if line and after:
            return max(written, started)
    return None
