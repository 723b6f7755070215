"""The commands that are connected to a supervisor, such as `launch`, `logs -f` and `kill`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from distrun.agent import protocol
from distrun.agent.linux import peers, syscalls
from distrun.agent.linux.regular import closing
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code, Notice, Request
from distrun.agent.protocol.channel import Channel, ProtocolError
from distrun.codec import from_json
from distrun.errors import HostError

_RETRY_SECONDS = 1.0
"""Until connections are accepted again after that failed, mostly for too many open files."""

Client = Channel[protocol.Request, protocol.Notice]


class Clients:
    """Accepts connections of commands, receives their requests and sends them notices."""

    def __init__(
        self,
        loop: Loop,
        server: socket.socket,
        on_message: Callable[[Client, Request], None],
        on_end: Callable[[Client], None],
    ) -> None:
        self._loop = loop
        self._server = server
        self._on_message = on_message
        self._on_end = on_end
        self._clients: list[Client] = []
        self.watching: set[Client] = set()
        """The commands that are sent every event."""
        self._delayed: dict[Client, dict[tuple[type, str], Notice]] = {}
        """For each command that reads too slowly, the last progress of each task."""
        loop.before_wait.append(self._watch_writing)
        self._listen()

    def _listen(self) -> None:
        self._loop.watch(self._server, self._accept)

    def add(self, client: Client) -> None:
        self._clients.append(client)
        self._loop.watch(client.reader, lambda: self._on_readable(client))

    def _accept(self) -> None:
        try:
            with closing(os.dup(self._server.fileno())):  # a channel needs two descriptors
                connection, _ = self._server.accept()
        except OSError:
            # The connection waits. The loop would report it again and again.
            self._loop.unwatch(self._server)
            self._loop.call_at(self._loop.now() + _RETRY_SECONDS, self._listen)
            return
        if not peers.of_connection(connection).is_same_user:
            connection.close()
            return
        descriptor = connection.detach()
        self.add(Channel(descriptor, descriptor, protocol.Request))

    def _on_readable(self, client: Client) -> None:
        try:
            messages = [_checked(message) for _, message in client.receive()]
        except ProtocolError as error:
            # A command of another version must not take the end of the channel for the job's.
            client.send(protocol.Refused(error.cause, HostError.exit_code))
            messages = []
            client.ended = True
        for message in messages:
            self._on_message(client, message)
        if client.ended and client in self._clients:
            self._clients.remove(client)
            self.watching.discard(client)
            self._delayed.pop(client, None)
            self._loop.unwatch(client.reader)
            self._loop.unwatch(client.writer)
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

    def _watch_writing(self) -> None:
        for client in self._clients:
            if not client.pending:
                self._send_delayed(client)
            client.watch_writing(self._loop)

    def flush(self, seconds: float) -> None:
        """Send the commands all their messages, but wait so many seconds at most."""
        deadline = self._loop.now() + seconds
        while pending := [client for client in self._clients if client.pending]:
            if (left := deadline - self._loop.now()) <= 0:
                break
            syscalls.wait_until_ready([], [client.writer for client in pending], left)
            for client in pending:
                client.flush()


def _checked(message: Request) -> Request:
    """Return a request; raises ProtocolError if a field has a value that it cannot have."""
    try:
        return from_json(type(message), message)
    except ValueError as error:
        raise ProtocolError(Cause(Code.MESSAGE_INVALID, text=str(error))) from error
