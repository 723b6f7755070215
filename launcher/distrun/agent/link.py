"""The agent's link to its supervisor: messages, heartbeats and the lease, loss, reattachment."""

from __future__ import annotations

import math
import select
import socket
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple

from distrun.agent import protocol
from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause, Code, Heartbeat, heartbeat_interval
from distrun.agent.protocol.channel import Channel, Outbox, ProtocolError

if TYPE_CHECKING:
    from typing import Protocol

    from distrun.agent.loop import Handle, Loop
    from distrun.agent.reattach import ReattachListener

    class LinkUser(Protocol):
        """The agent, as its link needs it."""

        @property
        def has_tasks(self) -> bool: ...

        @property
        def is_abandoned(self) -> bool: ...

        def execute(self, order: protocol.Order) -> None:
            """Execute an order of the supervisor."""

        def end_tasks(self, grace: float = protocol.KILL_GRACE) -> None:
            """End all tasks, then the agent; the supervisor may still receive reports and logs."""

        def abandon(self, grace: float = protocol.KILL_GRACE) -> None:
            """The same, if no supervisor will come back."""

        def on_link_lost(self) -> None:
            """Send no logs or files until the supervisor asks for the rest."""


_READER_SECONDS = 10.0
_DECISION_SECONDS = 0.2
"""After the end of standard input, standard output may end as well within this time."""
_RESERVE = 5.0
"""Seconds of a lease, a quarter of it at most, that are reserved for the exit of killed processes
and for delays. A process gives up its locks and ports only once its memory has been freed, which
was measured to take 0.2 s for each GB."""

_SHORTEST_TIMER = 0.001
"""Seconds. A timer that is set to 0 never expires; see timerfd_settime(2)."""


def clock() -> float:
    """Seconds that continue while the machine sleeps, as the lease must."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """How long an agent may continue without its supervisor. It begins now.

    The agent sends heartbeats, and the supervisor acknowledges them. The lease is counted from when
    the last acknowledged heartbeat was *sent*; the supervisor counts the same time from when it
    *received* that heartbeat, which is later. So the agent's tasks have ended before the supervisor
    considers them lost, wherever the link hangs, and whatever the clocks of the two hosts show.

    Args:
        seconds: its length; None: it never expires.
        grace: seconds needed at its end to end the tasks.
        timer: that of the guard, which enforces the lease if the agent cannot.
    """

    def __init__(
        self,
        seconds: Optional[float],
        grace: float,
        now: Callable[[], float] = clock,
        timer: Optional[int] = None,
    ) -> None:
        self._now = now
        self.interval = heartbeat_interval(seconds)
        self._renewed = now()
        self._next_heartbeat = self._renewed + self.interval
        self._number = 0
        self._sent: Dict[int, float] = {}
        self._usable: Optional[float] = None
        self._reserve = 0.0
        self._seconds, self._timer = seconds, timer
        self.grace = grace
        """Seconds between SIGTERM and SIGKILL when it has expired."""
        if seconds is not None:
            self.grace = min(grace, seconds / 4)
            self._reserve = min(_RESERVE, seconds / 4)
            self._usable = seconds - self.grace - self._reserve
        self.acknowledge(0)

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the tasks must be ended; None: never."""
        return None if self._usable is None else self._renewed + self._usable - self._now()

    @property
    def until_heartbeat(self) -> float:
        """Seconds until :meth:`heartbeat` is due."""
        return self._next_heartbeat - self._now()

    def heartbeat(self) -> Heartbeat:
        self._number += 1
        self._sent[self._number] = self._now()
        self._next_heartbeat = self._now() + self.interval
        return Heartbeat(self._number)

    def acknowledge(self, number: int) -> None:
        """Renew the lease: the supervisor has received that heartbeat."""
        self._renewed = max(self._renewed, self._sent.get(number, self._renewed))
        self._sent = {each: sent for each, sent in self._sent.items() if each > number}
        if self._timer is not None and self._seconds is not None:
            left = self._renewed + self._seconds - self._now()
            # The agent has half of the reserve for killing, the guard the other half.
            half = self._reserve / 2
            syscalls.set_timer(self._timer, max(left - half, _SHORTEST_TIMER))

    def on_link_lost(self) -> None:
        """Forget the heartbeats that were sent over the lost link; send the next one at once."""
        self._sent.clear()
        self._next_heartbeat = self._now()


