"""A link to another host, as others see it: where it is, whom it tells, and its signs of life."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from distrun.agent.protocol import heartbeat_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.agent.protocol import Report
    from distrun.supervisor.hosts.diagnosis import Diagnosis
    from distrun.supervisor.hosts.host import RemoteHost

LONGEST_PAUSE = heartbeat_interval(None)
_SILENT_BEATS = 2.5


class LinkPhase(Enum):
    """Where a link is."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"
    REJOINING = "rejoining"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Whom a host tells what happens to it; each is given the host."""

    report: Callable[[RemoteHost, Report], None]
    """A message of the agent."""
    unreachable: Callable[[RemoteHost, Diagnosis], None]
    """The first connection failed; the host is GONE."""
    lost: Callable[[RemoteHost, str], None]
    restored: Callable[[RemoteHost], None]
    gone: Callable[[RemoteHost, str], None]
    """The agent is no more, and nothing of its tasks is left."""


class Pulse:
    """When an agent was last heard of, and what follows from that.

    Args:
        lease: seconds that it may go on without this side; None: for ever.
    """

    def __init__(self, lease: float | None) -> None:
        self._silence = heartbeat_interval(lease) * _SILENT_BEATS
        self._lease = lease
        self._heard: float | None = None

    def beat(self) -> None:
        """It lives: from now on the lease is counted."""
        self._heard = now()

    @property
    def silent_at(self) -> float | None:
        """From when on a link without another beat counts as lost."""
        return None if self._heard is None else self._heard + self._silence

    @property
    def ends_at(self) -> float | None:
        """From when on it has ended its tasks for sure; None: never, or it never lived."""
        if self._heard is None or self._lease is None:
            return None
        return self._heard + self._lease


def now() -> float:
    """Seconds of the clock that all deadlines of links are of."""
    return time.monotonic()
