"""How long an agent may continue without its supervisor.

The agent sends heartbeats, and the supervisor acknowledges them. The lease is counted from when the
last acknowledged heartbeat was *sent*; the supervisor counts the same time from when it *received*
that heartbeat, which is later. So the agent's tasks have ended before the supervisor considers
them lost, wherever the link hangs, and whatever the clocks of the two hosts show.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Optional

from distrun.agent.linux import syscalls
from distrun.agent.protocol import Heartbeat, heartbeat_interval

_RESERVE = 5.0
"""Seconds of a lease, a quarter of it at most, that are reserved for the exit of killed processes
and for delays. A process gives up its locks and ports only once its memory has been freed, which
was measured to take 0.2 s for each GB."""

_SHORTEST_TIMER = 0.001
"""Seconds. A timer that is set to 0 never expires; see timerfd_settime(2)."""


def clock() -> float:
    """Seconds that continue while the machine sleeps, as the lease must."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A lease that begins now.

    Args:
        seconds: its length; None: it never expires.
        grace: seconds needed at its end to end the tasks.
        timer: that of the guard, which enforces the lease if the agent cannot.
    """

    def __init__(
        self,
        seconds: Optional[float],
        grace: float,
        now: Callable[[], float] = clock,
        timer: Optional[int] = None,
    ) -> None:
        self._now = now
        self.interval = heartbeat_interval(seconds)
        self._renewed = now()
        self._next_heartbeat = self._renewed + self.interval
        self._number = 0
        self._sent: Dict[int, float] = {}
        self._usable: Optional[float] = None
        self._reserve = 0.0
        self._seconds, self._timer = seconds, timer
        self.grace = grace
        """Seconds between SIGTERM and SIGKILL when it has expired."""
        if seconds is not None:
            self.grace = min(grace, seconds / 4)
            self._reserve = min(_RESERVE, seconds / 4)
            self._usable = seconds - self.grace - self._reserve
        self.acknowledge(0)

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the tasks must be ended; None: never."""
        return None if self._usable is None else self._renewed + self._usable - self._now()

    @property
    def until_heartbeat(self) -> float:
        """Seconds until :meth:`heartbeat` is due."""
        return self._next_heartbeat - self._now()

    def heartbeat(self) -> Heartbeat:
        self._number += 1
        self._sent[self._number] = self._now()
        self._next_heartbeat = self._now() + self.interval
        return Heartbeat(self._number)

    def acknowledge(self, number: int) -> None:
        """Renew the lease: the supervisor has received that heartbeat."""
        self._renewed = max(self._renewed, self._sent.get(number, self._renewed))
        self._sent = {each: sent for each, sent in self._sent.items() if each > number}
        if self._timer is not None and self._seconds is not None:
            left = self._renewed + self._seconds - self._now()
            # The agent has half of the reserve for killing, the guard the other half.
            half = self._reserve / 2
            syscalls.set_timer(self._timer, max(left - half, _SHORTEST_TIMER))

    def on_link_lost(self) -> None:
        """Forget the heartbeats that were sent over the lost link; send the next one at once."""
        self._sent.clear()
        self._next_heartbeat = self._now()