class Link:
    """A link, which may be lost and come back if there is a `listener`.

    Without a listener, the tasks end when the link has ended and the lease of :class:`.Configure`
    has expired. With a listener, heartbeats renew the lease, and the end of the link has two
    meanings. If the launching side is gone, ssh closes this side's standard input and leaves
    standard output open. If the link is lost, sshd closes both. With `end_is_loss`, the end of
    standard input is always a loss: of kubectl's links, standard output stays open.
    """

    def __init__(
        self,
        channel: Channel[protocol.Order, protocol.Report],
        listener: Optional[ReattachListener] = None,
        lease_timer: Optional[int] = None,
        *,
        end_is_loss: bool = False,
    ) -> None:
        self.channel = channel
        channel.joins = True
        self._listener = listener
        self._lease_timer = lease_timer
        self._end_is_loss = end_is_loss
        self._outbox: Outbox[protocol.Report] = Outbox()
        self._seconds: Optional[float] = 0.0
        self._lease: Optional[Lease] = None
        self._executed = 0
        self._decision: Optional[Handle] = None
        """Decides what the end of standard input means."""
        self._client: Optional[socket.socket] = None
        """The client that passed the present link; it waits until this is closed."""

    def open(self, loop: Loop, user: LinkUser) -> None:
        self._loop = loop
        self._user = user
        self._next_check = loop.call_at(None, self._check_lease)
        loop.watch(self.channel.reader, self._on_readable)
        if self._listener is not None:
            loop.watch(self._listener, self._on_client)

    def configure(self, lease: Optional[float]) -> None:
        """Set the lease in seconds; None: without end."""
        self._seconds = lease
        if self._listener is not None:
            self._lease = Lease(lease, protocol.KILL_GRACE, timer=self._lease_timer)
            self._check_lease()

    @property
    def token(self) -> str:
        """The token with which a supervisor reattaches; empty if it cannot."""
        return "" if self._listener is None else self._listener.token

    @property
    def is_up(self) -> bool:
        return not self.channel.broken and self._decision is None

    # Sending -------------------------------------------------------------------------------

    def report(self, report: protocol.Report) -> None:
        """Send a numbered report, which is kept until the supervisor has recorded it."""
        self.channel.send(report, self._outbox.add(report))

    def report_fault(self, cause: Cause) -> None:
        self.report(protocol.Fault(cause, time.time()))

    def send(self, report: protocol.Report) -> None:
        """Send a report that has no number and may be lost with the link."""
        self.channel.send(report)

    def send_heartbeat_if_due(self) -> None:
        lease = self._lease
        if lease is not None and lease.until_heartbeat <= 0 and self.is_up:
            self.channel.send(lease.heartbeat())

    def close(self) -> List[protocol.Report]:
        """Send what is left, and close the link; returns the reports that nobody acknowledged."""
        self.channel.drain(_READER_SECONDS)
        if self._client is not None:
            self._client.close()
        return [report for _, report in self._outbox.after(0)] if self.channel.ended else []

    # Time ----------------------------------------------------------------------------------

    def _check_lease(self) -> None:
        """Send the heartbeat that is due, or end everything once the lease has expired.

        Acknowledged heartbeats only move its end further away: it is looked at with the next one.
        """
        lease = self._lease
        if lease is None:
            return
        if lease.remaining is None or lease.remaining > 0:
            self.send_heartbeat_if_due()
            seconds = lease.until_heartbeat if self.is_up else lease.interval
            left = math.inf if lease.remaining is None else lease.remaining
            self._next_check.move(self._loop.now() + max(0.0, min(seconds, left)))
        elif not self._user.is_abandoned:
            # The launching side may only be slow: it learns why its tasks ended.
            self.report_fault(Cause(Code.LEASE_EXPIRED, seconds=self._seconds or 0.0))
            self._user.abandon(lease.grace)

    # Receiving -----------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            orders = self.channel.receive()
        except ProtocolError as error:
            self._loop.unwatch(self.channel.reader)
            self.report_fault(error.cause)
            if self._listener is None:
                self._user.abandon()
            else:
                self._user.end_tasks()
            return
        self._execute_all(orders)
        if self.channel.ended:
            self._loop.unwatch(self.channel.reader)
            self._on_end()

    def _execute_all(self, orders: List[Tuple[int, protocol.Order]]) -> None:
        last = 0
        for number, order in orders:
            # An order may arrive twice: before a link was lost, and after it.
            if number and number <= self._executed:
                continue
            if number:
                self._executed = last = number
            self._execute(order)
        if last:
            self.channel.send(protocol.Ack(last))

    def _execute(self, order: protocol.Order) -> None:
        if isinstance(order, protocol.Ack):
            self._outbox.acknowledge(order.last)
        elif isinstance(order, protocol.Heartbeat):
            if self._lease is not None:
                self._lease.acknowledge(order.number)
        elif isinstance(order, protocol.Reattach):
            # This also arrives on a link that continues, after noise has damaged a message.
            self._user.on_link_lost()
            self.channel.send(protocol.Reattached(self._executed, order.turn))
            for seq, report in self._outbox.after(order.after):
                self.channel.send(report, seq)
        else:
            self._user.execute(order)

    # Its end, and reattachment -------------------------------------------------------------

    def _on_end(self) -> None:
        if self._listener is not None:
            self._decision = self._loop.call_at(self._loop.now() + _DECISION_SECONDS, self._decide)
        elif self._seconds is None:
            return
        elif self._seconds > 0 and self._user.has_tasks:
            self._loop.call_at(self._loop.now() + self._seconds, self._user.abandon)
        else:
            self._user.abandon()

    def _decide(self) -> None:
        """Find out whether the link was lost or the launching side has closed it."""
        self._decision = None
        is_lost = self._end_is_loss or self.channel.broken or _is_broken(self.channel.writer)
        if is_lost and self._lease is not None:
            self._detach()
        else:
            # A supervisor receives this only if sshd's end of the link on this host was killed.
            self.report_fault(Cause(Code.LINK_CLOSED))
            self._user.abandon()

    def _detach(self) -> None:
        """Drop the present link; the lease continues."""
        channel = self.channel
        if self._decision is not None:
            self._decision.cancel()
            self._decision = None
        if not channel.is_closed:  # else others may have its descriptors by now
            self._loop.unwatch(channel.reader)
            self._loop.unwatch(channel.writer)
            channel.close()
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._lease is not None:
            self._lease.on_link_lost()
        self._user.on_link_lost()

    def _on_client(self) -> None:
        client = None if self._listener is None else self._listener.accept()
        if client is not None:
            self._loop.watch(client, lambda: self._on_descriptors(client))

    def _on_descriptors(self, client: socket.socket) -> None:
        from distrun.agent.reattach import receive_descriptors

        self._loop.unwatch(client)
        descriptors = receive_descriptors(client)
        if descriptors is None or self._listener is None:
            client.close()
            return
        self._detach()
        self._client = client
        self.channel = self._listener.open_channel(*descriptors)
        self.channel.joins = True
        self._loop.watch(self.channel.reader, self._on_readable)
        self._check_lease()


def _is_broken(descriptor: int) -> bool:
    """Whether the reading end has been closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(0))
