"""The commands that are connected to a supervisor: its launch command, and others later."""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.agent.protocol.channel import Channel, ProtocolError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from distrun.agent.protocol import Notice, Request


class Client:
    """A connected command."""

    def __init__(self, channel: Channel[protocol.Request, protocol.Notice]) -> None:
        self.channel = channel
        self.is_watching = False
        """Whether it is sent every event."""


class Clients:
    """All connected commands: accepts them, passes on their requests, sends them notices."""

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
        selector.register(server, selectors.EVENT_READ, self._accept)

    def add(self, channel: Channel[protocol.Request, protocol.Notice]) -> Client:
        client = Client(channel)
        self._clients.append(client)
        self._selector.register(
            channel.reader, selectors.EVENT_READ, lambda: self._on_readable(client)
        )
        return client

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        descriptor = connection.detach()
        self.add(Channel(descriptor, descriptor, protocol.Request))

    def _on_readable(self, client: Client) -> None:
        try:
            messages = client.channel.receive()
        except ProtocolError:
            messages = []
            client.channel.ended = True
        for _, message in messages:
            self._on_message(client, message)
        if client.channel.ended and client in self._clients:
            self._drop(client)
            self._on_end(client)

    def _drop(self, client: Client) -> None:
        self._clients.remove(client)
        self._selector.unregister(client.channel.reader)
        if client.channel.writer in self._selector.get_map():
            self._selector.unregister(client.channel.writer)
        client.channel.close()

    def broadcast(self, message: Notice) -> None:
        """Send a message to all that watch. One that does not read delays nobody."""
        for client in self._clients:
            if client.is_watching:
                client.channel.send(message)

    def watch_writing(self) -> None:
        for client in self._clients:
            client.channel.watch_writing(self._selector)

    @property
    def channels_to_flush(self) -> list[Channel[protocol.Request, protocol.Notice]]:
        return [client.channel for client in self._clients if client.channel.pending]
