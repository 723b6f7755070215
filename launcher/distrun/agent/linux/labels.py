"""Labels that show of which attempt a process is, whatever it has done to hide that.

A label is the soft limit RLIMIT_LOCKS. Linux has not applied this limit since 2.4, but every
process inherits it, also through a double fork, setsid and `env -i`; see getrlimit(2). An agent
alone gives it to the processes that become its tasks.

A program can change its own limit, and a login (su, pam_limits) may set another one. A label cannot
be given where the hard limit is lower.
"""

from __future__ import annotations

import os
import resource
import zlib
from typing import List, Mapping, Optional

from distrun.agent.linux import processes
from distrun.agent.linux.regular import content

_LOCKS = 10
"""RLIMIT_LOCKS, which Python does not name; it is the same on every architecture."""
_ATTEMPT_BITS = 32
_HIGHEST_JOB = 0x7FFFFFFF


def of_attempt(job_id: str, task: str, attempt: int) -> int:
    """The label of the processes of one attempt; never 0."""
    part = zlib.crc32("{} {}".format(task, attempt).encode("utf-8", "surrogateescape"))
    return _of_job(job_id) << _ATTEMPT_BITS | part


def is_of_job(label: int, job_id: str) -> bool:
    return label >> _ATTEMPT_BITS == _of_job(job_id)


def find(job_id: str, attempts: Mapping[str, int]) -> List[processes.Process]:
    """The living processes with the label of one of these attempts, or of an earlier one.

    `attempts` has the last one of each task, from 0.
    """
    wanted = {
        of_attempt(job_id, task, attempt)
        for task, last in attempts.items()
        for attempt in range(last + 1)
    }
    found = [processes.find(pid) for pid in processes.every_pid() if read(pid) in wanted]
    return [process for process in found if process is not None and not process.is_zombie]


def put(label: int, pid: int = 0) -> None:
    """Give a label to a process of this user and its later children, where that is possible."""
    try:
        hard = resource.prlimit(pid, _LOCKS)[1]
        resource.prlimit(pid, _LOCKS, (label, hard))
    except (OSError, ValueError):
        return  # a lower hard limit, or a kernel that has no such limit


def read(pid: int) -> Optional[int]:
    """The label of a process; None if it has none, or has ended."""
    try:
        soft = resource.prlimit(pid, _LOCKS)[0]
    except PermissionError:
        return _read_as_stranger(pid)
    except (OSError, ValueError):
        return None
    return soft if soft > 0 else None


def fits(pid: int) -> bool:
    """Whether a process of this user could have a label."""
    try:
        resource.prlimit(0, _LOCKS, resource.prlimit(0, _LOCKS))  # some kernels refuse that
        hard = resource.prlimit(pid, _LOCKS)[1]
    except (OSError, ValueError):
        return False
    return hard == resource.RLIM_INFINITY or hard >> _ATTEMPT_BITS >= _HIGHEST_JOB


def runs_no_task(pid: int) -> bool:
    """Whether a process has no label, although it could have one: distrun runs it for itself."""
    return read(pid) is None and fits(pid)


def _read_as_stranger(pid: int) -> Optional[int]:
    """The same of a process that has taken other users' rights. See proc_pid_limits(5)."""
    lines = content("/proc/{}/limits".format(pid)).splitlines()
    line = next((line for line in lines if line.startswith(b"Max file locks")), b"")
    words = line.split()
    return int(words[3]) or None if len(words) > 3 and words[3].isdigit() else None


def _of_job(job_id: str) -> int:
    """Of 31 bits, and not 0: a limit is a signed number in Python."""
    return zlib.crc32(os.fsencode(job_id)) & _HIGHEST_JOB or 1
