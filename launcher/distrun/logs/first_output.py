"""When an attempt of a task printed first, by its log and the log's index."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrun.logs.task_log import TaskLog

_AFTER = 0.5
"""Seconds. The end of an attempt's log may be in the index after the attempt has ended."""


def first_output(log: TaskLog, begin: int, started: float, ended: float) -> float | None:
    """Return when an attempt printed its first byte (Unix time); None: it has not.

    It is exact to the index's 100 ms.

    Args:
        log: the task's.
        begin: where the attempt's output begins in it, in bytes.
        started: when its program was executed (Unix time, by the clock of its host).
        ended: when it ended, or now.
    """
    written = next((at for at, _ in log.spans(begin, log.extent().size)), None)
    return None if written is None or written > ended + _AFTER else max(written, started)
