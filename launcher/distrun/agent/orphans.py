"""The processes that a dead agent has left on its host: a new connection or a new agent ends them.

The guard of the agent ends them, or the process that stands by for the guard. Only if somebody has
killed all three, something is left.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import socket
import sys
import time
from typing import List, Mapping, NoReturn, Sequence

from distrun.agent.linux import job_processes, labels, processes

_GUARD_SECONDS = 20.0
_RETRY_SECONDS = 0.05
_GRACE = 1.0
_MOST_PIDS = 50


def end(job_id: str, attempts: Mapping[str, int]) -> List[int]:
    """End the processes of these attempts, and of earlier ones. Returns the ids of those left."""
    search = processes.searched(lambda: labels.find(job_id, attempts))
    return [each.pid for each in processes.Ending(_GRACE, search, _GRACE).run()][:_MOST_PIDS]


def end_login(left: Sequence[int]) -> NoReturn:
    """End a login that has found its agent gone. `left`: processes of the job that do not end."""
    words, code = job_processes.NO_AGENT, job_processes.EXIT_NO_AGENT
    if left:
        words = " ".join([job_processes.TASKS_ALIVE, *map(str, left[:_MOST_PIDS])])
        code = job_processes.EXIT_TASKS_ALIVE
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
    os._exit(code)


def wait_for_guard(name: str) -> List[int]:
    """Wait until agent, guard and its stand-in are gone. Returns those left after 20 s."""
    deadline = time.monotonic() + _GUARD_SECONDS
    resume(name)
    while not _is_free(name):
        if time.monotonic() > deadline:
            return _holders(name)
        time.sleep(_RETRY_SECONDS)
    return []


def resume(name: str) -> None:
    """Resume agent, guard and the process that stands by for it, in case they were suspended."""
    for pid in _holders(name):
        process = processes.find(pid)
        if process is not None and process.is_suspended:
            processes.send(process, signal.SIGCONT)


def _is_free(name: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.bind(name)
        except OSError:
            return False
    return True


def _holders(name: str) -> List[int]:
    """The processes of this user that have a socket of that name. See proc_net(5)."""
    shown = b"@" + name[1:].encode("ascii")
    with open("/proc/net/unix", "rb") as file:
        rows = [line.split() for line in file]
    sockets = {"socket:[{}]".format(int(row[6])) for row in rows if row[7:8] == [shown]}
    found = set()
    for path in glob.iglob("/proc/[0-9]*/fd/*"):
        pid = int(path.split("/")[2])
        with contextlib.suppress(OSError):
            if os.stat("/proc/{}".format(pid)).st_uid == os.getuid():
                found.update([pid] if os.readlink(path) in sockets else [])
    return sorted(found)[:_MOST_PIDS]
