"""What a scheduler says of a job, in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distrun.words.formats import format_duration, format_time

if TYPE_CHECKING:
    from distrun.job.scheduler import QueueEntry


def queue_text(entry: QueueEntry, expected: float | None = None) -> str:
    """Return where a job is: `pending in Slurm as job 12 (Resources), starts at about 14:05:00`.

    Args:
        entry: what its scheduler says of it.
        expected: when it said before that it would start (Unix time), if it did.
    """
    words = f"{entry.state.lower()} in {entry.scheduler} as job {entry.id}"
    if not entry.is_pending:
        return words
    why = f" ({entry.reason})" if entry.reason else ""
    if entry.scheduler != "Slurm":
        return words + why
    starts_at = entry.starts_at or expected
    if starts_at is None:
        return f"{words}{why}; Slurm has no estimate of its start yet"
    left = starts_at - time.time()
    wait = f", in {format_duration(left)}" if left > 0 else ""
    return f"{words}{why}; it starts at about {format_time(starts_at)}{wait}"
