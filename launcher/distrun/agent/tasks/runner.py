"""Runs the tasks of this host: starts them, stops them, and reports their exits."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from typing import TYPE_CHECKING, Dict, List, Optional, Set, Tuple

from distrun.agent import protocol
from distrun.agent.linux import child_deaths, labels, limits, oom, processes
from distrun.agent.linux.regular import read_end
from distrun.agent.protocol import Cause, Code
from distrun.agent.tasks import program
from distrun.agent.tasks.notify import MOST_KEYS, NotifySocket
from distrun.agent.tasks.task import Task, owner_of
from distrun.agent.tasks.usage import UsageSampler

if TYPE_CHECKING:
    from distrun.agent.link import Link
    from distrun.agent.logs.task_logs import TaskLogs
    from distrun.agent.loop import Handle, Loop
    from distrun.agent.tasks.ports import PortHolder
    from distrun.agent.tasks.usage import Totals

_PROGRESS_INTERVAL = 0.5
_PORT_CHECK_PART, _LONGEST_PORT_CHECK_INTERVAL = 0.1, 30.0
"""How long after the last look there is another one, as a part of the youngest task's life."""
_PORT_CHECK_INTERVAL, _CONTACT_CHECK_INTERVAL, _AWAITED_PORT_CHECK_INTERVAL = 1.0, 0.5, 0.1
"""The least: usually, while a server has met nobody, and while others wait for one."""
_PROGRAMS_SECONDS = (0.02, 0.08, 0.3, 1.0)
"""When it is looked for the programs that a shell runs, before its usage is sampled."""
_END_BYTES = 16384
"""How much of a log's end is searched for words about a limit or a port."""
_MOST_OWNERS = 8
_LONGEST_LEFT = 255  # the supervisor refuses longer ones
_OF_CRASHES = (4, 5, 6, 7, 8, 9, 11, 31)
"""SIGKILL, and the signals that a program causes itself."""
_MOST_PREPARED = 8
"""More would leave the other processors without work meanwhile."""
_TRIES_SECONDS = 3.0
"""From a task's start: strace and GNU parallel first try what the system can, and kill for it."""


