"""The processes of a job on this machine, found by their environment, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from distrun.agent.linux import processes


def of_job(job_id: str) -> Iterator[Tuple[processes.Process, Dict[bytes, bytes]]]:
    """Yield this user's processes with the job's id in their environment, and their environments.

    root can read the environments of all users, and anybody can set that variable.
    """
    for name in os.listdir("/proc"):
        process = processes.find(int(name)) if name.isdigit() else None
        if process is not None and not process.is_zombie and _user(process.pid) == os.getuid():
            env = processes.environment(process.pid)
            if env.get(b"DISTRUN_JOB_ID") == os.fsencode(job_id):
                yield process, env


def tasks_of(job_id: str) -> List[processes.Process]:
    """Return the processes of the job's tasks."""
    return [process for process, env in of_job(job_id) if b"DISTRUN_TASK" in env]


def end(ended: Iterable[processes.Process], grace: float) -> List[processes.Process]:
    """End processes that are not descendants: SIGTERM, and SIGKILL after `grace` seconds.

    Returns those that have not ended after the same time again.
    """
    left = list(ended)
    for signum in (signal.SIGTERM, signal.SIGKILL):
        left = [process for process in left if processes.send(process, signum)]
        deadline = time.monotonic() + grace
        while left and time.monotonic() < deadline:
            time.sleep(processes.KILL_INTERVAL)
            left = [process for process in left if _is_alive(process)]
    return left


def _is_alive(process: processes.Process) -> bool:
    now = processes.find(process.pid)
    return now is not None and now.started == process.started and not now.is_zombie


def _user(pid: int) -> Optional[int]:
    """Return the real user id of a process; None if it has ended. See proc_pid_status(5)."""
    with contextlib.suppress(OSError), open("/proc/{}/status".format(pid), "rb") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(b"Uid:")), None)
    return None
