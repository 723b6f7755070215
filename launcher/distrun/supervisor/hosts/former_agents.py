"""Ends what an agent that is lost, or of an earlier supervisor, has left on its host.

A login ends the agent and its tasks and sends the rest of their logs (:mod:`distrun.agent.former`).
Before a resumed job starts, a host that cannot be reached counts as cleared once the lease of its
agent is over: it is counted from now, because the earlier supervisor may have died just before.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping

from distrun.agent import protocol
from distrun.agent.linux import facts
from distrun.agent.linux.job_processes import Traces
from distrun.agent.protocol import Cause, Code, Report
from distrun.agent.protocol.file_messages import FilesPreserved
from distrun.job.folder import JobFolder
from distrun.lifecycle import JobState
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import Spec
from distrun.supervisor.hosts.host_channel import Damage
from distrun.supervisor.hosts.link import LOGIN_SECONDS, Link, Links, LinkState, LinkUser
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.orders import LONGEST_SHUTDOWN, SLOWEST_LINK
from distrun.supervisor.hosts.reach import Attempt, Connection, Login, Purpose, Reach, make_reach

_CLEARING_SECONDS = 60.0
"""How long a host may take from the login until it has sent the next part of its logs."""
_EXIT_SECONDS = 2.0
"""How long a login may outlive the end of its work: a profile's processes can keep it open."""
_SLOW_SECONDS = 5.0
"""How long a login may take before that is reported."""
_MOST_TRIES = 3
"""Logins to a host without a lease, before it counts as unreachable."""


