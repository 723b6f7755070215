"""Listens on the held ports during the preflight, so that the other hosts can try to reach them.

Each caller receives the greeting and closes the connection. The listener resets connections, so
that none stays in TIME_WAIT on a port that a task's server needs. Anybody can connect: connections
that do not end are closed for newer ones, so that the agent has descriptors left. A caller that
knows the password receives zeros until it leaves: it measures how fast.
"""

from __future__ import annotations

import socket
import struct
from functools import partial
from typing import Dict, List

from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code
from distrun.agent.tasks.ports import PortHolder

_RESET = struct.pack("ii", 1, 0)
_MOST_CONNECTIONS = 256
_MOST_PER_TURN = 64
"""Connections that are accepted in one turn, so that callers cannot starve what else there is."""
_ZEROS = bytes(1 << 20)


class Listener:
    """Listening sockets on the held ports, and the connections they have accepted."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._listening: List[socket.socket] = []
        self._connections: Dict[int, socket.socket] = {}
        self._greeting = self._password = b""

    def open(self, ports: PortHolder, greeting: str, password: str) -> List[Cause]:
        """Listen on all held ports. Returns an error for each port on which that fails."""
        self._greeting, self._password = greeting.encode("ascii"), password.encode("ascii")
        errors = []
        for port in ports.held:
            try:
                listening = ports.listen(port)
            except OSError as error:
                errors.append(Cause(Code.PORT_NOT_LISTENING, port=port, errno=error.errno or 0))
                continue
            self._listening.append(listening)
            self._loop.watch(listening, partial(self._accept, listening))
        return errors

    def close(self) -> None:
        for listening in self._listening:
            self._loop.unwatch(listening)
            listening.close()
        self._listening.clear()
        for connection in list(self._connections.values()):
            self._close(connection)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_MOST_PER_TURN):
            try:
                connection, _ = listening.accept()
            except OSError:  # no more callers, or this one has already gone
                return
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            try:
                connection.send(self._greeting)
            except OSError:
                connection.close()
                continue
            if len(self._connections) == _MOST_CONNECTIONS:
                self._close(next(iter(self._connections.values())))
            self._connections[connection.fileno()] = connection
            self._loop.watch(connection, partial(self._read, connection))

    def _read(self, connection: socket.socket) -> None:
        """Close a connection unless it sends the password: what is readable has mostly ended."""
        try:
            received = connection.recv(len(self._password) + 1)
        except OSError:
            received = b""
        if received and received == self._password:
            self._loop.unwatch(connection)
            self._loop.watch_writing(connection, partial(self._send_zeros, connection))
        else:
            self._close(connection)

    def _send_zeros(self, connection: socket.socket) -> None:
        try:
            connection.send(_ZEROS)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        self._loop.unwatch(connection)
        del self._connections[connection.fileno()]
        connection.close()
