"""One host of a job: its link, which may be lost and reconnected, until its agent is gone.

    WAITING <-> CONNECTING -> UP -> LOST <-> RECONNECTING -> UP        and from each to GONE

An agent that did not announce its exit is gone only if its host says so or its lease has expired:
then nothing of its tasks is left. If a reach cannot reattach, the agent ends with its link.
"""

from __future__ import annotations

import os
import random
import time
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from distrun.agent import protocol
from distrun.agent.linux import processes
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.channel import Outbox, ProtocolError
from distrun.job.events import LinkLost, LinkRestored
from distrun.job.folder import task_of_log
from distrun.supervisor.hosts.bootstrap import tasks_alive
from distrun.supervisor.hosts.deadlines import ENDS, OrderDeadlines
from distrun.supervisor.hosts.host_channel import Damage
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.reconnect import LOGIN_SECONDS, ReconnectPolicy
from distrun.supervisor.hosts.report_checker import ReportChecker, cut_causes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from distrun.agent.loop import Loop
    from distrun.agent.protocol import Order, Report
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.file_delivery import FileSender
    from distrun.supervisor.hosts.inquiry import OnAnswer, Question
    from distrun.supervisor.hosts.reach import Connection, Reach

_MAX_FIRST_ATTEMPTS = 4
_FIRST_RETRY_SECONDS = 0.5
_EXIT_SECONDS = 5.0
"""How long the connection's process may outlive the link, or an agent that has no tasks."""
_ANNOUNCED_EXIT_SECONDS = 2.0
"""How long it may take to exit after :class:`.AgentExiting`. A login profile's background processes
can keep ssh alive for longer."""
_LOG_SECONDS = 10.0
"""How long the rest of the logs is waited for when the job must end at once."""
_MISSED_HEARTBEATS = 2.5
"""How many heartbeats may be missing before the link counts as lost."""
_HANDLED_WHILE_REPLAYING = (protocol.Reattached, protocol.Heartbeat, protocol.AgentExiting)


