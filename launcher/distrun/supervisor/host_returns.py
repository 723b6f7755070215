"""When to connect anew to hosts that were lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_SECONDS = 15.0
"""A host that shuts down, or whose memory is short, still answers at first. What starts there then
dies, too, and uses up restarts."""
_LONGEST_SECONDS = 60.0


class HostReturns:
    """The lost hosts, and when to try each of them again: after 15 s, then less and less often.

    A host that is lost again and again is not tried more often for it.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._dues: dict[str, float] = {}
        self._waits: dict[str, float] = {}

    def record_loss(self, host: str) -> None:
        """Try a host again later: it is lost, or could not be reached."""
        wait = min(self._waits.get(host, _FIRST_SECONDS / 2) * 2, _LONGEST_SECONDS)
        self._waits[host] = wait
        self._dues[host] = self._clock() + wait

    @property
    def next_due(self) -> float | None:
        """When :meth:`pop_due` returns a host."""
        return min(self._dues.values(), default=None)

    def pop_due(self) -> list[str]:
        """Return the hosts to connect to now."""
        now = self._clock()
        due = [host for host, at in self._dues.items() if at <= now]
        for host in due:
            del self._dues[host]
        return due
