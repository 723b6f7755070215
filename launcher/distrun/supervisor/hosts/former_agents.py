"""Ends what earlier supervisors of a resumed job have left on other hosts, before anything starts.

Each host gets a login that ends the agent and its tasks and sends the rest of their logs
(:mod:`distrun.agent.former`). A host that cannot be reached counts as cleared once the lease of its
agent is over: it is counted from now, because the earlier supervisor may have died just before.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.agent.protocol import INDEX_RECORD, Cause, Code
from distrun.agent.protocol.channel import ProtocolError
from distrun.agent.protocol.file_messages import FilesPreserved
from distrun.job import traces
from distrun.spec.model import HostSpec
from distrun.supervisor.hosts.bootstrap import tasks_alive
from distrun.supervisor.hosts.deadlines import LONGEST_SHUTDOWN, SLOWEST_LINK
from distrun.supervisor.hosts.host_channel import Damage
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.reach import make_reach
from distrun.supervisor.hosts.reconnect import LOGIN_SECONDS, ReconnectPolicy
from distrun.supervisor.hosts.report_checker import LONGEST_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from distrun.agent.linux.job_processes import Traces
    from distrun.agent.loop import Loop
    from distrun.job.folder import JobFolder
    from distrun.lifecycle import JobState
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.reach import Connection, Reach

MAX_CONNECTING = 16
"""How many hosts may be connecting at a time: each ssh client takes 80 ms of a core here."""
_CLEARING_SECONDS = 60.0
"""How long a host may take from the login until it has sent the next part of its logs."""
_EXIT_SECONDS = 2.0
"""How long a login may outlive the end of its work: a profile's processes can keep it open."""
_SLOW_SECONDS = 5.0
"""How long a login may take before that is told."""
_MOST_TRIES = 3
"""Logins to a host without a lease, before it counts as unreachable."""


