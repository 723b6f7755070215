"""One host of a job, from its first connection until its agent is gone.

An agent that did not announce its exit is gone only if its host says so or its lease has expired:
then nothing of its tasks is left. If a reach cannot reattach, the agent ends with its link.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from distrun.agent import protocol
from distrun.agent.linux import processes
from distrun.agent.protocol import Cause, Code, Order, Report
from distrun.agent.protocol.channel import Outbox
from distrun.codec import RANGES
from distrun.job.events import LinkLost, LinkRestored, LogsIncomplete
from distrun.job.folder import log_name, task_of_log
from distrun.plan import READ
from distrun.spec.model import Spec
from distrun.supervisor.hosts.bootstrap import NO_COPY
from distrun.supervisor.hosts.link import LOGIN_SECONDS, Link, Links, LinkState, LinkUser
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.orders import ENDS, Orders
from distrun.supervisor.hosts.reach import (
    Attempt,
    Connection,
    Lifetime,
    Login,
    Purpose,
    Reach,
    folder_variable,
)
from distrun.supervisor.hosts.report_receiver import ReportReceiver
from distrun.supervisor.hosts.sent_agents import sent_agents

if TYPE_CHECKING:
    from distrun.supervisor.hosts.file_delivery import FileSender

_TIMED = (
    *(protocol.TaskStarted, protocol.TaskNotStarted, protocol.TaskExited, protocol.TaskEnded),
    *(protocol.UsageSampled, protocol.Progress, *protocol.NOTICES, protocol.Fault),
)
"""The messages whose time is changed from the host's clock to this machine's."""
_LONGEST_HELLO = 1.0
"""Seconds that its first message may take: a clock that differs by no more is taken for right."""
_LATE_SECONDS = 5.0
"""A loop that notices the end of a lease as late as that was suspended."""
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


class LogEnd(NamedTuple):
    """The end of a log that nothing writes to: in its copy (bytes); whether it is to come."""

    size: int
    is_awaited: Callable[[], bool]


def _clock() -> float:
    """Seconds that continue while this machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class HostObserver(Protocol):
    """Receives the events of a host."""

    def on_report(self, host: Host, report: Report) -> None:
        """The agent has sent a message."""

    def on_unreachable(self, host: Host, cause: Cause) -> None:
        """The first connection failed; the host is gone."""

    def on_event(self, event: LinkLost | LinkRestored | LogsIncomplete) -> None:
        """The link was lost, and is being reconnected, or is up again; a log was removed."""

    def on_gone(self, host: Host, cause: Cause) -> None:
        """The agent has ended, and nothing of its tasks is left."""


