"""Listening on held ports for a moment, so that the other hosts can try to reach them.

Who dials hears the greeting and hangs up. Connections are let go without TIME_WAIT: nothing is
left on a port that a task's server is to have.
"""

from __future__ import annotations

import selectors
import socket
import struct
from typing import Dict, List

from distrun.agent.tasks.ports import PortHolder

_RESET = struct.pack("ii", 1, 0)


class Reception:
    """Listening sockets beside the holds, and who has come."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._listeners: List[socket.socket] = []
        self._guests: Dict[int, socket.socket] = {}
        self._greeting = b""

    def open(self, ports: PortHolder, greeting: str) -> Dict[str, str]:
        """Listen on all ports held; returns why not, for those where it cannot."""
        self._greeting = greeting.encode("ascii")
        failed = {}
        for port in ports.held:
            try:
                listener = ports.listen(port)
            except OSError as error:
                failed[str(port)] = error.strerror or str(error)
                continue
            self._listeners.append(listener)
            self._selector.register(
                listener, selectors.EVENT_READ, lambda listener=listener: self._welcome(listener)
            )
        return failed

    def close(self) -> None:
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        self._listeners.clear()
        for guest in list(self._guests.values()):
            self._part(guest)

    def _welcome(self, listener: socket.socket) -> None:
        while True:
            try:
                guest, _ = listener.accept()
            except OSError:  # nobody is left, or who was has gone
                return
            guest.setblocking(False)
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            try:
                guest.send(self._greeting)
            except OSError:
                guest.close()
                continue
            self._guests[guest.fileno()] = guest
            self._selector.register(
                guest, selectors.EVENT_READ, lambda guest=guest: self._part(guest)
            )

    def _part(self, guest: socket.socket) -> None:
        """Nobody says anything here: what can be read is the end."""
        self._selector.unregister(guest)
        del self._guests[guest.fileno()]
        guest.close()
