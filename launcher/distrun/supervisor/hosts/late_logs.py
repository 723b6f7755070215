"""Receives the rest of the logs of lost hosts, once those hosts are reached again.

When a host is lost, its tasks may restart elsewhere, and the copies of their logs continue with the
output of the next attempts. So the rest of its logs goes into files of its own, which `distrun
logs` shows at their place. The login that receives it ends only what the lost agent has left there:
the host may be the same machine as another host of the job.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distrun.agent.linux.job_processes import Traces
from distrun.agent.protocol import Cause, Code
from distrun.frozen import Frozen
from distrun.job import events
from distrun.job.folder import log_name
from distrun.supervisor import forked_process
from distrun.supervisor.hosts.former_agents import FormerAgent, FormerAgents, make_former_reach
from distrun.supervisor.hosts.log_mirror import LogMirror

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from distrun.agent.loop import Loop
    from distrun.lifecycle import LostAgent
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.host import Host
    from distrun.supervisor.hosts.reach import Reach

_LAST_SECONDS = 5.0
"""How long a lost host may take to answer at the end of the job."""


class _LostAgent(Frozen, kw_only=True):
    """What is known of a lost host's agent.

    `before`: how many bytes of each log had arrived before, by the task. `lacks_logs`: whether
    there may be more.
    """

    name: str
    reach: Reach
    token: str
    folder: str
    attempts: Mapping[str, int]
    mirror: LogMirror
    before: Mapping[str, int]
    lacks_logs: bool
    cause: Cause

    @property
    def received(self) -> dict[str, int]:
        """How many bytes of each log have arrived late, by the task."""
        fresh = {task: size - self.before[task] for task, size in self.mirror.received.items()}
        return {task: size for task, size in fresh.items() if size > 0}


class LateLogs:
    """The lost hosts of a job that may still have parts of logs.

    Args:
        logs: the job's folder for logs.
        limit: how many of the last bytes of each log are kept; None: all.
        on_event: called with what was received, or cannot be received.
    """

    def __init__(
        self,
        loop: Loop,
        job_id: str,
        logs: Path,
        limit: int | None,
        on_event: Callable[[events.Event], None],
    ) -> None:
        self._loop = loop
        self._agents = FormerAgents(loop, job_id, self._on_end)
        self._job_id = job_id
        self._logs = logs
        self._limit = limit
        self._on_event = on_event
        self._lost: list[_LostAgent] = []
        self._receiving: dict[FormerAgent, _LostAgent] = {}
        self._is_last = False
        """Whether hosts are tried a last time, because the job ends."""

    def __len__(self) -> int:
        """The number of hosts from which logs are being received."""
        return len(self._receiving)

    def add(self, host: Host, cause: Cause, at: float) -> dict[str, int]:
        """Remember a lost host for the reason that it was lost for.

        Returns how many bytes of its logs have arrived, by the task; nothing if it keeps none.
        """
        has_removed_all = host.has_announced_exit and not host.preserved_folder
        if not host.reach.can_reattach or not host.token or has_removed_all:
            return {}
        mirror = LogMirror(self._logs, self._limit)
        mirror.add_late_of(host.mirror, at)
        lost = _LostAgent(
            name=host.name,
            reach=host.reach,
            token=host.token,
            folder=host.folder,
            attempts=host.attempts,
            mirror=mirror,
            before=mirror.received,
            lacks_logs=not host.mirror.is_complete,
            cause=cause,
        )
        self._lost.append(lost)
        return host.mirror.received

    def recall(self, agent: LostAgent, spec: Spec) -> None:
        """Remember an agent that an earlier supervisor of the job has lost."""
        mirror = LogMirror(self._logs, self._limit)
        for task, size in agent.received.items():
            mirror.add_late(log_name(task), agent.starts[task], size, agent.at)
        lost = _LostAgent(
            name=agent.host,
            reach=make_former_reach(agent.host, spec),
            token=agent.token,
            folder=agent.folder,
            attempts=agent.attempts,
            mirror=mirror,
            before=mirror.received,
            lacks_logs=True,
            cause=agent.cause,
        )
        self._lost.append(lost)

    def receive(self, name: str) -> None:
        """Start to receive logs from a host that has been reached again."""
        if not self._is_last:
            self._start([lost for lost in self._lost if lost.name == name])

    def finish(self) -> None:
        """Try all hosts a last time, because the job ends: a host may have been reachable again."""
        self._is_last = True
        self._loop.call_at(self._loop.now() + _LAST_SECONDS, self._give_up_silent)
        self._start(list(self._lost))

    def _give_up_silent(self) -> None:
        silent = [agent for agent in self._receiving if not agent.has_logs_begun]
        self._agents.give_up(silent)
        for agent in silent:
            self._on_end(agent)

    def abandon(self) -> None:
        """Wait for no host any more: the job must end at once."""
        self._is_last = True
        self._agents.give_up()
        missing = [*self._lost, *self._receiving.values()]
        self._lost, self._receiving = [], {}
        for lost in missing:
            self._report_missing(lost, lost.cause)

    def _start(self, found: list[_LostAgent]) -> None:
        for lost in found:
            self._lost.remove(lost)
            agent = FormerAgent(
                *(lost.name, lost.reach, self._loop),
                token=lost.token,
                traces=Traces(forked_process.token(), "", {}, self._job_id),
                folder=lost.folder,
                logs={},
                lease=0.0,
                copies=self._logs,
                limit=self._limit,
                late=lost.mirror,
                attempts=lost.attempts,
            )
            self._receiving[agent] = lost
            self._agents.clear([agent])

    @property
    def pids(self) -> set[int]:
        """The processes of the logins on this machine."""
        return self._agents.pids

    def _on_end(self, agent: FormerAgent) -> None:
        lost = self._receiving.pop(agent)
        failure = agent.failure if agent.is_finished else lost.cause
        if failure is not None and not self._is_last and lost.mirror.failure is None:
            self._lost.append(lost)  # it may be reached again
            return
        if lost.received:
            self._on_event(
                events.LogsReceivedLate(
                    at=time.time(), host=agent.name, sizes=lost.received, folder=lost.folder
                )
            )
        if agent.preserved is not None:
            event = events.FilesPreserved(host=agent.name, **agent.preserved._asdict())
            self._on_event(event)
        if failure is not None:
            self._report_missing(lost, failure)

    def _report_missing(self, lost: _LostAgent, why: Cause) -> None:
        if lost.lacks_logs:
            cause = Cause(Code.LOGS_LEFT_ON_HOST, host=lost.name, path=lost.folder, within=(why,))
            self._on_event(events.LogsIncomplete(at=time.time(), host=lost.name, cause=cause))