class LinkState(Enum):
    """The states of a host's link."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"
    RECONNECTING = "reconnecting"
    GONE = "gone"


_TRANSITIONS = {
    LinkState.WAITING: {LinkState.CONNECTING, LinkState.GONE},
    LinkState.CONNECTING: {LinkState.WAITING, LinkState.UP, LinkState.GONE},
    LinkState.UP: {LinkState.LOST, LinkState.GONE},
    LinkState.LOST: {LinkState.RECONNECTING, LinkState.GONE},
    LinkState.RECONNECTING: {LinkState.UP, LinkState.LOST, LinkState.GONE},
    LinkState.GONE: set(),
}


_AFTER_HELLO = (LinkState.UP, LinkState.LOST, LinkState.RECONNECTING)


class HostObserver(Protocol):
    """Receives the events of a host."""

    def on_report(self, host: Host, report: Report) -> None:
        """The agent has sent a message."""

    def on_unreachable(self, host: Host, cause: Cause) -> None:
        """The first connection failed; the host is gone."""

    def on_event(self, event: LinkLost | LinkRestored) -> None:
        """The link was lost, and is being reconnected, or is up again."""

    def on_gone(self, host: Host, cause: Cause) -> None:
        """The agent has ended, and nothing of its tasks is left."""

    def on_activity(self, host: Host) -> None:
        """Something has come from the host, or its link accepts more."""

    def ask(self, question: Question, on_answer: OnAnswer) -> None:
        """Have a question asked in a process of its own: see :meth:`.Inquiries.ask`."""

    def forget(self, on_answer: OnAnswer) -> None:
        """The answer to a question is not needed any more."""


class Host:
    """A host by its name in the spec.

    Args:
        spec: the job's.
        logs: the job's folder for logs.
        variables: those whose values on the host are needed for the plan.
    """

    former: Mapping[str, int] = MappingProxyType({})
    """The last attempts of tasks that a lost agent of the job may have left on the host."""

    def __init__(  # noqa: PLR0915 - what its life depends on
        self,
        name: str,
        reach: Reach,
        *,
        loop: Loop,
        observer: HostObserver,
        job_id: str,
        spec: Spec,
        logs: Path,
        variables: tuple[str, ...],
    ) -> None:
        self.name = name
        self.reach = reach
        self.state = LinkState.WAITING
        self.mirror = LogMirror(logs, spec.log_max_size)
        self.preserved_folder = ""
        """The folder that the agent left on the host, if it left one."""
        self.token = self.folder = ""  # the agent's, as it has said
        self.agent_pid: int | None = None
        """The agent's process id on its own host."""
        self._job_id = job_id
        self._logs = logs
        self._variables = variables
        self._log_limit, lease = spec.log_max_size, spec.timeouts.link
        self._lease = lease if reach.can_reattach or reach.has_lease else 0.0
        self._loop = loop
        self._alarm = loop.call_at(None, self._on_alarm)
        self._observer = observer
        self._connection: Connection | None = None
        self._asked: OnAnswer | None = None
        """What follows from the question about this host that is being asked."""
        self._held: list[tuple[int, Report]] | None = None
        """The messages after a fault that such a question is about; no more are read then."""
        self._outbox: Outbox[Order] = Outbox()
        self._file_sender: FileSender | None = None
        self._last_report = 0
        self._has_tasks = False
        self._exit_due: float | None = None
        """When an agent that has announced its exit counts as gone."""
        self._is_unneeded = False
        """Whether it was shut down before it had any task."""
        self._shutdown: protocol.Shutdown | None = None
        """The last one that was ordered."""
        self._last_heartbeat: float | None = None
        """When the agent's lease was renewed last; None: never, or it ends with its link."""
        self._replay = 0
        """The number of the last request to repeat reports. An agent that does not read it cannot
        answer it: the numbers are random, and rise."""
        self._is_replaying = False
        """Whether reports are ignored until the agent has answered that."""
        self._due: float | None = None
        """When the present state ends, see :meth:`_on_state_expired`."""
        self._attempts = 0
        self._up_since = 0.0
        self._reconnect = ReconnectPolicy(reach.connect_timeout or 0.0, lease)
        self._loss: Cause | None = None
        """Why the link was lost, or why the last attempt to reconnect failed."""
        self._deadlines = OrderDeadlines(lease)
        self._heartbeat_to_acknowledge = 0
        """The number of the last heartbeat from an agent that has not reattached yet."""
        self._checker = ReportChecker()
        self._violation: Cause | None = None
        """How the agent broke the protocol; then everything that it sends is ignored."""
        self._abandon_due: float | None = None
        """When to stop waiting for the end of such an agent that has no lease."""
        self._death: Cause | None = None
        """How the agent ended, if it did not announce that."""

    def _enter(self, state: LinkState, seconds: float | None = None) -> None:
        """Change the state. It lasts for at most so many seconds; None: without limit."""
        if state not in _TRANSITIONS[self.state]:
            raise AssertionError(f"{self.name}: from {self.state.value} to {state.value}")
        self.state = state
        self._set_due(seconds)

    def _set_due(self, seconds: float | None) -> None:
        self._due = None if seconds is None else time.monotonic() + seconds

    # For the pool ---------------------------------------------------------------------------

    def connect(self) -> None:
        """Start the first connection. :meth:`send_agent` must follow, once all are started."""
        self._attempts += 1
        self._is_replaying = False
        timeout = self.reach.connect_timeout
        self._enter(LinkState.CONNECTING, None if timeout is None else timeout + LOGIN_SECONDS)
        try:
            self._set_connection(self.reach.connect(self._job_id))
        except OSError as error:
            self._mark_unreachable(self.reach.not_started(error))

    def send_agent(self) -> None:
        """Send the agent over a new connection, and its configuration."""
        connection = self._connection
        if connection is None:
            return
        bootstrap = self.reach.bootstrap(connection)
        connection.agent_size = len(bootstrap)
        if bootstrap:
            connection.channel.send_bytes(bootstrap)
        folder = "" if self.reach.has_own_logs else os.path.realpath(self._logs)
        variables = () if self.reach.inherits_environment else self._variables
        configuration = protocol.Configure(
            protocol.PROTOCOL,
            *(self._job_id, folder, self._lease, self.name, variables, self._log_limit),
            former=tuple(self.former.items()),
        )
        connection.channel.send(configuration)
        connection.channel.flush()

    def order(self, message: Order) -> None:
        """Send an order, once the link is up. The agent executes each order once."""
        if self.state is LinkState.GONE:
            return
        if isinstance(message, protocol.StartTask):
            self._has_tasks = True
            if self.reach.has_own_logs:
                self.mirror.add(message.log)
        elif isinstance(message, protocol.Shutdown):
            message = self._shutdown = protocol.Shutdown(
                preserve_logs=self.mirror.failure is not None
            )
        if self._has_deadline(message):
            self._deadlines.record_order(message)
        self._checker.record_order(message)
        number = self._outbox.add(message) if self.reach.can_reattach else 0
        if self.state in (LinkState.CONNECTING, LinkState.UP) and self._connection is not None:
            self._connection.channel.send(message, number)
            self._follow_logs(self._connection)
        if isinstance(message, protocol.Shutdown) and not self._has_tasks:
            self._is_unneeded = True
            if self._may_have_agent:
                self._set_due(_EXIT_SECONDS)
            else:
                self._mark_gone(Cause(Code.AGENT_NOT_NEEDED))

    def _has_deadline(self, order: Order) -> bool:
        """Whether an order must be executed in time.

        An agent below this process may be suspended with it, and ends with its link. Its tasks may
        have processes that do not die.
        """
        is_end = type(order).__name__ in ENDS
        return self.reach.can_reattach or (self.reach.is_below_supervisor and is_end)

    def limit_ends(self, grace: float) -> None:
        """Do not wait for processes that do not die: see :meth:`.OrderDeadlines.limit_ends`."""
        self._deadlines.limit_ends(grace, processes.DEATH_SECONDS)

    def set_logs_aside(self, tasks: Collection[str]) -> None:
        """Keep the logs of other tasks than these out of the copies, which other hosts continue."""
        for log in self.mirror.final_sizes:
            if task_of_log(log) not in tasks:
                self.mirror.set_aside(log, time.time())

    @property
    def _may_have_agent(self) -> bool:
        """Whether an agent may have been started, and can be told to end."""
        if self.state is LinkState.CONNECTING:
            return self._connection is not None and self._connection.has_read_agent
        return self.state is LinkState.UP

    def abandon(self) -> None:
        """Stop waiting for the agent's logs, and for an agent out of reach that has no lease."""
        self._deadlines.limit_shutdown(_LOG_SECONDS)
        if self._lease is None and self.state in (LinkState.LOST, LinkState.RECONNECTING):
            # If somebody kills it, the agent's guard ends all its tasks.
            self._mark_gone(Cause(Code.AGENT_ABANDONED, pid=self.agent_pid or 0))

    @property
    def pid(self) -> int | None:
        """The connection's process on this machine."""
        return None if self._connection is None else self._connection.process.pid

    @property
    def pids(self) -> set[int]:
        """The processes on this machine that serve it."""
        return set() if self.pid is None else {self.pid}

    @property
    def attempts(self) -> dict[str, int]:
        """The last attempt of each task that this agent, or a lost one, was ordered to start."""
        return {**self.former, **self._checker.attempts}

    @property
    def has_announced_exit(self) -> bool:
        """Whether the agent has announced its exit: it has nothing left to report."""
        return self._exit_due is not None

    @property
    def unanswered_order(self) -> str:
        """The name of the first order that the agent has not answered; empty if it has them all."""
        return self._deadlines.unanswered

    @property
    def is_connecting(self) -> bool:
        return self.state in (LinkState.CONNECTING, LinkState.RECONNECTING)

    @property
    def is_new(self) -> bool:
        """Whether it is still unknown if an agent can be started on the host."""
        return self.state in (LinkState.WAITING, LinkState.CONNECTING)

    @property
    def is_unconnected(self) -> bool:
        """Whether :attr:`should_connect` or :attr:`should_reconnect` may become true."""
        return self.state in (LinkState.WAITING, LinkState.LOST)

    @property
    def should_connect(self) -> bool:
        """Whether :meth:`connect` should be called as soon as there is a slot for it."""
        return self.state is LinkState.WAITING and (
            self._due is None or self._has_passed(self._due)
        )

    @property
    def should_reconnect(self) -> bool:
        """Whether :meth:`reconnect` should be called as soon as there is a slot for it."""
        return self.state is LinkState.LOST and self._has_passed(self._due)

    def set_alarm(self) -> None:
        """Wait for the next deadline. Call this in each turn in which something has changed."""
        self._alarm.move(self._find_deadline())

    def _find_deadline(self) -> float | None:
        if self.state is LinkState.GONE:
            return None
        if self.has_announced_exit:
            return self._exit_due
        # A host that waits for a slot is connected when another host frees one.
        deadlines = [] if self.should_connect or self.should_reconnect else [self._due]
        if self.state is LinkState.UP:
            deadlines.append(self._lost_at)
        if self.state in _AFTER_HELLO:
            deadlines += [self._lease_ends_at, self._deadlines.first]
        if self._connection is not None:
            deadlines.append(self._connection.channel.ack_due)
        return min((due for due in deadlines if due is not None), default=None)

    def _on_alarm(self) -> None:
        """Handle the deadlines that have passed, except that for :meth:`reconnect`."""
        if self.state is LinkState.GONE:
            return
        self._observer.on_activity(self)
        if self.has_announced_exit:
            if self._has_passed(self._exit_due):
                self._mark_gone(Cause(Code.AGENT_SHUT_DOWN))
        elif self._has_passed(self._lease_ends_at):
            self._mark_silent()
        elif self.state is LinkState.UP and self._has_passed(self._lost_at):
            self._handle_link_loss(Cause(Code.HEARTBEAT_MISSING))
        elif self._has_passed(self._due):
            self._on_state_expired()
        if self._connection is not None:
            self._connection.channel.send_due_ack()
        if self.state in _AFTER_HELLO and not self.has_announced_exit:
            self._check_deadlines()

    def _on_state_expired(self) -> None:
        if self.state is LinkState.CONNECTING:
            self._fail_to_connect(None)
        elif self.state is LinkState.RECONNECTING:
            self._retry_later(Cause(Code.SSH_NOT_ANSWERED))
        elif self.state is LinkState.UP and self.reach.is_below_supervisor:
            self._handle_link_loss(Cause(Code.AGENT_GONE))
        elif self.state is LinkState.UP:
            self._handle_link_loss(Cause(Code.SSH_NOT_ENDED))

    def reconnect(self) -> None:
        """Try to reconnect the lost link."""
        attempt = self._reconnect.next_attempt
        self._enter(LinkState.RECONNECTING, attempt.timeout)
        try:
            connection = self.reach.reconnect(self._job_id, self.token, self.attempts, attempt)
        except OSError as error:
            self._retry_later(self.reach.not_started(error))
            return
        self._set_connection(connection)
        if self._violation is None:
            self._request_replay(connection)
        else:
            self._dismiss(connection)  # the host says once its agent has ended

    def send_list(self, sender: FileSender, parts: list[Order]) -> None:
        """Send the list of the program's files; the sender sends those that the host lacks."""
        self._file_sender = sender
        for part in parts:
            self.order(part)

    def send_files(self) -> None:
        """Send as much of the files as the link takes now."""
        sender, connection = self._file_sender, self._connection
        if sender is None or connection is None or self.state is not LinkState.UP:
            return
        sender.send(connection.channel)
        if sender.failure is not None:
            from distrun.agent.protocol.file_messages import FilesRefused

            self._file_sender = None
            self._observer.on_report(self, FilesRefused(sender.failure, time.time()))

    def watch_writing(self) -> None:
        if self._connection is not None:
            self._connection.channel.watch_writing(
                self._loop, lambda: self._observer.on_activity(self)
            )

    def check_exit(self) -> None:
        """Handle the exit of the connection's process; call it when a child has ended."""
        connection = self._connection
        if connection is not None and connection.channel.ended and self._asked is None:
            status = connection.process.poll()
            if status is not None:
                self._observer.on_activity(self)
                self._on_exit(connection, status)

    def _record_heartbeat(self) -> None:
        if self._lease != 0:
            self._last_heartbeat = time.monotonic()

    @property
    def _lost_at(self) -> float | None:
        """When the link counts as lost unless a heartbeat comes first."""
        if self._last_heartbeat is None or not self.reach.can_reattach:
            return None
        return self._last_heartbeat + _MISSED_HEARTBEATS * protocol.heartbeat_interval(self._lease)

    @property
    def _lease_ends_at(self) -> float | None:
        """When the agent has certainly ended its tasks; None: never, or it was never up.

        An agent without a lease that broke the protocol is not waited for without end.
        """
        if self._last_heartbeat is None or self._lease is None:
            return self._abandon_due
        return self._last_heartbeat + self._lease

    def _check_deadlines(self) -> None:
        """Ignore an agent from now on if it did not execute an order in time."""
        expired = self._deadlines.pop_expired()
        if expired is None:
            return
        name, task = expired
        seconds = self._deadlines.seconds_for(name)
        if name not in ENDS:
            cause = Cause(Code.ORDER_NOT_ANSWERED, name=name, task=task, seconds=seconds)
        elif name == "Shutdown" and self.mirror.failure is None and not self.mirror.is_complete:
            # The rest of its logs stays on the host.
            self.mirror.failure = Cause(Code.LOGS_TOO_SLOW)
            self.order(protocol.Shutdown())
            return
        else:
            cause = Cause(Code.STOP_NOT_EXECUTED, seconds=seconds)
        self._on_violation(self._connection, cause)

    def end_at_once(self) -> Connection | None:
        """Have the agent end without its logs being received. Returns the link, if it is up.

        After a defect: nothing else of this object is used any more, and its state is not trusted.
        """
        if self._connection is not None:
            self._dismiss(self._connection)
        return self._connection

    def _has_passed(self, due: float | None) -> bool:
        return due is not None and due <= time.monotonic()

    # The connection ------------------------------------------------------------------------

    def _set_connection(self, connection: Connection) -> None:
        self._connection = connection
        self._watch(connection)
        if connection.stderr is not None:
            self._loop.watch(connection.stderr, lambda: self._on_stderr(connection))

    def _watch(self, connection: Connection) -> None:
        self._loop.watch(connection.channel.reader, lambda: self._on_readable(connection))

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        asked, self._asked, self._held = self._asked, None, None
        if asked is not None:
            self._observer.forget(asked)
        if self._file_sender is not None:
            self._file_sender.pause()
        if connection is None:
            return
        channel = connection.channel
        for descriptor in (channel.reader, channel.writer, connection.stderr):
            self._loop.unwatch(descriptor)
        connection.close()

    def _on_stderr(self, connection: Connection) -> None:
        self._observer.on_activity(self)
        if not connection.read_stderr():
            self._loop.unwatch(connection.stderr)
        if self.state is LinkState.RECONNECTING and self.reach.agent_is_gone(connection, None):
            self._mark_agent_gone()
        elif self.state is LinkState.CONNECTING and self.reach.forget_copy(connection):
            self._connect_again(0.0)

    def _on_readable(self, connection: Connection) -> None:
        self._observer.on_activity(self)
        if self._violation is not None:
            self._discard(connection)
            return
        try:
            messages = connection.channel.receive()
        except ProtocolError as error:
            self._on_violation(connection, error.cause)
            return
        if connection.channel.is_flooded:
            self._on_violation(connection, Cause(Code.ORDERS_NOT_READ))
            return
        self._receive(connection, messages)
        self._check_end(connection)

    def _check_end(self, connection: Connection) -> None:
        """Note that nothing more will come, unless something is held back."""
        is_read = self._held is None and connection is self._connection
        if is_read and connection.channel.ended:
            self._loop.unwatch(connection.channel.reader)
            if self.reach.can_reattach and not self.has_announced_exit:
                self._set_due(_EXIT_SECONDS)
            elif self.reach.is_below_supervisor and not self.has_announced_exit:
                # Its guard ends what it has left, unless that does not die.
                self._set_due(protocol.KILL_GRACE + processes.DEATH_SECONDS)
            self.check_exit()

    def _on_violation(self, connection: Connection | None, cause: Cause) -> None:
        """Ignore an agent from now on: it broke the protocol. Its lease is not renewed any more."""
        self._violation = cause
        if self._lease is None:
            self._abandon_due = time.monotonic() + self._deadlines.seconds_for("")
        self._deadlines.clear()
        self._observer.on_report(self, protocol.Fault(cause, time.time()))
        if connection is None or connection is not self._connection:
            return
        if self.state is LinkState.CONNECTING:
            self._mark_unreachable(cause)
            return
        if self.reach.is_below_supervisor:
            self._mark_gone(cause)  # the pool ends what it leaves, or names it
            return
        self._dismiss(connection)
        if self.reach.can_reattach:
            self._set_due(_EXIT_SECONDS)

    def _dismiss(self, connection: Connection) -> None:
        """Have an agent end, without waiting until somebody has received the rest of its logs."""
        connection.channel.send(protocol.Shutdown(preserve_logs=True))

    def _discard(self, connection: Connection) -> None:
        connection.channel.discard()
        if connection.channel.ended:
            self._loop.unwatch(connection.channel.reader)
            self.check_exit()

    def _on_exit(self, connection: Connection, status: int) -> None:
        connection.read_stderr()
        if self.has_announced_exit:
            self._mark_gone(Cause(Code.AGENT_SHUT_DOWN))
        elif self.state is LinkState.CONNECTING:
            is_first = self._attempts < _MAX_FIRST_ATTEMPTS
            if self.reach.forget_copy(connection):
                self._connect_again(0.0)
            elif is_first and self.reach.is_transient(connection, status):
                # Hosts that were refused together must not try again at the same time.
                delay = _FIRST_RETRY_SECONDS * 2 ** (self._attempts - 1)
                self._connect_again(random.uniform(delay / 2, delay * 3 / 2))  # noqa: S311 - no secret
            else:
                self._fail_to_connect(status)
        elif self.state is LinkState.UP:
            self._ask(connection, status, self.reach.loss(connection, status), self._on_death)
        elif self.reach.agent_is_gone(connection, status):
            self._mark_agent_gone()
        else:
            alive = tasks_alive(status, connection.stderr_text)
            left = Cause(Code.FORMER_TASKS_ALIVE, host=self.name, text=alive)
            self._retry_later(left if alive else self.reach.loss(connection, status))

    # Messages ------------------------------------------------------------------------------

    def _receive(self, connection: Connection, messages: list[tuple[int, Report]]) -> None:
        last = written = 0
        is_requested = False
        for index, (number, message) in enumerate(messages):
            # No message that arrived together with the damage answers the request.
            if isinstance(message, Damage) and not is_requested:
                self._request_replay(connection)
                is_requested = True
            if self._is_replaying and not isinstance(message, _HANDLED_WHILE_REPLAYING):
                continue
            if isinstance(message, protocol.LogData):
                written += self._write_log(connection, message)
            elif number == 0 or number > self._last_report:
                self._check_and_handle(connection, number, message)
            last = max(last, number)
            if connection is not self._connection or self._violation is not None:
                return
            if self._asked is not None:
                self._held = messages[index + 1 :]
                self._loop.unwatch(connection.channel.reader)
                break
        if last:
            connection.channel.acknowledge(last)
        if written:
            connection.channel.send(protocol.LogReceived(written))
        self._release_unwanted_logs()

    def _write_log(self, connection: Connection, part: protocol.LogData) -> int:
        """Write a part of a log. Returns how many bytes of the window it frees."""
        if part.name not in self.mirror.sizes:
            cause = Cause(Code.REPORT_OF_FOREIGN_TASK, task=part.name, name=type(part).__name__)
            self._on_violation(connection, cause)
            return 0
        size = self.mirror.sizes[part.name]
        is_written = self.mirror.write(part)
        # A part of a limited log may be far ahead. What follows its announced end does not count.
        end = self.mirror.final_sizes.get(part.name)
        new = self.mirror.sizes[part.name] - size
        is_beyond = end is not None and self.mirror.sizes[part.name] > end
        self._deadlines.record_log(0 if is_beyond else min(new, len(part.data)))
        return len(part.data) + protocol.LOG_OVERHEAD if is_written else 0

    def _check_and_handle(self, connection: Connection, number: int, message: Report) -> None:
        violation = self._checker.find_excess(message)
        if violation is None:
            message = cut_causes(message)
            violation = self._find_violation(message)
        if violation is not None:
            self._on_violation(connection, violation)
            return
        self._last_report = max(self._last_report, number)
        if self.reach.can_reattach or self.reach.is_below_supervisor:
            self._deadlines.record_report(message)
        self._handle(connection, message)

    def _find_violation(self, message: Report) -> Cause | None:
        """Return how a message breaks the protocol; None if it does not."""
        is_hello_late = (
            isinstance(message, protocol.Hello) and self.state is not LinkState.CONNECTING
        )
        # An earlier turn is answered late if noise has damaged that answer's successor.
        is_turn_unknown = (
            isinstance(message, protocol.Reattached) and not 1 <= message.turn <= self._replay
        )
        if is_hello_late or is_turn_unknown:
            return Cause(Code.REPORT_UNASKED, name=type(message).__name__)
        return self._checker.find_fault(message)

    def _release_unwanted_logs(self) -> None:
        """Let the agent exit and preserve its logs if they cannot be received any more."""
        shutdown = self._shutdown
        if shutdown is not None and not shutdown.preserve_logs and self.mirror.failure is not None:
            self.order(protocol.Shutdown())

    def _handle(self, connection: Connection, message: Report) -> None:
        if isinstance(message, protocol.Heartbeat):
            self._on_heartbeat(connection, message)
        elif isinstance(message, protocol.Ack):
            self._outbox.acknowledge(message.last)
        elif isinstance(message, protocol.Reattached):
            self._on_reattached(connection, message)
        elif isinstance(message, protocol.AgentExiting):
            self._on_exiting(message)
        elif isinstance(message, protocol.LogEnded):
            if message.name in self.mirror.final_sizes:
                self.mirror.final_sizes[message.name] = message.size
        elif isinstance(message, protocol.Fault) and self.state is LinkState.CONNECTING:
            variable = self.reach.folder_variable
            self._mark_unreachable(
                Cause(Code.AGENT_NOT_CONFIGURED, name=variable, within=(message.cause,))
            )
        elif isinstance(message, protocol.Fault):
            self._on_fault(connection, message)
        else:
            if isinstance(message, protocol.Hello):
                self.agent_pid = message.pid
                self.token, self.folder = message.token, message.folder
                self._on_up()
            self._observer.on_report(self, self._completed(message))

    def _completed(self, message: Report) -> Report:
        """Return a report with what is known on this side."""
        if isinstance(message, protocol.TaskStarted):
            at = self.mirror.offset_in_copy(message.task, message.log_start)
            return message._replace(log_start=at)
        return message

    def _on_fault(self, connection: Connection, message: protocol.Fault) -> None:
        """Report why the agent cannot continue, with what is known of the host."""
        cause = message.cause
        if cause.is_disk_full:
            cause = cause._replace(name=self.reach.folder_variable)

        def follow(found: Cause) -> None:
            self._observer.on_report(self, message._replace(cause=found))
            if self._held is not None and connection is self._connection:
                held, self._held = self._held, None
                self._watch(connection)
                self._receive(connection, held)
                self._check_end(connection)

        self._ask(connection, None, cause, follow)

    def _on_heartbeat(self, connection: Connection, message: protocol.Heartbeat) -> None:
        if self.state is LinkState.RECONNECTING:
            # An agent that does not reattach must not renew its lease.
            self._heartbeat_to_acknowledge = message.number
        else:
            self._record_heartbeat()
            connection.channel.send(protocol.HeartbeatAck(message.number))

    def _on_exiting(self, message: protocol.AgentExiting) -> None:
        if self._exit_due is None:
            self._exit_due = time.monotonic() + _ANNOUNCED_EXIT_SECONDS
            self.preserved_folder = message.preserved
            self.reach.record_copy(message.modules)

    def _on_up(self) -> None:
        self._enter(LinkState.UP, _EXIT_SECONDS if self._is_unneeded else None)
        if self._connection is not None:
            self._connection.discard_stderr()
        self._record_heartbeat()
        self._up_since = time.monotonic()
        self._loss = None
        self._deadlines.resume()

    def _request_replay(self, connection: Connection) -> None:
        """Have the agent repeat its reports after the last that arrived undamaged."""
        self._replay += 1 + int.from_bytes(os.urandom(4), "big")
        self._is_replaying = True
        if self._file_sender is not None:
            self._file_sender.pause()
        connection.channel.send(
            protocol.Reattach(protocol.PROTOCOL, self._job_id, self._last_report, self._replay)
        )

    def _on_reattached(self, connection: Connection, message: protocol.Reattached) -> None:
        if message.turn != self._replay or not self._is_replaying:
            return
        self._is_replaying = False
        was_lost = self.state is LinkState.RECONNECTING
        if was_lost:
            self._on_up()
            if self._heartbeat_to_acknowledge:
                connection.channel.send(protocol.HeartbeatAck(self._heartbeat_to_acknowledge))
        self._outbox.acknowledge(message.last)
        connection.follows_logs = False
        self._follow_logs(connection)
        for number, order in self._outbox.after(message.last):
            connection.channel.send(order, number)
        if was_lost:
            self._observer.on_event(LinkRestored(at=time.time(), host=self.name))

    def _follow_logs(self, connection: Connection) -> None:
        """Have the agent send its logs: with the first order, before which there is no log."""
        if self.reach.has_own_logs and self.state is LinkState.UP and not connection.follows_logs:
            connection.follows_logs = True
            connection.channel.send(protocol.FollowLogs(self.mirror.sizes, connection.log_window))

    # Ends ----------------------------------------------------------------------------------

    @property
    def _known_loss(self) -> tuple[Cause, ...]:
        """Why the link is lost, unless heartbeats are all that is missing."""
        if self._loss is None or self._loss.code is Code.HEARTBEAT_MISSING:
            return ()
        return (self._loss,)

    def _handle_link_loss(self, cause: Cause) -> None:
        if self.has_announced_exit:
            self._mark_gone(Cause(Code.AGENT_SHUT_DOWN))
        elif self._is_unneeded:
            self._mark_gone(Cause(Code.AGENT_NOT_NEEDED))
        elif not self.reach.can_reattach:
            self._lose_for_good(cause)
        else:
            self._close_connection()
            self._loss = cause
            delay = self._reconnect.record_loss(
                lasted=time.monotonic() - self._up_since,
                was_silent=cause.code is Code.HEARTBEAT_MISSING,
            )
            self._enter(LinkState.LOST, delay)
            self._deadlines.pause()
            self._heartbeat_to_acknowledge = 0
            self._observer.on_event(LinkLost(at=time.time(), host=self.name, cause=cause))

    def _lose_for_good(self, cause: Cause) -> None:
        """Mark the host gone, as soon as its agent has certainly ended its tasks."""
        if self._lease_ends_at is None or not self.reach.may_live_on(cause):
            self._mark_gone(cause)
            return
        self._close_connection()
        self._loss = cause
        self._enter(LinkState.LOST)
        self._observer.on_event(LinkLost(at=time.time(), host=self.name, cause=cause))

    def _retry_later(self, cause: Cause) -> None:
        self._close_connection()
        self._loss = cause
        self._enter(LinkState.LOST, self._reconnect.record_failure())

    def _connect_again(self, delay: float) -> None:
        if self._is_unneeded:
            self._mark_gone(Cause(Code.AGENT_NOT_NEEDED))
            return
        self._close_connection()
        self._enter(LinkState.WAITING, delay)

    def _fail_to_connect(self, status: int | None) -> None:
        if self._is_unneeded:
            self._mark_gone(Cause(Code.AGENT_NOT_NEEDED))
        elif self._connection is not None:
            self._diagnose(self._connection, status)

    def _diagnose(self, connection: Connection, status: int | None) -> None:
        """Find out why the first connection failed."""
        cause = self.reach.diagnose(connection, status)
        self._close_connection()
        self._set_due(None)
        self._ask(connection, status, cause, self._mark_unreachable)

    def find_interruption(self, cause: Cause, follow: Callable[[Cause], None]) -> None:
        """Call `follow` with why this process gets SIGTERM, if the host's cluster has sent it."""
        connection = self._connection
        if connection is None or (question := self.reach.question(connection, None, cause)) is None:
            follow(cause)
            return
        answered = partial(self.reach.answered, connection, cause)
        self._observer.ask(question, lambda answer: follow(answered(answer)))

    def _ask(
        self,
        connection: Connection,
        status: int | None,
        cause: Cause,
        follow: Callable[[Cause], None],
    ) -> None:
        """Call `follow` with a cause, once more is known of it if that is to be found out."""
        question = self.reach.question(connection, status, cause)
        if question is None:
            follow(cause)
            return

        def on_answer(answer: Cause | None) -> None:
            if self._asked is on_answer:
                self._asked = None
                self._observer.on_activity(self)
                follow(self.reach.answered(connection, cause, answer))

        self._asked = on_answer
        self._observer.ask(question, on_answer)

    def _on_death(self, cause: Cause) -> None:
        if cause.code is Code.AGENT_EXITED:
            self._death = cause
        self._handle_link_loss(cause)

    def _mark_unreachable(self, cause: Cause) -> None:
        self._close_connection()
        self._enter(LinkState.GONE)
        self._observer.on_unreachable(self, cause)

    def _mark_silent(self) -> None:
        if self._lease is None:
            self._mark_gone(Cause(Code.AGENT_ABANDONED, pid=self.agent_pid or 0))
        else:
            seconds, loss = self._lease, self._known_loss
            self._mark_gone(Cause(Code.HOST_SILENT_TOO_LONG, seconds=seconds, within=loss))

    def _mark_agent_gone(self) -> None:
        self._mark_gone(self._death or Cause(Code.AGENT_GONE, within=self._known_loss))

    def _mark_gone(self, cause: Cause) -> None:
        self._close_connection()
        self._enter(LinkState.GONE)
        self._observer.on_gone(self, cause)
