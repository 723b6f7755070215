"""The commands that are connected to a supervisor, such as `launch`, `logs -f` and `kill`."""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.agent.linux import peers
from distrun.agent.protocol.channel import Channel, ProtocolError
from distrun.errors import HostError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from distrun.agent.protocol import Notice, Request

_RETRY_SECONDS = 1.0
"""Until connections are accepted again, after that failed: mostly, too many files are open."""

Client = Channel[protocol.Request, protocol.Notice]
"""The channel to a connected command."""


class Clients:
    """Accepts connections of commands, receives their requests and sends them notices.

    Args:
        server: the job's control socket.
        on_message: called with each request of a command.
        on_end: called when a command has closed its connection.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        server: socket.socket,
        on_message: Callable[[Client, Request], None],
        on_end: Callable[[Client], None],
    ) -> None:
        self._selector = selector
        self._server = server
        self._on_message = on_message
        self._on_end = on_end
        self._clients: list[Client] = []
        self.watching: set[Client] = set()
        """The commands that are sent every event."""
        self._delayed: dict[Client, dict[tuple[type, str], Notice]] = {}
        """For each command that reads too slowly, the last progress of each task."""
        self._accept_due: float | None = None
        """When to accept connections again; None: they are accepted now."""
        selector.register(server, selectors.EVENT_READ, self._accept)

    def add(self, client: Client) -> None:
        self._clients.append(client)
        self._selector.register(
            client.reader, selectors.EVENT_READ, lambda: self._on_readable(client)
        )

    @property
    def next_due(self) -> float | None:
        """When :meth:`run_due` must be called."""
        return self._accept_due

    def run_due(self) -> None:
        """Accept connections again, once it is time to."""
        if self._accept_due is not None and self._accept_due <= time.monotonic():
            self._accept_due = None
            self._selector.register(self._server, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            # The connection waits. The selector would report it at once, without end.
            self._selector.unregister(self._server)
            self._accept_due = time.monotonic() + _RETRY_SECONDS
            return
        if not peers.of_connection(connection).is_same_user:
            connection.close()
            return
        descriptor = connection.detach()
        self.add(Channel(descriptor, descriptor, protocol.Request))

    def _on_readable(self, client: Client) -> None:
        try:
            messages = client.receive()
        except ProtocolError as error:
            # A command of another version must not take the end of the channel for the job's.
            client.send(protocol.Refused(error.cause, HostError.exit_code))
            messages = []
            client.ended = True
        for _, message in messages:
            self._on_message(client, message)
        if client.ended and client in self._clients:
            self._clients.remove(client)
            self.watching.discard(client)
            self._delayed.pop(client, None)
            for descriptor in (client.reader, client.writer):
                if descriptor in self._selector.get_map():
                    self._selector.unregister(descriptor)
            client.close()
            self._on_end(client)

    def broadcast(self, message: Notice) -> None:
        """Queue a message for every command that watches; this never blocks.

        Progress replaces what a command has not been sent yet: one that reads nothing, for instance
        because it is suspended, must not use up the memory.
        """
        for client in self.watching:
            if isinstance(message, protocol.JobEvent):
                self._send_delayed(client)
            elif client.pending or client in self._delayed:
                key = type(message), getattr(message, "task", "")
                self._delayed.setdefault(client, {})[key] = message
                continue
            client.send(message)

    def _send_delayed(self, client: Client) -> None:
        for message in self._delayed.pop(client, {}).values():
            client.send(message)

    def watch_writing(self) -> None:
        for client in self._clients:
            if not client.pending:
                self._send_delayed(client)
            client.watch_writing(self._selector)

    @property
    def are_pending(self) -> bool:
        """Whether a command has not read all its messages yet."""
        return any(client.pending for client in self._clients)
