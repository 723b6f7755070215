"""By what the processes of a job are recognized: see :class:`.job_processes.Traces`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.agent.linux import facts
from distrun.agent.linux.job_processes import Traces

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder
    from distrun.lifecycle import JobState


def of_host(folder: JobFolder, state: JobState, host: str) -> Traces:
    """Return what the job's processes on a host are recognized by."""
    first = {
        task.pid: (task.name, task.attempt, task.started_at)
        for task in state.tasks.values()
        if task.host == host and task.pid is not None and task.started_at is not None
    }
    known = {**state.former_hosts, **state.hosts}.get(host)
    return Traces(folder.token, "" if known is None else known.pid_namespace, first, folder.job_id)


def here(folder: JobFolder, state: JobState) -> Traces:
    """Return what the job's processes on this machine are recognized by."""
    own = facts.pid_namespace()
    first = {}
    for host in {**state.former_hosts, **state.hosts}.values():
        if host.pid_namespace == own:
            first.update(of_host(folder, state, host.name).first)
    return Traces(folder.token, own, first, folder.job_id)