class FormerAgent(LinkUser):
    """What one such agent has left on a host.

    Args:
        lease: seconds until it has certainly ended its tasks; 0: it has ended; None: without end.
        attempts: end only these attempts of these tasks, and earlier ones; None: end all tasks.
    """

    def __init__(  # noqa: PLR0913 - what is known of an agent
        self,
        name: str,
        reach: Reach,
        links: Links,
        mirror: LogMirror,
        *,
        token: str,
        traces: Traces,
        folder: str,
        lease: float | None = 0.0,
        attempts: Mapping[str, int] | None = None,
    ) -> None:
        self.name, self.reach, self.mirror, self.folder = name, reach, mirror, folder
        self._links = links
        self._token, own = token, (facts.pid_namespace(), os.getpid())
        self._traces = (traces.token, traces.namespace, traces.first, traces.job_id, own)
        self._attempts = None if attempts is None else dict(attempts)
        self._lease = lease
        self._lease_ends = links.loop.now() + (lease or 0.0)
        self._slow = links.loop.call_at(None, self._on_slow)
        self._stop = links.loop.call_at(None, self._on_stop)
        self._is_stopped = False
        """Whether the wait is over, because the job ends."""
        self.failure: Cause | None = None
        """Why the host could not say that nothing is left."""
        self.preserved: FilesPreserved | None = None
        """What it has said of files that its tasks wrote among the program's files."""
        self.error: Cause | None = None

    def clear(
        self, on_end: Callable[[FormerAgent], None], on_delay: Callable[[FormerAgent, Cause], None]
    ) -> None:
        """Start to log in, also again. `on_delay` is called if the host does not answer."""
        self._on_end, self._on_delay = on_end, on_delay
        self._tries = self._log_bytes = 0
        self._logs_due = math.inf
        """When all logs must have arrived. The host cannot move this, except by sending logs."""
        self._logs_began: float | None = None
        """When the first part of a log arrived: the host has ended its tasks before."""
        self._is_alive = False
        """Whether the host has said that processes of the job do not end there."""
        self._has_ended = False
        """Whether the host has said that nothing is left, and has sent the rest of the logs."""
        self.failure = self.error = None
        timeout = self.reach.connect_timeout
        self.link = Link(self._links, self, timeout, self._lease or None, LinkState.LOST)
        self.link.connect()

    @property
    def has_logs_begun(self) -> bool:
        return self._logs_began is not None or self._has_ended

    @property
    def lost_logs(self) -> Cause | None:
        """Why the rest of its logs is not here."""
        if self.mirror.failure is None:
            return None
        within = (self.mirror.failure,)
        return Cause(Code.LOGS_LEFT_ON_HOST, host=self.name, path=self.folder, within=within)

    @property
    def lease_left(self) -> float | None:
        """The seconds for which its agent may still have a lease; None: without end."""
        now = self._links.loop.now()
        return None if self._lease is None else max(0.0, self._lease_ends - now)

    def stop(self, *, at_once: bool) -> None:
        """Limit the wait, because the job ends: to a minute, or to the end of a longer lease.

        `at_once`: not for logs, nor for the lease if the tasks are known to have ended.
        """
        seconds = 0.0 if at_once and self._logs_began is not None else self.lease_left or 0.0
        if not at_once:
            seconds = max(seconds, _CLEARING_SECONDS)
        self._stop.move_forward(self._links.loop.now() + seconds)

    def give_up(self) -> None:
        """Wait no longer, without a call of `on_end`."""
        self._slow.cancel()
        self._stop.cancel()
        if self.link.state is not LinkState.GONE:
            self.link.end()

    # Times ---------------------------------------------------------------------------------

    def _on_slow(self) -> None:
        if self.failure is None and not self.has_logs_begun:
            self._report(Cause(Code.NOT_ANSWERED))

    def _report(self, cause: Cause) -> None:
        on_delay, self._on_delay = self._on_delay, lambda _agent, _cause: None
        on_delay(self, cause)

    def _on_stop(self) -> None:
        self._is_stopped = True
        self.on_expired()

    def on_expired(self) -> None:
        if self._has_ended:
            self._on_cleared()
        elif self._logs_began is not None and (
            self._is_stopped or self._logs_due <= self._links.loop.now()
        ):
            # The rest stays on the host.
            self.mirror.failure = Cause(Code.LOGS_TOO_SLOW)
            self._on_cleared()
        else:
            known = self.failure if self.link.connection is None else None
            self._retry(known or Cause(Code.NOT_ANSWERED))

    # The login -----------------------------------------------------------------------------

    def log_in(self, attempt: Attempt) -> Connection:
        self._tries += 1
        self.link.limit(attempt.connect_timeout + LOGIN_SECONDS)
        self._slow.move(self._links.loop.now() + _SLOW_SECONDS)
        known = (self._token, self._traces, self.folder)
        arguments = (*known, dict(self.mirror.sizes), self.mirror.limit, self._attempts)
        return self.reach.open(self._links.job_id, Login(Purpose.FORMER, arguments, attempt))

    def on_not_started(self, cause: Cause) -> None:
        self._retry(cause)

    def on_fault(self, _: Connection, cause: Cause) -> None:
        self._retry(cause)

    def on_exit(self, connection: Connection, status: int) -> None:
        if self._has_ended or connection.agent_is_gone(status):
            self._on_cleared()
            return
        alive = connection.tasks_alive(status, self.name)
        self._is_alive = alive is not None
        self._retry(alive or self.reach.diagnose(connection, status, was_up=True)[0])

    def on_messages(self, connection: Connection, messages: list[tuple[int, Report]]) -> None:
        for _, message in messages:
            if self._has_ended or isinstance(message, Damage):
                continue
            if self.link.state is not LinkState.UP:
                self.link.enter(LinkState.UP, _CLEARING_SECONDS)
            if isinstance(message, protocol.LogData) and message.name in self.mirror.sizes:
                self._write_log(message)
            elif isinstance(message, FilesPreserved):
                self.preserved = message
            elif isinstance(message, protocol.AgentExiting):
                self._has_ended = True
                self.link.limit(_EXIT_SECONDS)
                connection.channel.send(protocol.Ack(0))
            else:
                self._retry(Cause(Code.REPORT_UNASKED, name=type(message).__name__))
                return
            if self.mirror.failure is not None:
                self._on_cleared()
                return

    def _write_log(self, part: protocol.LogData) -> None:
        """Write a part of a log. Only what is new gives the host more time."""
        size = self.mirror.sizes[part.name]
        self.mirror.write(part)
        fresh = min(self.mirror.sizes[part.name] - size, len(part.data))
        now = self._links.loop.now()
        if self._logs_began is None:
            self._logs_began = now
        if fresh > 0:
            self._log_bytes += fresh
            seconds = _CLEARING_SECONDS + self._log_bytes / SLOWEST_LINK
            self._logs_due = self._logs_began + min(seconds, LONGEST_SHUTDOWN)
            self.link.limit(min(_CLEARING_SECONDS, self._logs_due - now))

    def _on_cleared(self) -> None:
        self.mirror.index_rest()
        self.failure = None
        self.give_up()
        self._on_end(self)

    def _retry(self, cause: Cause) -> None:
        self.failure = cause
        left, is_last = self.lease_left, self._is_stopped or self._tries >= _MOST_TRIES
        if self._lease is None and is_last:
            self.error = Cause(Code.FORMER_HOST_UNREACHABLE, host=self.name, within=(cause,))
        elif self._is_alive and (left == 0 or self._is_stopped):
            self.error = cause
        elif self._lease and (left == 0 or self._is_stopped):
            self.failure = Cause(Code.FORMER_LEASE_OVER, seconds=self._lease, within=(cause,))
        elif self._lease != 0:
            self.link.retry(left)
            self._report(cause)
            return
        # Without a lease it had ended before; the login was to make sure.
        self.give_up()
        self._on_end(self)