class TaskRunner:
    """The tasks of one job on this host."""

    def __init__(self, loop: Loop, link: Link, ports: PortHolder) -> None:
        self._loop = loop
        self._link = link
        self._ports = ports
        self._oom = oom.OomWatch()
        self._next_oom_update = loop.call_at(None, self._update_oom)
        self._usage = UsageSampler(loop, link.report)
        self._prepared: List[program.Start] = []
        self._tasks: Dict[str, Task] = {}
        self._advances: Dict[str, Handle] = {}
        """When each task has to be advanced, see :attr:`Task.due`."""
        self._resumes: Dict[str, Handle] = {}
        """When to read on in a task's socket for progress that has had its share of this moment."""
        self._job_id = ""
        self._progress: Dict[str, Dict[str, str]] = {}
        self._progress_report = loop.call_at(None, self._send_progress)
        self._deaths: Optional[socket.socket] = None
        self._last_start = 0.0
        self._refusals: Dict[str, int] = {}
        """How many forks each cgroup had refused when the first of these tasks began."""
        self._looked_at = 0.0
        self._port_check = loop.call_at(None, self._check_ports)
        self._all_listening: Dict[str, Tuple[int, int, str]] = {}
        """The listening sockets of this host at the last check: their ports, users, addresses."""

    def configure(self, job_id: str, logs: TaskLogs) -> None:
        """Set the job of the tasks, and where their logs go. Call this before :meth:`start`."""
        self._job_id = job_id
        self._deaths = child_deaths.open_socket()
        if self._deaths is not None:
            self._loop.watch(self._deaths, self._note_deaths)
        self._logs = logs

    def pids_of(self, name: str) -> List[int]:
        """The ids of a task's processes, its first one first; none if it does not run."""
        task = self._tasks.get(name)
        return [] if task is None else [process.pid for process in task.members()]

    @property
    def has_tasks(self) -> bool:
        return bool(self._tasks or self._prepared)

    # Orders --------------------------------------------------------------------------------

    def start(self, order: protocol.StartTask) -> None:
        """Prepare the program of one attempt for :meth:`execute_prepared`, or report a failure."""
        log = self._logs.path(order.log)
        notify = None
        env = program.environment(order)
        failed = Code.LOG_NOT_OPENED
        if order.binds_port:
            self._ports.unbind(order.port)
        try:
            self._logs.open(log)
            failed = Code.LOG_NOT_WRITTEN
            if order.marker:
                program.write_marker(log, order.marker)
            log_start = os.stat(log).st_size
            failed = Code.PROCESS_NOT_MADE
            if order.notify:
                notify = NotifySocket(
                    order.task,
                    lambda pid: self._is_of_task(order.task, pid),
                    lambda cause: self._link.report(
                        protocol.ProgressIgnored(order.task, cause, time.time())
                    ),
                )
                env[b"DISTRUN_NOTIFY"] = notify.address.encode("ascii")
        except OSError as error:
            self._report_failure(order, failed, error)
            return
        label = labels.of_attempt(self._job_id, order.task, order.attempt)
        self._prepared.append(program.Start(order, log, env, notify, label, log_start))
        if len(self._prepared) == _MOST_PREPARED:
            self.execute_prepared()

    def execute_prepared(self) -> None:
        """Fork all prepared programs in a row: after each fork, what is touched is copied."""
        prepared, self._prepared = self._prepared, []
        for start, (pid, exec_status) in [(each, self._execute(each)) for each in prepared]:
            if pid:
                self._add(start, pid, exec_status)

    def _execute(self, start: program.Start) -> Tuple[int, int]:
        """Fork one; of a fork that fails, which is reported, the id is 0."""
        try:
            return program.execute(start)
        except OSError as error:
            if start.notify is not None:
                start.notify.close()
            self._report_failure(start.order, Code.PROCESS_NOT_MADE, error)
            return 0, 0

    def _report_failure(self, order: protocol.StartTask, failed: Code, error: OSError) -> None:
        self._ports.rebind(order.port)
        path = "" if failed is Code.PROCESS_NOT_MADE else order.log
        self._report_not_started(order, Cause(failed, path=path, errno=error.errno or 0))

    def _report_not_started(self, order: protocol.StartTask, cause: Cause) -> None:
        self._link.report(protocol.TaskNotStarted(order.task, order.attempt, cause, time.time()))

    def _add(self, start: program.Start, pid: int, exec_status: int) -> None:
        task = Task(start, pid, exec_status, self._loop.now())
        if not self._tasks:
            self._refusals = limits.refusals(os.getpid())
        self._tasks[task.name] = task
        self._advances[task.name] = self._loop.call_at(None, lambda: self._advance(task))
        self._next_oom_update.move(self._oom.updated + oom.UPDATE_SECONDS)
        if task.port:
            self._all_listening = {}
            self._last_start = task.began
            self._plan_port_check()
        self._loop.watch(exec_status, lambda: self._on_exec_status(task))
        if start.notify is not None:
            self._loop.watch(start.notify, lambda: self._on_notify(task))
            self._resumes[task.name] = self._loop.call_at(None, lambda: self._on_notify(task))

    def stop(self, order: protocol.StopTask) -> None:
        """Start to stop a task, or shorten the time that it has left."""
        task = self._tasks.get(order.task)
        if task is not None:
            if task.port and not task.listening and self._looked_at < self._loop.now() - 0.2:
                self._find_listening()  # it may be why its peers have failed
            task.stop(order.signal, order.grace, time.monotonic(), order.with_stacks)
            self._advance(task)

    def stop_all(self, grace: float) -> None:
        """Send SIGTERM to all that was started, and SIGKILL to tasks after `grace` seconds."""
        self.execute_prepared()
        for task in list(self._tasks.values()):
            task.stop(signal.SIGTERM, grace, time.monotonic())
            self._advance(task)
        self._adopt_orphans()
        self.signal_strays(signal.SIGTERM)

    # Memory, ports and processor time ------------------------------------------------------

    def _update_oom(self) -> None:
        self._oom.update()
        if self._tasks:
            self._next_oom_update.move(self._oom.updated + oom.UPDATE_SECONDS)

    def _plan_port_check(self, *, is_soon: bool = False) -> None:
        now, tasks = self._loop.now(), self._tasks.values()
        unserved = [task for task in tasks if task.needs_port_check]
        unmet = [task for task in tasks if task.has_listened and not task.has_met]
        least = _CONTACT_CHECK_INTERVAL if unmet else _PORT_CHECK_INTERVAL
        seconds = least if is_soon else max(least, (now - self._last_start) * _PORT_CHECK_PART)
        if any(task.start.order.is_awaited and not task.is_served for task in unserved):
            seconds = _AWAITED_PORT_CHECK_INTERVAL
        seconds = min(seconds, _LONGEST_PORT_CHECK_INTERVAL)
        self._port_check.move(now + seconds if unserved or unmet else None)

    def _check_ports(self) -> None:
        # What a program that has begun to listen leaves free of its port is bound soon.
        self._plan_port_check(is_soon=self._find_listening())

    def _find_listening(self) -> bool:
        """Report where tasks listen. Returns whether that has changed."""
        # Imported here because short jobs need it never.
        from distrun.agent.linux import sock_diag

        for task in self._tasks.values():
            if task.needs_port_check and task.is_served:
                task.shares_port = self._ports.rebind(task.port)
        self._check_contacts([task for task in self._tasks.values() if task.has_listened])
        self._looked_at = self._loop.now()
        before, self._all_listening = self._all_listening, sock_diag.listening_ports()
        has_changed = False
        if self._all_listening == before:
            return has_changed  # reading the descriptors of all tasks would take longer
        for task in [each for each in self._tasks.values() if each.needs_port_check]:
            # The program's own sockets: a port that it listens on may be another than the task's.
            names = {name for each in task.members() for name in sock_diag.sockets_of(each.pid)}
            own = [self._all_listening[name] for name in names & self._all_listening.keys()]
            ports = {port for port, _, _ in own}
            task.loopback = _on_loopback(task, [each[2] for each in own if each[0] == task.port])
            for name, (port, user, _) in self._all_listening.items():
                if port != task.port or name in names:
                    continue
                if user not in (0, os.getuid()):
                    self._link.report_fault(
                        Cause(Code.PORT_OF_STRANGER, port=port, task=task.name, count=user)
                    )
                    task.port = 0
                    return has_changed
                if task.start.order.is_awaited:  # a container's listener is nobody's child here
                    ports.add(port)
            task.has_listened = task.has_listened or bool(ports)
            if sorted(ports) != task.listening:
                task.listening, has_changed = sorted(ports), True
                self._link.report(protocol.TaskListening(task.name, task.attempt, task.listening))
        return has_changed

    def _check_contacts(self, tasks: List[Task]) -> None:
        """See whether another process is connected to a port that a task listens on."""
        from distrun.agent.linux import sock_diag

        tasks = [task for task in tasks if not task.has_met]
        all_connections = sock_diag.connections() if tasks else []
        for task in tasks:
            ports = {task.port, *task.listening}
            task.contact_checks += 1
            remote = {(far, near) for near, far, _ in all_connections if near in ports}
            if not remote:
                continue
            names = {name for each in task.members() for name in sock_diag.sockets_of(each.pid)}
            # Its own end may have been opened, or closed, while the others were listed.
            later = sock_diag.connections()
            both = [*all_connections, *later]
            own = {(near, far) for near, far, name in both if name in names}
            task.has_met = not (remote - own).isdisjoint((far, near) for near, far, _ in later)

    def _contact(self, task: Task) -> str:
        """What is known of a task that has just exited: see :meth:`Task.contact`."""
        now = self._loop.now()
        contact = task.contact(now)
        if contact == "silent":
            if now - self._looked_at > 1.5 + (now - task.began) * 2 * _PORT_CHECK_PART:
                return ""  # it may have listened since
            # Imported here because most tasks need it never.
            from distrun.agent.linux import sock_diag

            closed = sock_diag.connections(are_closed=True)
            return "" if any(task.port in each[:2] for each in closed) else contact
        return contact

    def measure_cpu(self) -> None:
        ticks = {task.name: sum(p.ticks for p in task.members()) for task in self._tasks.values()}
        second = os.sysconf("SC_CLK_TCK")
        self._link.send(protocol.CpuMeasured({task: n / second for task, n in ticks.items()}))

    # Exits ---------------------------------------------------------------------------------

    def on_child_exit(self) -> None:
        """Report the tasks whose first process has exited, and adopt orphans."""
        # Started reports precede exits: a task that is still being executed must wait.
        executed = [task for task in self._tasks.values() if task.exec_status is None]
        exited = [task for task in executed if task.check_exit()]
        if exited:
            self._logs.check_disk()
        for task in exited:
            self._report_exit(task)
        self._adopt_orphans()
        for task in executed:
            if task.exit is not None:
                self._advance(task)

    def _on_exec_status(self, task: Task) -> None:
        if task.exec_status is None:
            return
        self._loop.unwatch(task.exec_status)
        cause = program.read_exec_status(task.exec_status, task.start.order)
        task.exec_status = None
        if cause is not None:
            self._remove(task)
            self._report_not_started(task.start.order, cause)
            return
        self._link.report(
            protocol.TaskStarted(
                task.name, task.attempt, task.pid, time.time(), task.start.log_start
            )
        )
        self._usage.start(task)
        for seconds in _PROGRAMS_SECONDS:
            self._loop.call_at(self._loop.now() + seconds, task.note_programs)
        self.on_child_exit()
        if task.name in self._tasks:
            self._advance(task)  # a stop may have been ordered meanwhile

    def _report_exit(self, task: Task) -> None:
        code, signum = task.exit or (None, None)
        self._logs.record(task.log)
        self._note_deaths()
        # The task's last progress precedes its exit, however soon the exit followed.
        self._on_notify(task)
        self._send_progress()
        self._link.report(
            protocol.TaskExited(
                task.name,
                task.attempt,
                time.time(),
                code,
                signum,
                lived=time.monotonic() - task.began,
                oom=self._oom_kill(task, code, signum),
                suspended=task.was_suspended,
                was_stopping=task.is_stopping,
                contact=self._contact(task) if code == 0 else "",
                child=task.child_at_exit(self._loop.now()),
                found=tuple(self._found(task, code, signum)),
            )
        )

    def _found(self, task: Task, code: Optional[int], signum: Optional[int]) -> List[Cause]:
        """What the host shows that may explain a task's exit, or that of its peers."""
        found = [] if task.loopback is None else [task.loopback]
        log = read_end(task.log, _END_BYTES) if code != 0 else b""
        if code != 0:
            # It may have hung since it hit a limit; a signal of this agent speaks of none.
            ended_by = 0 if task.is_stopping else signum or 0
            found += limits.read(task.pid, log, self._logs.size(task.log), ended_by, self._refusals)
        if code != 0 and not task.is_stopping:
            if self._deaths is None and re.search(rb"SIGKILL|killed|code:? -9\b", log):
                oom_kill = self._oom.find_kill(task.pid, True)
                found += [] if oom_kill is None else [oom_kill]
            if re.search(rb"(?i)in use|\bbind|could not start grpc|errno 98\b", log):
                from distrun.agent.linux import port_owners

                # Its own processes have ended, or are ending: what it has is no answer.
                own = {each.pid for each in task.members()}
                argued = _numbers(os.fsencode(" ".join(task.start.order.argv)))
                owners = port_owners.of_ports({*_numbers(log), *argued, task.port}, self._job_id)
                found += [
                    each._replace(count=int(each.port in argued))
                    for each in owners
                    if each.pid not in own
                ][:_MOST_OWNERS]
        return found

    def _note_deaths(self) -> None:
        deaths = [] if self._deaths is None else list(child_deaths.read(self._deaths))
        for pid, status, parent_id in deaths:
            signum, parent = status & 0x7F, processes.find(parent_id)
            if parent is None or (signum and signum not in _OF_CRASHES):
                continue
            for task in self._tasks.values():
                is_own = parent.session == task.pid
                is_own |= bool(signum) and any(each.pid == parent.pid for each in task.members())
                if pid == task.pid or task.is_stopping or not is_own:
                    continue
                is_of_python = "python" in processes.command(parent_id).partition(" ")[0]
                if not (signum or is_of_python):
                    task.note_failed_program(pid, status >> 8, self._loop.now())
                    continue
                oom = self._oom.find_kill(pid, False) if signum == signal.SIGKILL else None
                is_new = time.monotonic() - task.began < _TRIES_SECONDS
                if signum == signal.SIGKILL and oom is None and is_new and not is_of_python:
                    continue
                child = Cause(Code.CHILD_KILLED, pid=pid, signal=signum, status=status >> 8 or None)
                child = child._replace(within=() if oom is None else (oom,))
                told = task.note_failed_child(child, self._loop.now())
                if told is not None:
                    self._link.report(protocol.ChildrenFail(task.name, told, time.time()))

    def _oom_kill(self, task: Task, code: Optional[int], signum: Optional[int]) -> Optional[Cause]:
        """What shows that the kernel killed a task, or its shell's program, for its memory."""
        of_child = code == 128 + signal.SIGKILL
        is_killed = (of_child or signum == signal.SIGKILL) and not task.is_stopping
        return self._oom.find_kill(task.pid, of_child) if is_killed else None

    def _advance(self, task: Task) -> None:
        if task.advance(time.monotonic()):
            used = self._remove(task)
            self._logs.record(task.log)
            self._link.report(
                protocol.TaskEnded(
                    *(task.name, task.attempt, time.time(), *used),
                    left=len(task.left),
                    left_command="; ".join(sorted(set(task.left)))[:_LONGEST_LEFT],
                )
            )
        else:
            self._advances[task.name].move(task.due)

    def _remove(self, task: Task) -> Totals:
        """Reap a task, all of whose processes have ended; returns what they have used."""
        if task.notify is not None:
            self._on_notify(task)
            self._send_progress()
            self._loop.unwatch(task.notify)
            self._resumes.pop(task.name).cancel()
        used = self._usage.end(task, task.reap())
        self._ports.rebind(task.port)
        del self._tasks[task.name]
        self._advances.pop(task.name).cancel()
        self._logs.close(task.log)
        return used

    # Orphans -------------------------------------------------------------------------------

    def _adopt_orphans(self) -> None:
        """Reap orphans that have ended, and assign the others to their tasks."""
        found = self._orphans()
        known: Dict[int, processes.Process] = {}
        for task in self._tasks.values():
            for pid in [pid for pid in task.orphans if pid not in found]:
                del task.orphans[pid]
            known.update(task.orphans)
        for pid, process in found.items():
            if pid not in known or known[pid].started != process.started:
                owner = owner_of(process, self._tasks, self._job_id)
                if owner is not None:
                    owner.orphans[pid] = process

    def _orphans(self) -> Dict[int, processes.Process]:
        """The children of this process that are not the first process of a task.

        An orphan's children become children of this process before the orphan can be reaped. So a
        pass that reaps no process has seen all orphans.
        """
        while True:
            pids = self._strays()
            if not [pid for pid in pids if self._reap(pid)]:
                break
        found = [processes.find(pid) for pid in pids]
        return {process.pid: process for process in found if process is not None}

    def _reap(self, pid: int) -> bool:
        """Reap an orphan if it has ended. Returns whether it had."""
        process = processes.find(pid)
        try:
            spent = processes.reap_child(pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if spent is None:
            return False
        for task in self._tasks.values():
            if pid in task.orphans or (process is not None and process.session == task.pid):
                task.spent.append(spent)
        return True

    def _strays(self) -> List[int]:
        others = {task.pid for task in self._tasks.values()}
        return [pid for pid in processes.children(os.getpid()) if pid not in others]

    def signal_strays(self, signum: int) -> None:
        for pid in self._strays():
            for process in processes.tree(pid):
                processes.send(process, signum)

    # Progress ------------------------------------------------------------------------------

    def _on_notify(self, task: Task) -> None:
        notify = task.notify
        if notify is None:
            return
        values = notify.receive()
        self._resumes[task.name].move(notify.resume_due)
        if notify.resume_due is not None:
            self._loop.unwatch(notify)
        elif not self._loop.is_watched(notify):
            self._loop.watch(notify, lambda: self._on_notify(task))
        if values:
            is_urgent = "SAVING" in values  # it may take less than that
            is_urgent = is_urgent or ("STEP" in values and "STEP" not in task.progress)
            progress = self._progress.setdefault(task.name, {})
            for key, value in values.items():
                if key in progress or len(progress) < MOST_KEYS:
                    progress[key] = value
                    if key in task.progress or len(task.progress) < MOST_KEYS:
                        task.progress[key] = value
                else:
                    notify.note_excess()
            interval = 0.0 if is_urgent else _PROGRESS_INTERVAL
            self._progress_report.move_forward(self._loop.now() + interval)

    def _is_of_task(self, name: str, pid: int) -> bool:
        """Whether a process belongs to a task.

        One that has ended in the meantime is not known any more. It belonged to this user, so it
        is believed: a script may well report through a short-lived child.
        """
        process = processes.find(pid)
        if process is None:
            return pid > 0
        while process is not None and process.parent != os.getpid():
            process = processes.find(process.parent)
        if process is None:
            return False
        owner = owner_of(process, self._tasks, self._job_id)
        return owner is not None and owner.name == name

    def _send_progress(self) -> None:
        for task, values in self._progress.items():
            self._link.send(protocol.Progress(task, values, time.time()))
        self._progress.clear()
        self._progress_report.cancel()


def _numbers(text: bytes) -> Set[int]:
    """The numbers in a text that may be ports."""
    return set(map(int, re.findall(rb"(?<!\d)\d{2,5}(?!\d)", text)))


def _on_loopback(task: Task, addresses: List[str]) -> Optional[Cause]:
    """Where a task listens at its port, if that is only on loopback."""
    if not addresses or not all(each == "::1" or each.startswith("127.") for each in addresses):
        return None
    where = tuple("{}:{}".format(each, task.port) for each in sorted(addresses))
    return Cause(Code.LISTENS_ON_LOOPBACK, addresses=where)
