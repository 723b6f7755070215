"""Numbers and names that both ends of a link must agree on."""

from __future__ import annotations

from typing import Optional

PROTOCOL = 1
KILL_GRACE = 1.0
"""Seconds from SIGTERM to SIGKILL where nobody set a grace: after a failure in a group, after
success, after the death of launch, supervisor or agent, and for what an ended task has left."""
UNSENT_REPORTS = "unsent-reports.jsonl"
"""A file beside the logs: the reports of an agent whose supervisor was gone."""
LOG_OVERHEAD = 256
"""Bytes that a part of a log counts for, besides its own: its frame takes less."""

_HEARTBEATS_PER_LEASE = 8
_LONGEST_HEARTBEAT_INTERVAL = 10.0


def heartbeat_interval(lease: Optional[float]) -> float:
    """Seconds between two heartbeats, for a lease in seconds, or None: without end."""
    if lease is None:
        return _LONGEST_HEARTBEAT_INTERVAL
    return min(_LONGEST_HEARTBEAT_INTERVAL, lease / _HEARTBEATS_PER_LEASE)