class FormerAgents:
    """The hosts that are being cleared. `on_finished` is called once for each agent."""

    def __init__(
        self,
        on_finished: Callable[[FormerAgent], None],
        on_delay: Callable[[FormerAgent, Cause], None] = lambda _agent, _cause: None,
    ) -> None:
        self._on_finished, self._on_delay = on_finished, on_delay
        self._agents: list[FormerAgent] = []

    def clear(self, agents: Iterable[FormerAgent]) -> None:
        """Start to clear hosts, unless they are being cleared."""
        for agent in [each for each in agents if each not in self._agents]:
            self._agents.append(agent)
            agent.clear(self._on_end, self._on_delay)

    def __len__(self) -> int:
        return len(self._agents)

    @property
    def silent(self) -> list[FormerAgent]:
        """Those that have not sent any part of their logs."""
        return [each for each in self._agents if not each.has_logs_begun]

    def stop(self, *, at_once: bool) -> None:
        """Limit the wait for all hosts, because the job ends: see :meth:`FormerAgent.stop`."""
        for agent in self._agents:
            agent.stop(at_once=at_once)

    def give_up(self, agents: Iterable[FormerAgent] | None = None) -> None:
        """Wait no longer for these hosts, or for any, without a call of `on_finished`."""
        for agent in list(self._agents if agents is None else agents):
            agent.give_up()
            self._agents.remove(agent)

    def _on_end(self, agent: FormerAgent) -> None:
        self._agents.remove(agent)
        self._on_finished(agent)


def make_former_reach(name: str, spec: Spec, found_as: str = "") -> Reach:
    """Return how to reach a host of earlier attempts, which the spec may not have any more."""
    host = next((each for each in spec.hosts if each.name == name), HostSpec(name=name))
    return make_reach(host, spec, found_as=found_as)


def find_former_agents(
    links: Links, spec: Spec, former: JobState, resumed: JobState, folder: JobFolder
) -> list[FormerAgent]:
    """Return what must be ended on other hosts before a resumed job starts."""
    limits = [each for each in (spec.log_max_size, former.log_max_size) if each is not None]
    found = []
    for name, host in resumed.former_hosts.items():
        if not host.token:  # it ended with its supervisor
            continue
        if host.kind == "srun":
            continue  # Slurm ends a step with its srun, and all steps with their allocation
        mirror = LogMirror(folder.logs, min(limits, default=None))
        for task in (*former.tasks.values(), *former.dropped.values()):
            if task.host == name:
                mirror.resume(folder.log_of(task.name).name, task.log_start)
        found.append(
            FormerAgent(
                *(name, make_former_reach(name, spec), links, mirror),
                token=host.token,
                traces=folder.traces(former, name),
                folder=host.folder,
                lease=0.0 if host.has_ended else former.timeouts.link,
            )
        )
    return found
