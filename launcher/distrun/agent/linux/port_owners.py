"""Who listens on a port: the process, its user, and of which task of which job it is."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Dict, Iterable, List, Set

from distrun.agent.linux import labels, processes, sock_diag
from distrun.agent.linux.regular import content
from distrun.agent.protocol import Cause, Code

_SEARCH_SECONDS = 0.1
"""Of this processor, to search processes for a socket: an owner not found by then is unknown."""


def of_ports(ports: Iterable[int], own_job: str = "") -> List[Cause]:
    """A PORT_TAKEN for each of these ports on which a process listens.

    `own_job`: its id is left out where a task of that job has the port.
    """
    wanted = set(ports)
    sockets: Dict[str, int] = {}
    users: Dict[int, int] = {}
    for name, (port, uid, _) in sock_diag.listening_ports().items():
        if port in wanted:
            sockets[name] = port
            users[port] = uid
    found = {port: _of_user(port, uid) for port, uid in users.items()}
    left: Set[str] = set(sockets)
    deadline = time.thread_time() + _SEARCH_SECONDS
    for pid in filter(str.isdigit, os.listdir("/proc") if sockets else ()):
        if not left or time.thread_time() > deadline:
            break
        with contextlib.suppress(OSError):
            if os.stat("/proc/" + pid).st_uid not in (*users.values(), 0):
                continue
            for name in left & sock_diag.sockets_of(pid):
                left.discard(name)
                found[sockets[name]] = _of_process(found[sockets[name]], int(pid), own_job)
    return list(found.values())


def _of_user(port: int, uid: int) -> Cause:
    cause = Cause(Code.PORT_TAKEN, port=port)
    if uid == os.getuid():
        return cause
    accounts = (line.split(b":") for line in content("/etc/passwd").splitlines())
    names = [os.fsdecode(each[0]) for each in accounts if each[2:3] == [b"%d" % uid]]
    return cause._replace(expected=(names or ["number {}".format(uid)])[0])


def _of_process(cause: Cause, pid: int, own_job: str) -> Cause:
    env = processes.environment(pid)
    job, task, attempt = (
        os.fsdecode(env.get(b"DISTRUN_" + each, b"")) for each in (b"JOB_ID", b"TASK", b"ATTEMPT")
    )
    comm = os.fsdecode(content("/proc/{}/comm".format(pid)).strip())
    cause = cause._replace(name=comm, pid=pid)
    # Anybody can copy the variables, but not the label.
    if attempt.isdigit() and labels.read(pid) == labels.of_attempt(job, task, int(attempt)):
        return cause._replace(task=task, text="" if job == own_job else job)
    return cause
