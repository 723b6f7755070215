"""Which processes still run."""

from __future__ import annotations

import psutil


def alive(process: psutil.Process | int) -> bool:
    """Tell whether a process (or process id) still runs; a zombie does not."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def survivors(job_id: str) -> list[psutil.Process]:
    """List living processes with this job's id in the environment they were started with."""
    wanted = f"DISTRUN_JOB_ID={job_id}".encode()
    found = []
    for pid in psutil.pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if wanted in environ.read().split(b"\0"):
                    found.append(psutil.Process(pid))
        except (OSError, psutil.NoSuchProcess):
            continue
    return [process for process in found if alive(process)]
