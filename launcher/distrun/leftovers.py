"""What is left of a job whose supervisor does not live: it is found, and ended.

Which processes are the job's is decided by :func:`distrun.agent.linux.job_processes.find`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun import traces
from distrun.agent.linux import job_processes
from distrun.agent.protocol import KILL_GRACE, Cause, Code
from distrun.errors import HostError

if TYPE_CHECKING:
    from distrun.jobstore import JobFolder
    from distrun.lifecycle import JobState


def exist_here(folder: JobFolder) -> bool:
    """Return whether processes of the job run on this machine."""
    return bool(job_processes.find(traces.here(folder, folder.state())))


def end_here(folder: JobFolder, state: JobState) -> int:
    """End the job's processes on this machine. Returns how many there were.

    Raises:
        HostError: some do not end.
    """
    ended = job_processes.end_all(traces.here(folder, state), KILL_GRACE)
    if ended.left:
        pids = " ".join(str(each.pid) for each in ended.left)
        raise HostError(cause=Cause(Code.FORMER_TASKS_ALIVE, host="localhost", text=pids))
    return ended.count
