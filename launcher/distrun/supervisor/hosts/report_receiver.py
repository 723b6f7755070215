"""Receives what a host's agent reports, each report once and checked, and its logs."""

from __future__ import annotations

import os
from collections.abc import Callable

from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, Report
from distrun.supervisor.hosts.host_channel import Damage
from distrun.supervisor.hosts.link import Link
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.orders import Orders
from distrun.supervisor.hosts.reach import Connection

_HANDLED_WHILE_REPLAYING = (protocol.Reattached, protocol.Heartbeat, protocol.AgentExiting)


class ReportReceiver:
    """The reports of one host, in order. `on_fault` gets how the agent broke the protocol, once."""

    def __init__(
        self,
        link: Link,
        mirror: LogMirror,
        orders: Orders,
        handle: Callable[[Connection, Report], None],
        on_fault: Callable[[Connection, Cause], None],
    ) -> None:
        self._link, self._mirror, self._orders = link, mirror, orders
        self._handle, self._on_fault = handle, on_fault
        self._last = 0
        """The number of the last report."""
        self._replay = 0
        """The number of the last request to repeat reports. An agent that does not read it cannot
        answer it: the numbers are random, and rise."""
        self.is_replaying = False
        """Whether reports are ignored until the agent has answered that."""
        self._held: list[tuple[int, Report]] = []
        """The messages after a fault about which a question is asked; no more are read then."""

    def request_replay(self, connection: Connection) -> None:
        """Have the agent repeat its reports after the last that arrived undamaged."""
        self._replay += 1 + int.from_bytes(os.urandom(4), "big")
        self.is_replaying = True
        connection.channel.send(protocol.Reattach(self._last, self._replay))

    def ends_replay(self, message: protocol.Reattached) -> bool:
        """Return whether this answers the last such request; the repeated reports follow."""
        was_replaying = self.is_replaying and message.turn == self._replay
        self.is_replaying = self.is_replaying and not was_replaying
        return was_replaying

    def receive_held(self, connection: Connection) -> None:
        held, self._held = self._held, []
        self.receive(connection, held)

    def receive(self, connection: Connection, messages: list[tuple[int, Report]]) -> None:
        link = self._link
        last = written = 0
        is_requested = False
        for index, (number, message) in enumerate(messages):
            # No message that arrived together with the damage answers the request.
            if isinstance(message, Damage) and not is_requested:
                self.request_replay(connection)
                is_requested = True
            if self.is_replaying and not isinstance(message, _HANDLED_WHILE_REPLAYING):
                continue
            if isinstance(message, protocol.LogData):
                written += self._write_log(connection, message)
            elif number == 0 or number > self._last:
                self._check_and_handle(connection, number, message)
            last = max(last, number)
            if connection is not link.connection or link.is_ignored:
                return
            if link.is_asking:
                self._held = messages[index + 1 :]
                break
        if last:
            connection.channel.acknowledge(last)
        if written:
            connection.channel.send(protocol.LogReceived(written))

    def _write_log(self, connection: Connection, part: protocol.LogData) -> int:
        """Write a part of a log. Returns how many bytes of the window it frees."""
        mirror = self._mirror
        if part.name not in mirror.sizes:
            cause = Cause(Code.REPORT_OF_FOREIGN_TASK, task=part.name, name=type(part).__name__)
            self._on_fault(connection, cause)
            return 0
        size = mirror.sizes[part.name]
        is_written = mirror.write(part)
        # A part of a limited log may be far ahead. What follows its announced end does not count.
        end = mirror.final_sizes.get(part.name)
        new = mirror.sizes[part.name] - size
        is_beyond = end is not None and mirror.sizes[part.name] > end
        self._orders.record_log(0 if is_beyond else min(new, len(part.data)))
        return len(part.data) + protocol.LOG_OVERHEAD if is_written else 0

    def _check_and_handle(self, connection: Connection, number: int, message: Report) -> None:
        violation = self.find_violation(message)
        if violation is not None:
            self._on_fault(connection, violation)
            return
        self._last = max(self._last, number)
        self._handle(connection, message)

    def find_violation(self, message: Report) -> Cause | None:
        """Return how a message breaks the protocol; None if it does not."""
        # An earlier turn is answered late if noise has damaged that answer's successor.
        if isinstance(message, protocol.Reattached) and not 1 <= message.turn <= self._replay:
            return Cause(Code.REPORT_UNASKED, name=type(message).__name__)
        return self._orders.check(message)
