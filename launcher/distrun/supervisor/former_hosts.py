"""The hosts of a job that is resumed: what earlier attempts have left there is ended first."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from distrun.agent.protocol import Cause, Code
from distrun.errors import HostError
from distrun.job import events
from distrun.supervisor.hosts.former_agents import FormerAgent, FormerAgents, find_former_agents
from distrun.supervisor.running_job import RunningJob


class FormerHosts:
    """Makes sure that nothing of earlier attempts is left anywhere; calls `on_cleared` then."""

    def __init__(self, job: RunningJob, on_cleared: Callable[[], None]) -> None:
        self._job, self._on_all_cleared = job, on_cleared
        self.agents = FormerAgents(self._on_cleared, self._on_not_cleared)

    def clear(self, assumed_dead: Collection[str]) -> None:
        """Clear the hosts. `assumed_dead`: those where a person says that nothing is left."""
        job = self._job
        if not job.state.former_hosts or job.former is None:
            if job.state.outcome is None:
                self._on_all_cleared()
            return
        links = job.hosts.links
        agents = find_former_agents(links, job.spec, job.former, job.state, job.folder)
        assumed = [each for each in agents if each.name in assumed_dead]
        self.agents.clear([each for each in agents if each not in assumed])
        names = {agent.name for agent in agents}
        # What ran on this machine has ended already.
        for host in [each for each in job.state.former_hosts if each not in names]:
            self._note_cleared(host)
        for agent in assumed:
            agent.failure = Cause(Code.FORMER_HOST_ASSUMED_DEAD)
            self._on_cleared(agent)

    def _on_cleared(self, agent: FormerAgent) -> None:
        job = self._job
        if agent.error is not None:
            job.abort(HostError(cause=agent.error))
            return
        if (lost := agent.lost_logs) is not None:
            job.emit(events.LogsIncomplete(at=time.time(), host=agent.name, cause=lost))
        if (preserved := agent.preserved) is not None:
            job.emit(events.FilesPreserved(host=agent.name, **preserved._asdict()))
        received = {} if agent.failure is None else agent.mirror.received
        if agent.failure is not None and job.former is not None:
            tasks = job.former.tasks.values()
            left = {task.name: task.attempt for task in tasks if task.host == agent.name}
            job.hosts.note_former(agent.name, left)
        self._note_cleared(agent.name, agent.failure, received)

    def _note_cleared(
        self, host: str, cause: Cause | None = None, received: Mapping[str, int] | None = None
    ) -> None:
        job, received = self._job, dict(received or {})
        job.emit(events.HostCleared(at=time.time(), host=host, cause=cause, received=received))
        if not job.state.former_hosts and job.state.outcome is None:
            self._on_all_cleared()

    def _on_not_cleared(self, agent: FormerAgent, cause: Cause) -> None:
        left = agent.lease_left
        self._job.emit(
            events.HostNotCleared(at=time.time(), host=agent.name, cause=cause, seconds=left)
        )
