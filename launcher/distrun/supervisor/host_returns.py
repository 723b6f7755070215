"""When to connect anew to hosts that were lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.agent.loop import Handle, Loop

_FIRST_SECONDS = 15.0
"""A host that shuts down, or whose memory is short, still answers at first. What starts there then
dies, too, and uses up restarts."""
_LONGEST_SECONDS = 60.0


class HostReturns:
    """Tries lost hosts again: after 15 s, then less and less often.

    A host that is lost again and again is not tried more often for it.

    Args:
        reconnect: called with each host to connect to now.
    """

    def __init__(self, loop: Loop, reconnect: Callable[[str], None]) -> None:
        self._loop, self._reconnect = loop, reconnect
        self._calls: dict[str, Handle] = {}
        self._waits: dict[str, float] = {}

    def record_loss(self, host: str) -> None:
        """Try a host again later: it is lost, or could not be reached."""
        wait = min(self._waits.get(host, _FIRST_SECONDS / 2) * 2, _LONGEST_SECONDS)
        self._waits[host] = wait
        if host not in self._calls:
            self._calls[host] = self._loop.call_at(None, partial(self._reconnect, host))
        self._calls[host].move(self._loop.now() + wait)