class FormerAgent:
    """What an earlier agent of the job has left on one host.

    Args:
        token: the agent's.
        traces: what the job's processes on the host are recognized by.
        folder: the agent's private folder on the host.
        logs: for each of its logs, how many bytes of the copy were written before its agent began.
        lease: seconds until it has certainly ended its tasks; 0: it is known to have ended; None:
            without end.
        copies: the folder with the copies of the logs.
        limit: how many of the last bytes of each log are kept; None: all.
        late: receives the rest of the logs into files of their own, instead of the copies.
        attempts: end only these attempts of these tasks, and earlier ones; None: end all tasks of
            the job.
    """

    def __init__(  # noqa: PLR0913 - what is known of an agent
        self,
        name: str,
        reach: Reach,
        loop: Loop,
        *,
        token: str,
        traces: Traces,
        folder: str,
        logs: Mapping[str, int],
        lease: float | None,
        copies: Path,
        limit: int | None,
        late: LogMirror | None = None,
        attempts: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.reach = reach
        self._loop = loop
        self._alarm = loop.call_at(None, self._on_alarm)
        self._token = token
        self._traces = (traces.token, traces.namespace, traces.first, traces.job_id)
        self._folder = folder
        self._lease = lease
        self._limit = limit
        self._attempts = None if attempts is None else dict(attempts)
        self._mirror = late or LogMirror(copies, limit)
        for log, start in logs.items():
            self._mirror.resume(log, start)
        self._first_sizes = dict(self._mirror.sizes)
        self._starts = dict(logs)
        self._reconnect = ReconnectPolicy(reach.connect_timeout or 0.0, lease or None)
        self._lease_ends = time.monotonic() + (lease or 0.0)
        self._tries = 0
        self._due = time.monotonic()
        self._slow_due = math.inf
        self._is_slow = False
        """Whether a login has lasted for long."""
        self._stop_due = math.inf
        """When to wait no longer, because the job ends."""
        self._logs_due = math.inf
        """When all logs must have arrived. The host cannot move this, except by sending logs."""
        self._logs_began: float | None = None
        """When the first part of a log arrived: the host has ended its tasks before."""
        self._log_bytes = 0
        self.connection: Connection | None = None
        self.failure: Cause | None = None
        """Why the host could not say that nothing is left."""
        self.lost_logs: Cause | None = None
        """Why the rest of its logs is not here."""
        self.preserved: FilesPreserved | None = None
        """What it has said of files that its tasks wrote among the program's files."""
        self._is_alive = False
        """Whether the host has said that processes of the job do not end there."""
        self._has_ended = False
        """Whether the host has said that nothing is left, and has sent the rest of the logs."""
        self.is_cleared = False
        self.error: Cause | None = None
        """Why it cannot be cleared."""

    @property
    def has_logs_begun(self) -> bool:
        """Whether a part of a log has arrived, or all of them."""
        return self._logs_began is not None or self._has_ended

    @property
    def received(self) -> dict[str, int]:
        """How many bytes of the logs are here, by the task."""
        return self._mirror.received

    @property
    def is_finished(self) -> bool:
        return self.is_cleared or self.error is not None

    @property
    def lease_left(self) -> float | None:
        """The seconds for which its agent may still have a lease; None: without end."""
        return None if self._lease is None else max(0.0, self._lease_ends - time.monotonic())

    def before_wait(self) -> None:
        """Send what is queued, and wait for the next deadline."""
        if self.connection is not None:
            self.connection.channel.watch_writing(self._loop)
        due = math.inf if self.should_connect else self._due
        self._alarm.move(min(due, self._stop_due, self._slow_due))

    @property
    def delay(self) -> Cause | None:
        """Why it takes longer than a login does; None: it does not."""
        if self.failure is None and self._is_slow and not self.has_logs_begun:
            return Cause(Code.SSH_NOT_ANSWERED)
        return self.failure

    @property
    def should_connect(self) -> bool:
        is_due = self._due <= time.monotonic()
        return not self.is_finished and self.connection is None and is_due

    def connect(self, job_id: str) -> None:
        """Start a login."""
        attempt = self._reconnect.next_attempt
        self._tries += 1
        self._due = time.monotonic() + attempt.connect_timeout + LOGIN_SECONDS
        self._slow_due = time.monotonic() + _SLOW_SECONDS
        have = dict(self._mirror.sizes)
        try:
            known = (self._token, self._traces, self._folder)
            arguments = (*known, have, self._limit, self._attempts)
            connection = self.reach.end_former(job_id, arguments, attempt)
        except OSError as error:
            self._retry_later(self.reach.not_started(error))
            return
        self.connection = connection
        self._loop.watch(connection.channel.reader, self._on_readable)

    def stop(self, *, at_once: bool) -> None:
        """Limit the wait, because the job ends: to a minute, or to the end of a longer lease.

        Args:
            at_once: wait only for the end of the lease, if it is not known that the tasks have
                ended, and not for logs.
        """
        seconds = 0.0 if at_once and self._logs_began is not None else self.lease_left or 0.0
        if not at_once:
            seconds = max(seconds, _CLEARING_SECONDS)
        self._stop_due = min(self._stop_due, time.monotonic() + seconds)

    def _on_alarm(self) -> None:
        """Give up a login that takes too long."""
        now = time.monotonic()
        if self._slow_due <= now:
            self._slow_due, self._is_slow = math.inf, True
        if self.is_finished or min(self._due, self._stop_due) > now:
            return
        if self._stop_due <= now:
            self._tries = _MOST_TRIES
        elif self.connection is None:
            return  # the next login is due
        if self._has_ended:
            self._finish()
        elif self._logs_began is not None and min(self._logs_due, self._stop_due) <= now:
            # The rest stays on the host.
            self._mirror.failure = Cause(Code.LOGS_TOO_SLOW)
            self._finish()
        else:
            known = self.failure if self.connection is None else None
            self.close()
            self._retry_later(known or Cause(Code.SSH_NOT_ANSWERED))

    def check_exit(self) -> None:
        """Handle the exit of the login."""
        connection = self.connection
        if connection is None or not connection.channel.ended:
            return
        status = connection.process.poll()
        if status is None:
            return
        connection.read_stderr()
        if self._has_ended or self.reach.agent_is_gone(connection, status):
            self._finish()
            return
        alive = tasks_alive(status, connection.stderr_text)
        cause = self.reach.loss(connection, status)
        self.close()
        self._is_alive = bool(alive)
        if alive:
            cause = Cause(Code.FORMER_TASKS_ALIVE, host=self.name, text=alive)
        self._retry_later(cause)

    def _finish(self) -> None:
        """The host has said that nothing is left."""
        self.close()
        self._index_rest()
        self.failure, self.is_cleared = None, True
        if self._mirror.failure is not None:
            left = Cause(Code.LOGS_LEFT_ON_HOST, host=self.name, path=self._folder)
            self.lost_logs = left._replace(within=(self._mirror.failure,))

    def close(self) -> None:
        """Close the login, if there is one."""
        self._alarm.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            self._loop.unwatch(connection.channel.reader)
            self._loop.unwatch(connection.channel.writer)
            connection.close()

    def _on_readable(self) -> None:
        connection = self.connection
        if connection is None:
            return
        try:
            messages = connection.channel.receive()
        except ProtocolError as error:
            self.close()
            self._retry_later(error.cause)
            return
        for _, message in messages:
            name = type(message).__name__
            if self._has_ended or isinstance(message, Damage):
                continue
            if isinstance(message, protocol.LogData) and message.name in self._mirror.sizes:
                self._write_log(message)
            elif isinstance(message, FilesPreserved) and len(message.folder) <= LONGEST_PATH:
                self.preserved = message
            elif isinstance(message, protocol.AgentExiting):
                self._has_ended = True
                self._due = time.monotonic() + _EXIT_SECONDS
                connection.channel.send(protocol.Ack(0))
            else:
                self.close()
                self._retry_later(Cause(Code.REPORT_UNASKED, name=name))
                return
            if self._mirror.failure is not None:
                self._finish()
                return
        if connection.channel.ended:
            self._loop.unwatch(connection.channel.reader)
            self.check_exit()

    def _write_log(self, part: protocol.LogData) -> None:
        """Write a part of a log. Only what is new gives the host more time."""
        size = self._mirror.sizes[part.name]
        self._mirror.write(part)
        fresh = min(self._mirror.sizes[part.name] - size, len(part.data))
        now = time.monotonic()
        if self._logs_began is None:
            self._logs_began = now
        if fresh > 0:
            self._log_bytes += fresh
            seconds = _CLEARING_SECONDS + self._log_bytes / SLOWEST_LINK
            self._logs_due = self._logs_began + min(seconds, LONGEST_SHUTDOWN)
            self._due = min(now + _CLEARING_SECONDS, self._logs_due)

    def _retry_later(self, cause: Cause) -> None:
        self.failure = cause
        now = time.monotonic()
        if self._lease == 0 and not self._is_alive:
            self.is_cleared = True  # it had ended before; the login was to make sure
        elif self._lease is not None and now >= self._lease_ends:
            if self._is_alive:
                self.error = cause
            else:
                self.failure = Cause(Code.FORMER_LEASE_OVER, seconds=self._lease, within=(cause,))
                self.is_cleared = True
        elif self._lease is None and self._tries >= _MOST_TRIES:
            self.error = Cause(Code.FORMER_HOST_UNREACHABLE, host=self.name, within=(cause,))
        else:
            self._due = now + self._reconnect.record_failure()
            if self._lease is not None:
                self._due = min(self._due, self._lease_ends)

    def _index_rest(self) -> None:
        """Note in the indexes that the rest of the logs has arrived."""
        for name, start in self._starts.items():
            size = self._mirror.sizes[name]
            if size > self._first_sizes[name]:
                total = start + size
                record = INDEX_RECORD.pack(time.time(), total)
                self._mirror.append_index(name, record)


class FormerAgents:
    """Clears hosts of what earlier agents have left there, so many at a time.

    Args:
        on_finished: called once for each agent, which has an error if its host cannot be cleared.
        on_delay: called once for a host that does not answer, before that.
    """

    def __init__(
        self,
        loop: Loop,
        job_id: str,
        on_finished: Callable[[FormerAgent], None],
        on_delay: Callable[[FormerAgent, Cause], None] = lambda _agent, _cause: None,
    ) -> None:
        self._loop, self._job_id = loop, job_id
        self._on_finished, self._on_delay = on_finished, on_delay
        self._agents: list[FormerAgent] = []
        self._delayed: set[str] = set()
        loop.checks.append(self._check)
        loop.before_wait.append(self._before_wait)

    def clear(self, agents: Iterable[FormerAgent]) -> None:
        """Start to clear hosts."""
        self._agents += agents
        self._loop.call_at(self._loop.now(), self._check)

    def __len__(self) -> int:
        """The number of agents that have not been cleared."""
        return len(self._agents)

    def _before_wait(self) -> None:
        for agent in self._agents:
            agent.before_wait()

    def _check(self) -> None:
        """Start logins that are due, and handle those that have ended."""
        for agent in self._agents:
            agent.check_exit()
        free = MAX_CONNECTING - sum(agent.connection is not None for agent in self._agents)
        for agent in [each for each in self._agents if each.should_connect][: max(0, free)]:
            agent.connect(self._job_id)
        for agent in list(self._agents):
            if agent not in self._agents:
                continue  # given up after the end of another one
            if agent.is_finished:
                self._agents.remove(agent)
                self._on_finished(agent)
            elif agent.delay is not None and agent.name not in self._delayed:
                self._delayed.add(agent.name)
                self._on_delay(agent, agent.delay)

    @property
    def pids(self) -> set[int]:
        """The processes of the logins on this machine."""
        connections = [agent.connection for agent in self._agents]
        return {each.process.pid for each in connections if each is not None}

    def stop(self, *, at_once: bool) -> None:
        """Limit the wait for all hosts, because the job ends: see :meth:`FormerAgent.stop`."""
        for agent in self._agents:
            agent.stop(at_once=at_once)

    def give_up(self, agents: Iterable[FormerAgent] | None = None) -> None:
        """Wait no longer for these hosts, or for all, without a call of `on_finished`."""
        given_up = list(self._agents if agents is None else agents)
        for agent in given_up:
            agent.close()
        self._agents = [agent for agent in self._agents if agent not in given_up]


def make_former_reach(name: str, spec: Spec) -> Reach:
    """Return how to reach a host of earlier attempts, which the spec may not have any more."""
    return make_reach(next((h for h in spec.hosts if h.name == name), HostSpec(name=name)), spec)


def find_former_agents(
    loop: Loop, spec: Spec, former: JobState, resumed: JobState, folder: JobFolder
) -> list[FormerAgent]:
    """Return what must be ended on other hosts before a resumed job starts.

    Args:
        loop: that of this process.
        spec: the job's, as it is resumed.
        former: the job's state before it was resumed.
        resumed: its state now.
        folder: the job's, with the copies of the logs.
    """
    limits = [each for each in (spec.log_max_size, former.log_max_size) if each is not None]
    found = []
    for name, host in resumed.former_hosts.items():
        if not host.token:  # it ended with its supervisor
            continue
        if host.kind == "srun":
            continue  # Slurm ends a step with its srun, and all steps with their allocation
        tasks = [task for task in former.tasks.values() if task.host == name]
        found.append(
            FormerAgent(
                name,
                make_former_reach(name, spec),
                loop,
                token=host.token,
                traces=traces.of_host(folder, former, name),
                folder=host.folder,
                logs={folder.log_of(task.name).name: task.log_start for task in tasks},
                lease=0.0 if host.has_ended else former.timeouts.link,
                copies=folder.logs,
                limit=min(limits, default=None),
            )
        )
    return found
