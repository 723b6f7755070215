"""Which hosts have something to do: so a turn of the loop takes no time for all the others."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrun.supervisor.hosts.host import Host


class HostSchedule:
    """The deadlines of a pool's hosts, and those that wait for a connection.

    Whatever may change a host has to be noted, before or after. It is active then, until the next
    turn of the loop has taken it.
    """

    def __init__(self) -> None:
        self._noted: dict[Host, None] = {}
        self._order = count()
        self._places: dict[Host, int] = {}
        """A number for each host, because hosts themselves have no order."""
        self._dues: dict[Host, float | None] = {}
        self._heap: list[tuple[float, int, Host]] = []
        """The deadlines, the next one first, with some that have changed since."""
        self._connecting: set[Host] = set()
        self._unconnected: dict[Host, None] = {}

    def note(self, host: Host) -> None:
        """Note that a host changes now."""
        if host not in self._places:
            self._places[host] = next(self._order)
        self._noted[host] = None

    def remove(self, host: Host) -> None:
        """Forget a host."""
        for each in (self._noted, self._places, self._dues, self._unconnected):
            each.pop(host, None)
        self._connecting.discard(host)

    @property
    def active(self) -> list[Host]:
        """The hosts that have changed since the last turn."""
        return list(self._noted)

    def take_active(self) -> list[Host]:
        """Return the same; they are not active any more."""
        self._update()
        found = self.active
        self._noted.clear()
        return found

    @property
    def connecting(self) -> int:
        """How many hosts are being connected."""
        self._update()
        return len(self._connecting)

    @property
    def unconnected(self) -> list[Host]:
        """The hosts that may have to be connected."""
        self._update()
        return list(self._unconnected)

    @property
    def next_due(self) -> float | None:
        """The next deadline of a host."""
        self._update()
        while self._heap and self._dues.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[Host]:
        """Return the hosts whose deadlines have passed; they are active then."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            due, _, host = heapq.heappop(self._heap)
            if self._dues.get(host) == due:
                self._dues[host] = None  # it is added again, if it is still the same
                self.note(host)
                found.append(host)
        return found

    def _update(self) -> None:
        for host in self._noted:
            due = host.next_due
            if due != self._dues.get(host):
                self._dues[host] = due
                if due is not None:
                    heapq.heappush(self._heap, (due, self._places[host], host))
            if host.is_connecting:
                self._connecting.add(host)
            else:
                self._connecting.discard(host)
            if host.is_unconnected:
                self._unconnected[host] = None
            else:
                self._unconnected.pop(host, None)