class Host(LinkUser):
    """A host by its name in the spec.

    Args:
        logs: the job's folder for logs.
        former: the last attempts of tasks that a lost agent of the job may have left on the host.
    """

    def __init__(
        self,
        name: str,
        reach: Reach,
        links: Links,
        observer: HostObserver,
        spec: Spec,
        logs: Path,
        former: Mapping[str, int],
    ) -> None:
        self.name, self.reach, self.former = name, reach, former
        self.preserved_folder = ""
        self.token = self.folder = ""  # the agent's, as it has said
        self.agent_pid: int | None = None
        """The agent's process id on its own host."""
        self.has_announced_exit = False
        """Whether the agent has announced its exit: it has nothing left to report."""
        self._grace, lease = spec.timeouts.grace, spec.timeouts.link
        self._lease = 0.0 if reach.lifetime is Lifetime.SUPERVISOR else lease
        self._links, self._observer, self._logs = links, observer, logs
        self.link = Link(links, self, reach.connect_timeout, lease)
        self.mirror = LogMirror(logs, spec.log_max_size)
        loop = links.loop
        self._next_ack = loop.call_at(None, self._send_ack)
        self._heard_at = _clock()
        self._lease_end = loop.call_at(None, self._mark_silent)
        """When the agent has certainly ended its tasks; never if it has no lease, or was never up.
        If it has none and broke the protocol: when it is not waited for any more."""
        self._silence = loop.call_at(None, self._on_silence)
        """When the link counts as lost unless a heartbeat comes first."""
        self.orders = Orders(loop, lease, reach.lifetime, self._on_late)
        self.reports = ReportReceiver(
            self.link, self.mirror, self.orders, self.handle, self.on_fault
        )
        self._outbox: Outbox[Order] = Outbox()
        self._file_sender: FileSender | None = None
        self._has_tasks = False
        self._is_unneeded = False
        self._shutdown: protocol.Shutdown | None = None
        self._heartbeat_to_acknowledge = 0
        """The number of the last heartbeat from an agent that has not reattached yet."""
        self._attempts = 0
        self._copy_key = ""
        self._is_refused = False
        """Whether a login has been refused since the link was lost."""
        self._loss: Cause | None = None
        """Why the link was lost, or why the last attempt to reconnect failed."""
        self._violation: Cause | None = None
        """How the agent broke the protocol; then everything that it sends is ignored."""
        self._death: Cause | None = None
        """How the agent ended, if it did not announce that."""

    # For the pool --------------------------------------------------------------------------

    def order(self, message: Order) -> None:
        """Send an order, once the link is up. The agent executes each order once."""
        state, connection = self.link.state, self.link.connection
        if state is LinkState.GONE:
            return
        self.link.touch()
        if isinstance(message, protocol.StartTask):
            self._has_tasks = True
            if self.reach.lifetime is not Lifetime.SUPERVISOR:
                self.mirror.add(message.log)
        elif isinstance(message, protocol.Shutdown):
            message = self._shutdown = protocol.Shutdown(
                preserve_logs=self.mirror.failure is not None
            )
        self.orders.record(message)
        is_leased = self.reach.lifetime is Lifetime.LEASE
        number = self._outbox.add(message) if is_leased else 0
        if state in (LinkState.CONNECTING, LinkState.UP) and connection is not None:
            connection.channel.send(message, number)
            self._follow_logs(connection)
        if isinstance(message, protocol.Shutdown) and not self._has_tasks:
            self._is_unneeded = True
            is_up, is_starting = state is LinkState.UP, state is LinkState.CONNECTING
            if is_up or (is_starting and connection is not None and connection.has_read_agent):
                self.link.limit(_EXIT_SECONDS)
            else:
                self._mark_gone(Cause(Code.AGENT_NOT_NEEDED))

    def send_list(self, sender: FileSender, parts: list[Order]) -> None:
        self._file_sender = sender
        for part in parts:
            self.order(part)

    def set_logs_aside(self, tasks: Collection[str]) -> None:
        """Keep the logs of other tasks than these out of the copies, which other hosts continue."""
        for log in self.mirror.final_sizes:
            if task_of_log(log) not in tasks:
                self.mirror.set_aside(log, time.time())

    def log_end(self, task: str) -> LogEnd | None:
        """Return the end of a task's log; None: it may grow, or is written on this machine."""
        log = log_name(task)
        size = self.mirror.final_size(log)
        if size is None:
            return None
        return LogEnd(
            self.mirror.offset_in_copy(task, size),
            lambda: self.link.state is not LinkState.GONE and self.mirror.is_awaited(log, size),
        )

    def abandon(self) -> None:
        """Stop waiting for the agent's logs, and for an agent out of reach that has no lease."""
        self.orders.limit_shutdown(_LOG_SECONDS)
        if self._lease is None and self.link.state in (LinkState.LOST, LinkState.RECONNECTING):
            # If somebody kills it, the agent's guard ends all its tasks.
            self._mark_gone(Cause(Code.AGENT_ABANDONED, pid=self.agent_pid or 0))

    def end_at_once(self) -> Connection | None:
        """Have the agent end without its logs being received. Returns the link, if it is up."""
        if self.link.connection is not None:
            self._dismiss(self.link.connection)
        return self.link.connection

    @property
    def attempts(self) -> dict[str, int]:
        """The last attempt of each task that this agent, or a lost one, was ordered to start."""
        return {**self.former, **self.orders.attempts}

    @property
    def is_new(self) -> bool:
        """Whether it is still unknown if an agent can be started on the host."""
        return self.link.state in (LinkState.WAITING, LinkState.CONNECTING)

    # Logins --------------------------------------------------------------------------------

    def log_in(self, attempt: Attempt) -> Connection:
        job_id = self._links.job_id
        if self.link.state is LinkState.RECONNECTING:
            arguments = (self.token, job_id, self.attempts)
            return self.reach.open(job_id, Login(Purpose.REATTACH, arguments, attempt))
        self._attempts += 1
        self.reports.is_replaying = False
        timeout = self.reach.connect_timeout
        self.link.limit(None if timeout is None else timeout + LOGIN_SECONDS)
        return self.reach.open(job_id, Login(Purpose.AGENT))

    def on_not_started(self, cause: Cause) -> None:
        if self.link.state is LinkState.RECONNECTING:
            self._retry(cause)
        else:
            self._mark_unreachable(cause)

    def on_login(self, connection: Connection) -> None:
        if self.link.state is not LinkState.RECONNECTING:
            self._send_agent(connection)
        elif self._violation is None:
            self.reports.request_replay(connection)
        else:
            self._dismiss(connection)  # the host says once its agent has ended

    def _send_agent(self, connection: Connection) -> None:
        agent = connection.agent()
        self._copy_key, connection.agent_size = connection.copy_key, len(agent)
        if agent:
            connection.channel.send_bytes(agent)
        is_here = self.reach.lifetime is Lifetime.SUPERVISOR
        folder = os.path.realpath(self._logs) if is_here else ""
        variables = () if is_here else READ
        configuration = protocol.Configure(
            protocol.PROTOCOL,
            *(self._links.job_id, folder, self._lease, self.name, variables, self.mirror.limit),
            former=tuple(self.former.items()),
            grace=self._grace,
        )
        connection.channel.send(configuration)
        connection.channel.flush()

    def on_stderr(self, connection: Connection) -> None:
        state = self.link.state
        if state is LinkState.RECONNECTING and connection.agent_is_gone(None):
            self._mark_agent_gone()
        elif state is LinkState.CONNECTING and self._has_no_copy(connection):
            self._connect_again(0.0)

    def on_end(self, connection: Connection) -> None:  # noqa: ARG002 - it is the only one
        if self._violation is not None or self.has_announced_exit:
            return
        if self.reach.lifetime is Lifetime.LEASE:
            self.link.limit(_EXIT_SECONDS)
        elif self.reach.lifetime is Lifetime.SUPERVISOR:
            # Its guard ends what it has left, unless that does not die.
            self.link.limit(protocol.KILL_GRACE + processes.DEATH_SECONDS)

    def on_exit(self, connection: Connection, status: int) -> None:
        state, reach = self.link.state, self.reach
        if self.has_announced_exit:
            self._mark_gone(Cause(Code.AGENT_SHUT_DOWN))
        elif state is LinkState.CONNECTING:
            is_first = self._attempts < _MAX_FIRST_ATTEMPTS
            if self._has_no_copy(connection):
                self._connect_again(0.0)
            elif is_first and reach.diagnose(connection, status, was_up=False)[1]:
                import random  # a tenth of what a supervisor imports

                # Hosts that were refused together must not try again at the same time.
                delay = _FIRST_RETRY_SECONDS * 2 ** (self._attempts - 1)
                self._connect_again(random.uniform(delay / 2, delay * 3 / 2))  # noqa: S311 - no secret
            else:
                self._fail_to_connect(status)
        elif state is LinkState.UP:
            cause = reach.diagnose(connection, status, was_up=True)[0]
            self.link.ask(reach.question(connection, cause), cause, self._on_death)
        elif connection.agent_is_gone(status):
            self._mark_agent_gone()
        else:
            alive = connection.tasks_alive(status, self.name)
            self._retry(alive or reach.diagnose(connection, status, was_up=True)[0])

    def _has_no_copy(self, connection: Connection) -> bool:
        """Whether the host says for the first time that it lacks the agent's modules."""
        says_so = NO_COPY in connection.stderr_text
        return says_so and sent_agents().forget(self._copy_key)

    def _connect_again(self, delay: float) -> None:
        if self._is_unneeded:
            self._mark_gone(Cause(Code.AGENT_NOT_NEEDED))
            return
        self.link.close()
        self.link.enter(LinkState.WAITING, delay)

    def _fail_to_connect(self, status: int | None) -> None:
        connection = self.link.connection
        if self._is_unneeded:
            self._mark_gone(Cause(Code.AGENT_NOT_NEEDED))
        elif connection is not None:
            cause = self.reach.diagnose(connection, status, was_up=False)[0]
            self.link.close()
            self.link.limit(None)
            question = self.reach.question(connection, cause)
            self.link.ask(question, cause, self._mark_unreachable)

    def _retry(self, cause: Cause) -> None:
        if cause.commands and not self._is_refused:  # somebody must do something about it
            self._is_refused = True
            self._observer.on_event(LinkLost(at=time.time(), host=self.name, cause=cause))
        self._loss = cause
        self.link.retry()

    # Times ---------------------------------------------------------------------------------

    def before_wait(self) -> None:
        """Send as much of the files as the link takes now."""
        connection, sender = self.link.connection, self._file_sender
        is_up = self.link.state is LinkState.UP and not self.reports.is_replaying
        if sender is not None and connection is not None and is_up:
            sender.send(connection.channel)
            if sender.failure is not None:
                from distrun.agent.protocol.file_messages import FilesRefused

                self._file_sender = None
                self._observer.on_report(self, FilesRefused(sender.failure, time.time()))
        self._next_ack.move(None if connection is None else connection.channel.ack_due)

    def _send_ack(self) -> None:
        if self.link.connection is not None:
            self.link.touch()
            self.link.connection.channel.send_due_ack()

    def _on_silence(self) -> None:
        if not self._is_lease_over:
            self._handle_link_loss(Cause(Code.HEARTBEAT_MISSING))

    def on_expired(self) -> None:
        if self.has_announced_exit:
            self._mark_gone(Cause(Code.AGENT_SHUT_DOWN))
        elif self.link.state is LinkState.CONNECTING:
            self._fail_to_connect(None)
        elif self.link.state is LinkState.RECONNECTING:
            self._retry(Cause(Code.NOT_ANSWERED))
        elif self.reach.lifetime is Lifetime.SUPERVISOR:
            self._handle_link_loss(Cause(Code.AGENT_GONE))
        else:
            self._handle_link_loss(Cause(Code.SSH_NOT_ENDED))

    @property
    def _is_lease_over(self) -> bool:
        """Whether the end of the lease follows: this process may have been suspended for longer."""
        return self._lease_end.when is not None and self._lease_end.when <= self._links.loop.now()

    def _on_late(self, name: str, task: str) -> None:
        """Ignore an agent from now on: it did not execute an order in time."""
        if self._is_lease_over:
            return
        self.link.touch()
        seconds = self.orders.seconds_for(name)
        if name not in ENDS:
            cause = Cause(Code.ORDER_NOT_ANSWERED, name=name, task=task, seconds=seconds)
        elif name == "Shutdown" and self.mirror.failure is None and not self.mirror.is_complete:
            # The rest of its logs stays on the host.
            self.mirror.failure = Cause(Code.LOGS_TOO_SLOW)
            self.order(protocol.Shutdown())
            return
        else:
            cause = Cause(Code.STOP_NOT_EXECUTED, seconds=seconds)
        self.on_fault(self.link.connection, cause)

    # Messages ------------------------------------------------------------------------------

    def on_fault(self, connection: Connection | None, cause: Cause) -> None:
        """Ignore an agent from now on: it broke the protocol. Its lease is not renewed any more."""
        self._violation, self.link.is_ignored = cause, True
        if self._lease is None:
            self._lease_end.move(self._links.loop.now() + self.orders.seconds_for(""))
        self.orders.clear()
        self._observer.on_report(self, protocol.Fault(cause, time.time()))
        if connection is None or connection is not self.link.connection:
            return
        if self.link.state is LinkState.CONNECTING:
            self._mark_unreachable(cause)
            return
        if self.reach.lifetime is Lifetime.SUPERVISOR:
            self._mark_gone(cause)  # the pool ends what it leaves, or names it
            return
        self._dismiss(connection)
        if self.reach.lifetime is Lifetime.LEASE:
            self.link.limit(_EXIT_SECONDS)

    def _dismiss(self, connection: Connection) -> None:
        """Have an agent end, without waiting until somebody has received the rest of its logs."""
        connection.channel.send(protocol.Shutdown(preserve_logs=True))

    def on_messages(self, connection: Connection, messages: list[tuple[int, Report]]) -> None:
        if connection.channel.is_flooded:
            self.on_fault(connection, Cause(Code.ORDERS_NOT_READ))
            return
        self.reports.receive(connection, messages)
        shutdown = self._shutdown
        if shutdown is not None and not shutdown.preserve_logs and self.mirror.failure is not None:
            # Its logs cannot be received any more: it exits, and preserves them.
            self.order(protocol.Shutdown())

    def handle(self, connection: Connection, message: Report) -> None:
        if isinstance(message, _TIMED):
            earliest, latest = RANGES["at"]  # of what the record can hold
            at = min(max(earliest, message.at + self.mirror.behind), latest)
            message = message._replace(at=at)
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(self, connection, message)
        else:
            self._observer.on_report(self, message)

    def _on_heartbeat(self, connection: Connection, message: protocol.Heartbeat) -> None:
        if self.link.state is LinkState.RECONNECTING:
            # An agent that does not reattach must not renew its lease.
            self._heartbeat_to_acknowledge = message.number
        else:
            self._record_heartbeat()
            connection.channel.send(protocol.Heartbeat(message.number))

    def _on_ack(self, _: Connection, message: protocol.Ack) -> None:
        self._outbox.acknowledge(message.last)

    def _on_exiting(self, _: Connection, message: protocol.AgentExiting) -> None:
        if not self.has_announced_exit:
            self.has_announced_exit = True
            self._wait_for_nothing()
            self.link.limit(_ANNOUNCED_EXIT_SECONDS)
            self.preserved_folder = message.preserved
            if self._copy_key:
                sent_agents().remember(self._copy_key, message.modules)

    def _on_log_ended(self, _: Connection, message: protocol.LogEnded) -> None:
        sizes, log = self.mirror.final_sizes, message.name
        if message.size < 0 and sizes.get(log, 0) is None:
            sizes[log] = self.mirror.sizes[log]  # no more of it comes
            cause = Cause(Code.LOG_REMOVED, path=os.path.join(self.folder, log))
            self._observer.on_event(LogsIncomplete(at=time.time(), host=self.name, cause=cause))
        elif message.size >= 0 and log in sizes:
            sizes[log] = message.size

    def _on_hello(self, _: Connection, message: protocol.Hello) -> None:
        self.agent_pid = message.pid
        self.token, self.folder = message.token, message.folder
        behind = time.time() - message.at
        self.mirror.behind = behind if abs(behind) > _LONGEST_HELLO else 0.0
        message = message._replace(at=time.time() - self.mirror.behind)
        self._on_up()
        self._observer.on_report(self, message)

    def _on_started(self, _: Connection, message: protocol.TaskStarted) -> None:
        at = self.mirror.offset_in_copy(message.task, message.log_start)
        self._observer.on_report(self, message._replace(log_start=at))

    def _on_agent_fault(self, connection: Connection, message: protocol.Fault) -> None:
        cause, variable = message.cause, folder_variable(self.reach)
        if self.link.state is LinkState.CONNECTING:
            self._mark_unreachable(Cause(Code.AGENT_NOT_CONFIGURED, name=variable, within=(cause,)))
            return
        if cause.is_disk_full:
            cause = cause._replace(name=variable)
        question = self.reach.question(connection, cause)
        self.link.ask(question, cause, partial(self._report_fault, connection, message))

    def _report_fault(self, connection: Connection, fault: protocol.Fault, cause: Cause) -> None:
        """Report why the agent cannot continue; messages that have waited for that follow."""
        self._observer.on_report(self, fault._replace(cause=cause))
        if connection is self.link.connection:
            self.reports.receive_held(connection)

    def _record_heartbeat(self) -> None:
        if self._lease == 0 or self.has_announced_exit:
            return
        now, self._heard_at = self._links.loop.now(), _clock()
        if self._lease is not None:
            self._lease_end.move(now + self._lease)
        if self.reach.lifetime is Lifetime.LEASE:
            interval = protocol.heartbeat_interval(self._lease)
            self._silence.move(now + _MISSED_HEARTBEATS * interval)

    def _on_up(self) -> None:
        seconds = _ANNOUNCED_EXIT_SECONDS if self.has_announced_exit else None
        self.link.enter(LinkState.UP, _EXIT_SECONDS if self._is_unneeded else seconds)
        if self.link.connection is not None:
            self.link.connection.discard_stderr()
        self._record_heartbeat()
        self._is_refused, self._loss = False, None
        self.orders.resume()

    def _on_reattached(self, connection: Connection, message: protocol.Reattached) -> None:
        if not self.reports.ends_replay(message):
            return
        if self._file_sender is not None:
            self._file_sender.pause()  # until the host has said again what it lacks
        was_lost = self.link.state is LinkState.RECONNECTING
        if was_lost:
            self._on_up()
            if self._heartbeat_to_acknowledge:
                connection.channel.send(protocol.Heartbeat(self._heartbeat_to_acknowledge))
        self._outbox.acknowledge(message.last)
        connection.follows_logs = False
        self._follow_logs(connection)
        for number, order in self._outbox.after(message.last):
            connection.channel.send(order, number)
        if was_lost:
            self._observer.on_event(LinkRestored(at=time.time(), host=self.name))

    def _follow_logs(self, connection: Connection) -> None:
        """Have the agent send its logs: with the first order, before which there is no log."""
        is_up = self.link.state is LinkState.UP
        is_elsewhere = self.reach.lifetime is not Lifetime.SUPERVISOR
        if is_elsewhere and is_up and not connection.follows_logs:
            connection.follows_logs = True
            connection.channel.send(protocol.FollowLogs(self.mirror.sizes, connection.log_window))

    # Ends ----------------------------------------------------------------------------------

    @property
    def _known_loss(self) -> tuple[Cause, ...]:
        """Why the link is lost, unless heartbeats are all that is missing."""
        silence = _clock() - self._heard_at
        if self._lease and silence > self._lease + _LATE_SECONDS:
            return (Cause(Code.LAUNCHER_SUSPENDED, seconds=round(silence)),)
        if self._violation is not None and self._violation.code is Code.STOP_NOT_EXECUTED:
            return (self._violation,)
        if self._loss is None or self._loss.code is Code.HEARTBEAT_MISSING:
            return ()
        return (self._loss,)

    def _on_death(self, cause: Cause) -> None:
        if cause.code in (Code.AGENT_EXITED, Code.POD_OUT_OF_MEMORY):
            self._death = cause
        self._handle_link_loss(cause)

    def _handle_link_loss(self, cause: Cause) -> None:
        if self.has_announced_exit:
            self._mark_gone(Cause(Code.AGENT_SHUT_DOWN))
            return
        if self._is_unneeded:
            self._mark_gone(Cause(Code.AGENT_NOT_NEEDED))
            return
        if self.reach.lifetime is Lifetime.LEASE:
            self.link.lose(was_silent=cause.code is Code.HEARTBEAT_MISSING)
            self._silence.cancel()
            self.orders.pause()
            self._heartbeat_to_acknowledge = 0
        elif self._lease_end.when is not None and (
            cause.code is Code.SLURM_NODE_FAILED or cause.signal
        ):
            # Nobody knows that it has ended: its node is cut off, or its client was killed. It is
            # gone as soon as its agent has certainly ended its tasks.
            self.link.close()
            self.link.enter(LinkState.LOST)
        else:
            self._mark_gone(cause)
            return
        self._loss = cause
        self._observer.on_event(LinkLost(at=time.time(), host=self.name, cause=cause))

    def _wait_for_nothing(self) -> None:
        self.orders.clear()
        self._lease_end.cancel()
        self._silence.cancel()

    def _mark_unreachable(self, cause: Cause) -> None:
        self._wait_for_nothing()
        self.link.end()
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
        self._wait_for_nothing()
        self.link.end()
        self._observer.on_gone(self, cause)

    _handlers: ClassVar[dict[type[Report], Callable[[Host, Connection, Any], None]]] = {
        protocol.Heartbeat: _on_heartbeat,
        protocol.Ack: _on_ack,
        protocol.AgentExiting: _on_exiting,
        protocol.Reattached: _on_reattached,
        protocol.LogEnded: _on_log_ended,
        protocol.Hello: _on_hello,
        protocol.TaskStarted: _on_started,
        protocol.Fault: _on_agent_fault,
    }
