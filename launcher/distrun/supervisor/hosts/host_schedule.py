"""Which hosts have changed: so a turn of the loop takes no time for all the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrun.supervisor.hosts.host import Host


class HostSchedule:
    """The hosts of a pool that have changed, and those that wait for a connection.

    Whatever may change a host has to be noted, before or after. It is active then, until the next
    turn of the loop has taken it.
    """

    def __init__(self) -> None:
        self._noted: dict[Host, None] = {}
        self._connecting: set[Host] = set()
        self._unconnected: dict[Host, None] = {}

    def note(self, host: Host) -> None:
        """Note that a host changes now."""
        self._noted[host] = None

    def remove(self, host: Host) -> None:
        """Forget a host."""
        self._noted.pop(host, None)
        self._unconnected.pop(host, None)
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

    def _update(self) -> None:
        for host in self._noted:
            if host.is_connecting:
                self._connecting.add(host)
            else:
                self._connecting.discard(host)
            if host.is_unconnected:
                self._unconnected[host] = None
            else:
                self._unconnected.pop(host, None)
