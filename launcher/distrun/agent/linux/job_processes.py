"""Which processes of this machine belong to a job, and how they are ended.

:func:`find` decides that for every command: resume, kill, clean, and what clears a host.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Dict, Iterable, List, Optional, Set, Tuple

from distrun.agent.linux import facts, labels, processes
from distrun.agent.linux.regular import numbers
from distrun.agent.structs import Struct

VARIABLE = "DISTRUN_TOKEN"
"""The variable with the job's token. Only agents and what they execute get it; neither the record
nor the plan has it."""
EXIT_NO_AGENT, NO_AGENT = 66, "distrun: its agent is gone"
"""How a login exits, and what it prints, if the agent and all that it had started are gone."""
EXIT_TASKS_ALIVE, TASKS_ALIVE = 68, "distrun: these processes do not end:"
"""The same if processes of the job do not end: their ids follow."""
_AGENT_SECONDS = 3.0
"""How long agents that have lost their supervisor may take to end their tasks and themselves."""
_SEARCH_INTERVAL = 0.05
_REAP_SECONDS = 2.0
_EXEC_SECONDS = 60.0
"""How long it may take from the start of a task's first process until it runs the program."""
_CLOCK_SECONDS = 1.0
"""By how much the wall clock may have been set since then."""


UNKNOWN = "unknown"
"""The name of a task that is not known: no task can have it."""


class Traces(Struct):
    """What processes of a job are recognized by.

    Attributes:
        token: the job's; empty: it is not known.
        namespace: where the ids in `first` are valid: see :func:`.facts.pid_namespace`.
        first: by the id of a task's first process: its name, its attempt, and when it ran the
            program (Unix seconds).
        job_id: the job's id, for the labels of its attempts: see :mod:`.labels`.
        asker: the supervisor or command that asks, which is on another machine or on this one, by
            its namespace and id. What it has started is not meant, such as its ssh clients.
    """

    token: str
    namespace: str
    first: Dict[int, Tuple[str, int, float]]
    job_id: str
    asker: Tuple[str, int] = ("", 0)


class Member(Struct):
    """A process of a job. Without a known attempt (-1), `task` is empty (an agent) or UNKNOWN."""

    process: processes.Process
    task: str
    attempt: int


class Ended(Struct):
    """How many processes there were, and those of tasks, and of distrun (`own`), that are left."""

    count: int
    left: List[processes.Process]
    own: List[processes.Process]


def find(traces: Traces) -> List[Member]:
    """Return the job's living processes on this machine.

    They are: a task's first process, by its id and start; a process with the label of one of the
    job's attempts; a process of distrun that was executed with the job's token; all descendants of
    these, and all processes of their sessions, whatever their environment is.

    Anybody can copy a task's environment, for example with `export`, but not its label. Only a
    process that could not get a label (:mod:`.labels` says why) is a task's by the token alone. If
    it is not below another one of the job, it is a stranger's if it has a terminal, or if the
    leader of its session lives without the token: tasks have no terminal, and each leads a session
    of its own. A copy then remains undetected if it has a session of its own and no terminal, or if
    the shell that it was made in has ended.

    Never this process, its ancestors and other processes of their sessions.
    """
    found = map(processes.find, processes.every_pid())
    alive = {each.pid: each for each in found if each is not None and not each.is_zombie}

    def ancestors(pid: int) -> List[int]:
        line: List[int] = []
        while pid in alive and pid not in line:
            line.append(pid)
            pid = alive[pid].parent
        return line

    marked: Dict[int, Member] = {}
    for pid, process in alive.items():
        member = _first(process, traces) or _marked(process, traces)
        member = member or _labelled(process, traces.job_id)
        if member is not None:
            marked[pid] = member
    roots: Dict[int, Member] = {}
    for pid, member in marked.items():
        top = [each for each in ancestors(pid) if each in marked][-1]
        if _is_own(alive[top], marked, traces):
            roots[pid] = member
    sessions = {alive[pid].session: root for pid, root in roots.items()}
    callers = set(ancestors(os.getpid()))
    spared = {alive[pid].session for pid in callers}
    asker = traces.asker[1] if traces.asker[0] == facts.pid_namespace() else 0
    members = []
    for pid, process in alive.items() if roots else ():
        line = ancestors(pid)
        above = next((each for each in line if each in roots), None)
        root = sessions.get(process.session) if above is None else roots[above]
        if root is None or pid in callers or asker in line:
            continue
        if process.session not in spared:
            members.append(root._replace(process=process))
    return members


