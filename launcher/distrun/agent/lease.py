"""How long an agent may go on without its supervisor.

The agent sends a beat now and then, which the supervisor echoes. The lease is counted from when
the last echoed beat was *sent*; the supervisor counts the same time from when it *got* that beat,
which is later. So wherever the link hangs, and whatever the clocks of the two hosts say, the
agent's tasks have ended before the supervisor takes them for lost.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Optional

from distrun.agent.protocol import Heartbeat, heartbeat_interval

_RESERVE = 0.5


def clock() -> float:
    """Seconds that go on while the machine sleeps: so does the lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A lease of so many seconds, None for ever; it begins now.

    Args:
        grace: seconds that are needed at its end to end the tasks.
    """

    def __init__(
        self, seconds: Optional[float], grace: float, now: Callable[[], float] = clock
    ) -> None:
        self._now = now
        self._interval = heartbeat_interval(seconds)
        self._granted = now()
        self._next_beat = self._granted + self._interval
        self._number = 0
        self._sent: Dict[int, float] = {}
        self._usable: Optional[float] = None
        self.grace = grace
        """Seconds between SIGTERM and SIGKILL when it has run out."""
        if seconds is not None:
            self.grace = min(grace, seconds / 4)
            self._usable = seconds - self.grace - min(_RESERVE, seconds / 4)

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the tasks are to be ended; None: never."""
        return None if self._usable is None else self._granted + self._usable - self._now()

    @property
    def until_beat(self) -> float:
        """Seconds until :meth:`beat` is due."""
        return self._next_beat - self._now()

    def beat(self) -> Heartbeat:
        """The next sign of life, to be sent at once."""
        self._number += 1
        self._sent[self._number] = self._now()
        self._next_beat = self._now() + self._interval
        return Heartbeat(self._number)

    def echoed(self, number: int) -> None:
        """The supervisor has got that beat, and with it all before."""
        self._granted = max(self._granted, self._sent.get(number, self._granted))
        self._sent = {each: sent for each, sent in self._sent.items() if each > number}

    def forget_sent(self) -> None:
        """The link they were sent over is no more; the next one may not last until a beat is due.

        In a silent cut, beats went into a dead link, and the time of the next moved along.
        """
        self._sent.clear()
        self._next_beat = self._now()
