"""Receives the rest of the logs of lost hosts, once those hosts are reached again.

The tasks of a lost host may restart elsewhere, and the copies of their logs go on with the next
attempts. So the rest goes into files of its own, which `distrun logs` shows at their place. The
login that receives it ends only what the lost agent has left there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distrun.agent.linux.job_processes import Traces
from distrun.agent.protocol import Cause, Code
from distrun.frozen import Frozen
from distrun.job import events
from distrun.job.folder import log_name
from distrun.lifecycle import LostAgent
from distrun.spec.model import Spec
from distrun.supervisor import forked_process
from distrun.supervisor.hosts.former_agents import FormerAgent, FormerAgents, make_former_reach
from distrun.supervisor.hosts.host import Host
from distrun.supervisor.hosts.link import Links
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.reach import Lifetime, Reach

_LAST_SECONDS = 5.0
"""How long a lost host may take to answer at the end of the job."""


class _Lost(Frozen):
    """What is known of a lost host. `before`: the bytes of each log that had come, by task."""

    before: Mapping[str, int]
    lacks_logs: bool
    cause: Cause


class LateLogs(FormerAgents):
    """The lost hosts of a job that may still have logs, whose last `limit` bytes are kept."""

    def __init__(
        self, links: Links, logs: Path, limit: int | None, on_event: Callable[[events.Event], None]
    ) -> None:
        super().__init__(self._on_received)
        self._links, self._logs, self._limit = links, logs, limit
        self._on_event = on_event
        self._lost: dict[FormerAgent, _Lost] = {}
        self._is_last = False
        """Whether hosts are tried a last time, because the job ends."""

    def add(self, host: Host, cause: Cause, at: float) -> dict[str, int]:
        """Remember a lost host. Returns how many bytes of its logs have arrived, by the task."""
        has_removed_all = host.has_announced_exit and not host.preserved_folder
        if host.reach.lifetime is not Lifetime.LEASE or not host.token or has_removed_all:
            return {}
        mirror = host.mirror
        received, lacks_logs = mirror.received, not mirror.is_complete
        for log in mirror.final_sizes:
            mirror.set_aside(log, at)
        mirror.failure = None
        self._lost[self._agent(host.name, host.reach, mirror, host)] = _Lost(
            mirror.received, lacks_logs, cause
        )
        return received

    def recall(self, lost: LostAgent, spec: Spec) -> None:
        """Remember an agent that an earlier supervisor of the job has lost."""
        mirror = LogMirror(self._logs, self._limit)
        for task, size in lost.received.items():
            mirror.add_late(log_name(task), lost.starts[task], size, lost.at)
        agent = self._agent(lost.host, make_former_reach(lost.host, spec), mirror, lost)
        self._lost[agent] = _Lost(mirror.received, lacks_logs=True, cause=lost.cause)

    def _agent(
        self, name: str, reach: Reach, mirror: LogMirror, lost: Host | LostAgent
    ) -> FormerAgent:
        return FormerAgent(
            *(name, reach, self._links, mirror),
            token=lost.token,
            traces=Traces(forked_process.token(), "", {}, self._links.job_id),
            folder=lost.folder,
            attempts=lost.attempts,
        )

    def receive(self, name: str) -> None:
        if not self._is_last:
            self.clear([agent for agent in self._lost if agent.name == name])

    def finish(self) -> None:
        """Try all hosts a last time, because the job ends: a host may have been reachable again."""
        self._is_last = True
        self._links.loop.call_at(self._links.loop.now() + _LAST_SECONDS, self._give_up_silent)
        self.clear(self._lost)

    def _give_up_silent(self) -> None:
        silent = self.silent
        self.give_up(silent)
        for agent in silent:
            agent.failure = self._lost[agent].cause
            self._on_received(agent)

    def abandon(self) -> None:
        """Wait for no host any more: the job must end at once."""
        self._is_last = True
        self.give_up()
        lost, self._lost = self._lost, {}
        for agent, each in lost.items():
            self._report_missing(agent, each, each.cause)

    def _on_received(self, agent: FormerAgent) -> None:
        lost = self._lost[agent]
        if agent.failure is not None and not self._is_last and agent.mirror.failure is None:
            return  # it may be reached again
        del self._lost[agent]
        late = {task: size - lost.before[task] for task, size in agent.mirror.received.items()}
        sizes = {task: size for task, size in late.items() if size > 0}
        if sizes:
            self._on_event(
                events.LogsReceivedLate(
                    at=time.time(), host=agent.name, sizes=sizes, folder=agent.folder
                )
            )
        if agent.preserved is not None:
            event = events.FilesPreserved(host=agent.name, **agent.preserved._asdict())
            self._on_event(event)
        if agent.failure is not None:
            self._report_missing(agent, lost, agent.failure)

    def _report_missing(self, agent: FormerAgent, lost: _Lost, why: Cause) -> None:
        if lost.lacks_logs:
            path, within = agent.folder, (why,)
            cause = Cause(Code.LOGS_LEFT_ON_HOST, host=agent.name, path=path, within=within)
            self._on_event(events.LogsIncomplete(at=time.time(), host=agent.name, cause=cause))
