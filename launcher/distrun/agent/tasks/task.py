"""One attempt of one task: its processes, how it is stopped, and when it has ended.

A task has ended when no process of it is left: neither its first process, nor a descendant of that,
nor an orphan. The first process is not reaped before, so that its process id, group and session
cannot be reused, and no signal can reach another process.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from typing import Dict, Iterator, List, Optional, Tuple

from distrun.agent.linux import labels, processes
from distrun.agent.protocol import KILL_GRACE, Cause, Code
from distrun.agent.tasks.program import Start

_ENDING_SECONDS = 0.5
"""How long the processes of a program may take to end after its first one, on a busy host, too."""
_PRINTING_SECONDS = 1.0
"""How long one process may take to print where it is, before the next one is asked."""
_FEWEST_FAILED, _LEAST_FAILING_SECONDS, _LONGEST_BETWEEN = 10, 5.0, 20.0
"""When children fail one after another without end: how many, for how long, how soon each, and how
soon the task exits by the last one."""
_LEAST_CONTACT_CHECKS = 3
_LEAST_SECONDS_SEEN = 5.0
"""A server of a shorter attempt may not have been seen."""


class Task:
    """A running attempt. `orphans` are those of its processes that this process has adopted."""

    def __init__(self, start: Start, pid: int, exec_status: int, began: float) -> None:
        order = start.order
        self.start = start
        self.name, self.attempt = order.task, order.attempt
        self.log, self.notify = start.log, start.notify
        self.pid, self.began = pid, began
        self.port = order.port
        self.shares_port = not order.binds_port
        """Whether the agent holds its port, or what its program has left free of it."""
        self.listening: List[int] = []
        """The ports that it was found to listen on, sorted."""
        self.loopback: Optional[Cause] = None
        """Where it listens, if no other host can connect to it there."""
        self.child: Optional[Cause] = None
        """The last of its other processes that a signal killed, which distrun did not send; or, of
        a task that hung, one that had failed, and for which nobody had waited."""
        self._failed: Optional[Cause] = None
        """How the last of its processes failed that has."""
        self._failed_at, self._fails_since, self._fails = 0.0, 0.0, 0
        """When that was, since when they fail alike, and how often."""
        self._programs: Dict[int, str] = {}
        self._failed_program: Optional[Tuple[Cause, float]] = None
        """The commands of the Python programs that its first process, a shell perhaps, has run; and
        how the last of these that failed has."""
        self.has_listened = False
        """Whether any of its processes was seen to listen on a port."""
        self.contact_checks = 0
        """How often it was looked for such a connection in vain."""
        self.has_met = False
        """Whether another process was seen to be connected to such a port."""
        self.exec_status: Optional[int] = exec_status
        """The pipe of :func:`.program.execute`; None: it has been read."""
        self.exit: Optional[Tuple[Optional[int], Optional[int]]] = None
        """The code or the signal by which the first process ended."""
        self.orphans: Dict[int, processes.Process] = {}
        self.spent: List[processes.ChildUsage] = []
        """What those of its orphans that were reaped have used."""
        self.progress: Dict[str, str] = {}
        """The latest values that it has reported, of so many keys as are read."""
        self.due: Optional[float] = None
        """When :meth:`advance` is due without any event."""
        self.was_suspended = False
        """Whether it was suspended, e.g. by SIGSTOP, when it was first asked to stop. Not by the
        agent's py-spy, which pauses it for a moment."""
        self.left: List[str] = []
        """The commands of processes that were still running after an exit 0, and were ended."""
        self._left_due: Optional[float] = None
        """After an exit 0: until then, those that are left may be ending by themselves."""
        self._signal: int = signal.SIGTERM
        self._deadline: Optional[float] = None
        self._signalled: Dict[int, int] = {}
        self._with_stacks = False
        self._printing, self._printing_until = 0, 0.0
        """The process that was asked to print where it is, and how long others wait for its end."""

    @property
    def is_running(self) -> bool:
        """Whether its program has been executed, and its first process has not ended."""
        return self.exec_status is None and self.exit is None

    @property
    def is_stopping(self) -> bool:
        return self._deadline is not None

    @property
    def is_served(self) -> bool:
        return self.port in self.listening

    @property
    def needs_port_check(self) -> bool:
        """Whether it runs, has a port, and another user could listen on it, or it does not."""
        return self.port > 0 and self.exit is None and not (self.shares_port and self.is_served)

    def contact(self, now: float) -> str:
        """`met`, `alone`: it listened, and none came; `silent`: it never listened; '': unknown."""
        if not self.port or now - self.began < _LEAST_SECONDS_SEEN:
            return ""
        if self.has_met or not self.has_listened:
            return "met" if self.has_met else "silent"
        return "alone" if self.contact_checks >= _LEAST_CONTACT_CHECKS else ""

    def check_exit(self) -> bool:
        """True if the first process has ended since the last call; it stays unreaped."""
        if self.exit is not None:
            return False
        status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if status is None:
            return False
        number = status.si_status
        self.exit = (number, None) if status.si_code == os.CLD_EXITED else (None, number)
        if self.exit == (0, None) and not self.is_stopping:
            self._left_due = time.monotonic() + _ENDING_SECONDS
        return True

    def stop(self, signum: int, grace: float, now: float, with_stacks: bool = False) -> None:
        """Start to stop it, or shorten the time left. `grace`: seconds from signal to SIGKILL."""
        self._with_stacks = with_stacks
        if self._deadline is None and self.exit is None:
            self.was_suspended = self._is_suspended()
            if signum == signal.SIGABRT or with_stacks:
                self._find_failed_child()
        deadline = now + grace
        self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
        if signum != self._signal:
            self._signal = signum
            self._signalled = {}

    def note_failed_child(self, child: Cause, now: float) -> Optional[Cause]:
        """Note how a process of it has failed. Returns what to tell if they do so without end."""
        self.child, before = child if child.signal else self.child, self._failed or child
        is_like = (before.signal, before.status) == (child.signal, child.status)
        if not is_like or now - self._failed_at > _LONGEST_BETWEEN:
            self._fails_since, self._fails = now, 0
        self._failed, self._failed_at, self._fails = child, now, self._fails + 1
        seconds = now - self._fails_since
        if self._fails < _FEWEST_FAILED or seconds < _LEAST_FAILING_SECONDS:
            return None
        self._fails_since = math.inf
        count = self._fails
        return child._replace(code=Code.CHILDREN_FAIL, task=self.name, count=count, seconds=seconds)

    def note_programs(self) -> None:
        """Note the Python programs that its first process runs, if it is none itself."""
        if "python" in processes.command(self.pid).partition(" ")[0]:
            return
        for pid in set(processes.children(self.pid)) - self._programs.keys():
            program, space, arguments = processes.command(pid).partition(" ")
            name = program.rpartition("/")[2]
            if "python" in name:
                self._programs[pid] = name + space + arguments

    def note_failed_program(self, pid: int, status: int, now: float) -> None:
        """Note that such a program has exited with an error. Other commands may mean nothing."""
        if pid in self._programs:
            failed = Cause(Code.CHILD_KILLED, pid=pid, status=status, text=self._programs[pid])
            self._failed_program = failed, now

    def child_at_exit(self, now: float) -> Optional[Cause]:
        """How the process failed that may have led to the exit of the first one, or went unseen."""
        program, failed_at = self._failed_program or (None, 0.0)
        code = None if self.exit is None else self.exit[0]  # a stall has another reason
        since = 0.0 if code == 0 else now - _LONGEST_BETWEEN
        found = self.child or (self._failed if self._failed_at > since else None)
        return found or (program if code is not None and failed_at > since else None)

    def _find_failed_child(self) -> None:
        for each in processes.tree(self.pid):
            signum, code = each.status & 0x7F, each.status >> 8 or None
            if each.is_zombie and each.status not in (0, signal.SIGTERM) and self.child is None:
                self.child = Cause(Code.CHILD_KILLED, pid=each.pid, signal=signum, status=code)

    def _is_suspended(self) -> bool:
        tracer = processes.tracer(self.pid)
        if tracer is not None and tracer.session == os.getsid(0):
            return False
        first = processes.find(self.pid)
        return first is not None and first.is_suspended

    def advance(self, now: float) -> bool:
        """Send the signals that are due to the processes left. True once the task has ended."""
        self.due = None
        if self.exec_status is not None:
            return self._advance_unexecuted(now)
        if self.exit is not None:
            # Dying orphans count, too: their children become children of this process.
            if not self.orphans:
                return True
            is_over = self._deadline is not None and self._deadline <= now
            if self._left_due is not None and not is_over:
                if now < self._left_due:
                    self.due = self._left_due
                    return False
                self._left_due = None
                self.left = [processes.command(each.pid) for each in self.members()]
            if self._deadline is None:
                self.stop(signal.SIGTERM, KILL_GRACE, now)
        if self._deadline is None:
            return False
        if now < self._deadline:
            self.due = self._deadline
            self._signal_new(list(self.members()), now)
        else:
            self._kill()
            self.due = now + processes.KILL_INTERVAL
        return False

    def _advance_unexecuted(self, now: float) -> bool:
        """Before its program runs, a SIGTERM would be lost; only SIGKILL is sure to end it."""
        if self._deadline is not None:
            if now >= self._deadline:
                self._kill()  # it may not lead its group yet
            self.due = max(self._deadline, now + processes.KILL_INTERVAL)
        return False

    def members(self) -> Iterator[processes.Process]:
        """All living processes, the first one included."""
        roots = list(self.orphans)
        if self.exit is None:
            roots.append(self.pid)
        for root in roots:
            for process in processes.tree(root):
                if not process.is_zombie:
                    yield process

    def _signal_new(self, members: List[processes.Process], now: float) -> None:
        """Send the stop signal once to each process; those that print stacks wait in turn."""
        new = [each for each in members if self._signalled.get(each.pid) != each.started]
        if now < self._printing_until and any(each.pid == self._printing for each in members):
            self.due = now + processes.KILL_INTERVAL
            return
        if not self._signalled and not self._with_stacks and self._signal != signal.SIGABRT:
            for signum in (self._signal, signal.SIGCONT):
                self._signal_group(signum)
            self._signalled = {each.pid: each.started for each in new if each.group == self.pid}
            new = [each for each in new if each.group != self.pid]
        for count, each in enumerate(new, 1):
            signum, prints = self._signal_for(each)
            for number in (signum, signal.SIGCONT):
                processes.send(each, number)
            self._signalled[each.pid] = each.started
            if prints and count < len(new):
                left = (self._deadline or now) - now
                self._printing = each.pid
                self._printing_until = now + min(_PRINTING_SECONDS, left / len(new) / 2)
                self.due = now + processes.KILL_INTERVAL
                return

    def _signal_for(self, process: processes.Process) -> Tuple[int, bool]:
        """The signal for a process, and whether it then prints where it is."""
        signum = self._signal
        prints = signum == signal.SIGABRT or (
            self._with_stacks and not processes.handles(process.pid, signum)
        )
        if prints and processes.handles(process.pid, signal.SIGABRT):
            return signal.SIGABRT, True
        return signum, False

    def _signal_group(self, signum: int) -> None:
        """Signal the first process's group: safe, because its id is pinned until it is reaped."""
        # Only EPERM is possible, after a member has changed its user: the leader is our child.
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signum)

    def _kill(self) -> None:
        self._signal_group(signal.SIGKILL)
        for process in list(self.members()):
            if process.group != self.pid:
                processes.send(process, signal.SIGKILL)

    def reap(self) -> List[processes.ChildUsage]:
        """Reap the first process. After this no signal may be sent to its id.

        Returns what the task has used: this process and each orphan that ended before, with the
        descendants that they waited for.
        """
        if self.notify is not None:
            self.notify.close()
        spent = processes.reap_child(self.pid)
        return self.spent if spent is None else [*self.spent, spent]


def owner_of(orphan: processes.Process, tasks: Dict[str, Task], job_id: str) -> Optional[Task]:
    """The task of an orphan, by its session or its label.

    If it has no label (:mod:`.labels` says why), its environment or the log that it prints to may
    show it, or the task is the only one that runs. Otherwise it is unknown (None): a wrong guess
    could end a process that another task still needs. What the agent runs for itself is no task's.
    """
    if orphan.session == os.getsid(0):
        return None
    for task in tasks.values():
        if orphan.session == task.pid:
            return task
    label = labels.read(orphan.pid)
    if label is not None and labels.is_of_job(label, job_id):
        return next((task for task in tasks.values() if task.start.label == label), None)
    env = processes.environment(orphan.pid)
    if env.get(b"DISTRUN_JOB_ID") == os.fsencode(job_id):
        named = tasks.get(os.fsdecode(env.get(b"DISTRUN_TASK", b"")))
        if named is not None:
            return named
    printed_to = processes.outputs(orphan.pid)
    for task in tasks.values():
        if printed_to & processes.identity(task.log):
            return task
    return next(iter(tasks.values())) if len(tasks) == 1 else None
