"""A process that leaves nothing behind: it ends what it has started when its parent ends."""

from __future__ import annotations

import os
import signal

from distrun.agent.linux import labels, processes, syscalls
from distrun.agent.protocol import KILL_GRACE

KEEPER = "distrun.kubernetes.keeper"
"""The module of the process that deletes a job's pods."""


def become_guard(parent: int) -> None:
    """Inherit all orphans below this process, and get SIGTERM when the parent ends.

    That signal must lead to :func:`end_processes`. Call this in a fork.
    """
    syscalls.become_subreaper()
    syscalls.die_with_parent(parent, signal.SIGTERM)


def end_processes(grace: float = KILL_GRACE) -> list[processes.Process]:
    """End all processes below this one, except those that outlive the job.

    They get SIGTERM, and SIGKILL after `grace` seconds. Returns those that do not die.
    """
    if not processes.children(os.getpid()):
        return []
    left, seconds = (lambda: processes.descendants(outlives)), processes.DEATH_SECONDS
    return processes.Ending(grace, left, seconds, labels.runs_no_task).run()


def outlives(pid: int) -> bool:
    """Whether a process below this one is not ended with the job: it ends by itself, later.

    So do connections that ssh shares among logins, and the process that deletes a job's pods.
    """
    from distrun.supervisor.hosts.local import isolated_python

    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            title = file.read().rstrip(b"\0 ")
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
    is_shared = program == "ssh" and title.startswith(b"ssh: ") and title.endswith(b" [mux]")
    return is_shared or title == b"\0".join(map(os.fsencode, isolated_python(KEEPER)))