def _is_own(top: processes.Process, marked: Dict[int, Member], traces: Traces) -> bool:
    """Whether a process has the token from an agent, and not from a copy of a task's.

    `top`: the highest of it and the marked processes above it.
    """
    if _first(top, traces) is not None or _labelled(top, traces.job_id) is not None:
        return True
    if top.terminal or top.session in marked:
        return not top.terminal
    # It may have begun to end before its environment was read.
    leader = processes.find(top.session)
    return leader is None or leader.is_exiting


def end_all(traces: Traces, grace: float) -> Ended:
    """End all processes of a job on this machine whose supervisor does not live.

    Its agents end their tasks and themselves, if they can. After three seconds, what is left gets
    SIGTERM, and SIGKILL after `grace` seconds.
    """
    seen: Dict[int, processes.Process] = {}
    deadline = time.monotonic() + _AGENT_SECONDS
    while time.monotonic() < deadline:
        found = find(traces)
        seen.update((each.process.pid, each.process) for each in found)
        agents = [each.process for each in found if not each.task]
        if not agents:
            break
        for process in agents:
            processes.send(process, signal.SIGCONT)
        time.sleep(_SEARCH_INTERVAL)
    of_tasks: Set[int] = set()

    def search() -> List[processes.Process]:
        members = find(traces)
        seen.update((each.process.pid, each.process) for each in members)
        of_tasks.update(each.process.pid for each in members if each.task)
        return [each.process for each in members]

    def is_own(pid: int) -> bool:
        return pid not in of_tasks

    again = processes.searched(search)
    left = processes.Ending(grace, again, processes.DEATH_SECONDS, is_own).run()
    if not left:
        _wait_until_reaped(seen.values())
    own = [each for each in left if is_own(each.pid)]
    return Ended(len(seen) - len(left), [each for each in left if each not in own], own)


def _wait_until_reaped(ended: Iterable[processes.Process]) -> None:
    """Wait a moment for those that have adopted processes: others see them until then."""
    deadline = time.monotonic() + _REAP_SECONDS
    left = [each for each in ended if processes.exists(each)]
    while left and time.monotonic() < deadline:
        time.sleep(processes.KILL_INTERVAL)
        left = [each for each in left if processes.exists(each)]


def _first(process: processes.Process, traces: Traces) -> Optional[Member]:
    """Return it as a task's first process, if it is one. A later one of this id started later."""
    task, attempt, executed_at = traces.first.get(process.pid, ("", -1, 0.0))
    if not task or process.session != process.pid or traces.namespace != facts.pid_namespace():
        return None
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    age = executed_at - booted_at - process.started / os.sysconf("SC_CLK_TCK")
    return Member(process, task, attempt) if -_CLOCK_SECONDS < age < _EXEC_SECONDS else None


def _marked(process: processes.Process, traces: Traces) -> Optional[Member]:
    """Return it as what it was executed as, if that was with the token, by this user."""
    if not traces.token:
        return None
    pid, expected = process.pid, os.fsencode(traces.token)
    env = processes.environment(pid)
    if env.get(os.fsencode(VARIABLE)) != expected or _user(pid) != os.getuid():
        return None
    task = os.fsdecode(env.get(b"DISTRUN_TASK", b""))
    if task and _labelled(process, traces.job_id) is None and labels.fits(pid):
        return None
    attempt = env.get(b"DISTRUN_ATTEMPT", b"")
    return Member(process, task, int(attempt) if attempt.isdigit() else -1)


def _labelled(process: processes.Process, job_id: str) -> Optional[Member]:
    """Return it as a task's process, if it has the label of an attempt of the job."""
    label = labels.read(process.pid) if job_id else None
    is_own = label is not None and labels.is_of_job(label, job_id)
    return Member(process, UNKNOWN, -1) if is_own else None


def _user(pid: int) -> Optional[int]:
    """Return the real user id of a process; None if it has ended. See proc_pid_status(5)."""
    return numbers("/proc/{}/status".format(pid)).get("Uid")
