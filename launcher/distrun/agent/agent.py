"""The agent's loop: orders in, reports out, and whatever its tasks do in between.

One thread and one selector. Nothing is polled: a child's end comes as SIGCHLD through a wakeup
descriptor, growth of logs through inotify, the rest over the link or as a deadline.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple

from distrun.agent import unsent_reports
from distrun.agent.linux import facts, processes, syscalls
from distrun.agent.linux.oom import OomWatch
from distrun.agent.logs.index import LogIndexer
from distrun.agent.protocol import (
    PROTOCOL,
    Ack,
    Cause,
    Code,
    Configure,
    Fault,
    Hello,
    HoldPorts,
    Order,
    PortsHeld,
    PortsRefused,
    Progress,
    Reattach,
    Report,
    Shutdown,
    StartTask,
    StopTask,
    TaskEnded,
    TaskExited,
    TaskNotStarted,
    TaskStarted,
)
from distrun.agent.protocol.channel import Channel, ProtocolError
from distrun.agent.protocol.outbox import Outbox
from distrun.agent.tasks import program
from distrun.agent.tasks.notify import NotifySocket
from distrun.agent.tasks.ports import PortHolder, PortTakenError
from distrun.agent.tasks.task import LEFTOVER_GRACE, Task, owner_of

if TYPE_CHECKING:
    from distrun.agent.probe.probe import Probe

_PROGRESS_INTERVAL = 0.5
_KILL_AGAIN = 0.02
_READER_SECONDS = 10.0


class Agent:
    """Runs one job's tasks on this host for the supervisor at the other end of `channel`."""

    def __init__(
        self, channel: Channel[Order, Report], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._outbox: Outbox[Report] = Outbox()
        self._ports = PortHolder()
        self._preflight: Optional[Probe] = None
        self._oom = OomWatch()
        self._tasks: Dict[str, Task] = {}
        self._logs: Optional[LogIndexer] = None
        self._job_id = ""
        self._folder = ""
        self._disk_is_full = False
        self._lease: Optional[float] = 0.0
        self._lease_ends: Optional[float] = None
        self._leaving: Optional[float] = None
        """Since when it ends everything; the time at which what is left gets SIGKILL."""
        self._progress: Dict[str, Dict[str, str]] = {}
        self._progress_due: Optional[float] = None
        self._wakeup = syscalls.signal_pipe((signal.SIGCHLD, signal.SIGTERM))
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> None:
        """Serve until told to stop or nobody is there to serve; leaves no process behind."""
        self._selector.register(self._channel.reader, selectors.EVENT_READ, self._on_link)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._on_signal)
        while self._has_work():
            self._channel.watch_writing(self._selector)
            for key, _ in self._selector.select(self._timeout()):
                # What came before it in this round may have closed it.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            self._on_time()
        self._say_last()
        if self._channel.ended:
            unsent_reports.leave(self._folder, [report for _, report in self._outbox.after(0)])

    def _has_work(self) -> bool:
        return self._leaving is None or bool(self._tasks) or processes.reap()

    def _say_last(self) -> None:
        """Let a slow supervisor have the last reports; one that never reads has not long."""
        while self._channel.pending:
            if not select.select([], [self._channel.writer], [], _READER_SECONDS)[1]:
                break
            self._channel.flush()

    # Waiting -------------------------------------------------------------------------------

    def _timeout(self) -> Optional[float]:
        known = [due for due in self._dues() if due is not None]
        return max(0.0, min(known) - self._clock()) if known else None

    def _dues(self) -> List[Optional[float]]:
        dues = [task.next_look for task in self._tasks.values()]
        dues += [self._progress_due, self._lease_ends, self._leaving]
        if self._preflight is not None:
            dues += self._preflight.dues
        if self._logs is not None:
            dues.append(self._logs.next_look)
        if self._tasks:
            dues.append(self._oom.next_look)
        return dues

    def _on_time(self) -> None:
        now = self._clock()
        if self._logs is not None and self._logs.next_look is not None:
            if self._logs.next_look <= now:
                self._logs.look()
                self._check_disk()
            self._watch_logs()
        if self._progress_due is not None and self._progress_due <= now:
            self._send_progress()
        if self._preflight is not None:
            self._preflight.on_time(now)
        if self._tasks and self._oom.next_look <= now:
            self._oom.look()
        if self._lease_ends is not None and self._lease_ends <= now:
            self._leave()
        due = [each for each in self._tasks.values() if each.next_look is not None]
        for task in due:
            if task.next_look is not None and task.next_look <= now:
                self._advance(task)
        if self._leaving is not None and self._leaving <= now:
            self._end_strays(signal.SIGKILL)
            self._leaving = now + _KILL_AGAIN

    # The link ------------------------------------------------------------------------------

    def _on_link(self) -> None:
        try:
            orders = self._channel.receive()
        except ProtocolError as error:
            self._selector.unregister(self._channel.reader)
            self._report_fault(error.cause)
            self._leave()
            return
        self._obey_all(orders)
        if self._channel.ended:
            self._selector.unregister(self._channel.reader)
            self._on_link_lost()

    def _obey_all(self, orders: List[Tuple[int, Order]]) -> None:
        for _, order in orders:
            self._obey(order)

    def _on_link_lost(self) -> None:
        if self._lease is None:
            return
        if self._lease > 0 and self._tasks:
            self._lease_ends = self._clock() + self._lease
        else:
            self._leave()

    def _obey(self, order: Order) -> None:
        if isinstance(order, Configure):
            self._configure(order)
        elif isinstance(order, Reattach):
            for seq, report in self._outbox.after(order.after):
                self._channel.send(report, seq)
        elif isinstance(order, Ack):
            self._outbox.acknowledge(order.last)
        elif isinstance(order, HoldPorts):
            self._hold_ports(order)
        elif isinstance(order, StartTask):
            self._start(order)
        elif isinstance(order, StopTask):
            self._stop(order)
        elif isinstance(order, Shutdown):
            self._leave()
        else:
            self._answer(order)

    def _answer(self, order: Order) -> None:
        """Do what is a question of the preflight's."""
        if self._preflight is None:
            # Imported here, for most jobs have one host and none of it.
            from distrun.agent.probe.probe import Probe

            self._preflight = Probe(self._selector, self._ports, self._report, self._clock)
        self._preflight.execute(order, self._folder)

    def _report(self, report: Report) -> None:
        self._channel.send(report, self._outbox.add(report))

    def _report_fault(self, cause: Cause) -> None:
        self._report(Fault(cause, time.time()))

    def _configure(self, order: Configure) -> None:
        if order.protocol != PROTOCOL:
            self._report_fault(Cause(Code.PROTOCOL_DIFFERS, count=order.protocol, total=PROTOCOL))
            self._leave()
            return
        self._job_id = order.job_id
        self._lease = order.lease
        try:
            self._logs = self._open_logs(order)
        except OSError as error:
            number = error.errno or 0
            self._report_fault(Cause(Code.LOG_DIR_NOT_CREATED, path=order.folder, errno=number))
            return
        self._watch_logs()
        self._report(self._hello(order))

    def _open_logs(self, order: Configure) -> LogIndexer:
        self._folder = order.folder
        os.makedirs(order.folder, mode=0o700, exist_ok=True)
        return LogIndexer(self._clock)

    def _hello(self, order: Configure) -> Hello:
        return facts.hello(order.variables)

    def _hold_ports(self, order: HoldPorts) -> None:
        causes: List[Cause] = []
        held: List[int] = []
        for port in order.wanted:
            try:
                self._ports.hold(port)
                held.append(port)
            except PortTakenError as error:
                causes.append(error.cause)
            except OSError as error:
                causes.append(Cause(Code.PORT_NOT_HELD, port=port, errno=error.errno or 0))
        chosen: List[int] = []
        if not causes:
            try:
                chosen = self._ports.hold_free(order.free, order.first, order.last)
            except PortTakenError as error:
                causes = [error.cause]
            except OSError as error:
                number = error.errno or 0
                causes = [Cause(Code.FREE_PORTS_NOT_HELD, total=order.free, errno=number)]
        if causes:
            self._ports.release(held)
            self._report(PortsRefused(causes))
        else:
            self._report(PortsHeld(chosen, list(order.wanted)))

    # Tasks ---------------------------------------------------------------------------------

    def _start(self, order: StartTask) -> None:
        log = os.path.join(self._folder, order.log)
        notify = None
        env = program.environment(order)
        failed = Code.LOG_NOT_OPENED
        try:
            if self._logs is not None:
                self._logs.add(log)
            failed = Code.LOG_NOT_WRITTEN
            if order.marker:
                program.write_marker(log, order.marker)
            failed = Code.PROCESS_NOT_MADE
            if order.notify:
                notify = NotifySocket(order.task)
                env[b"DISTRUN_NOTIFY"] = notify.address.encode("ascii")
            execution = program.execute(order, log, env)
        except OSError as error:
            path = "" if failed is Code.PROCESS_NOT_MADE else order.log
            cause = Cause(failed, path=path, errno=error.errno or 0)
            self._report(TaskNotStarted(order.task, order.attempt, cause, time.time()))
            return
        task = Task(order, log, execution, notify, self._clock())
        self._tasks[order.task] = task
        self._selector.register(
            execution.exec_status, selectors.EVENT_READ, lambda: self._on_exec_status(task)
        )
        if notify is not None:
            self._selector.register(notify, selectors.EVENT_READ, lambda: self._on_notify(task))

    def _on_exec_status(self, task: Task) -> None:
        if task.execution is None:
            return
        self._selector.unregister(task.execution.exec_status)
        cause = program.read_exec_status(task.execution, task.order)
        task.execution = None
        if cause is not None:
            self._forget(task)
            self._report(TaskNotStarted(task.name, task.attempt, cause, time.time()))
            return
        self._report(TaskStarted(task.name, task.attempt, task.pid, time.time()))
        self._advance_all()
        if task.name in self._tasks:
            self._advance(task)  # it may have been told to stop meanwhile

    def _stop(self, order: StopTask) -> None:
        task = self._tasks.get(order.task)
        if task is not None:
            task.stop(order.signal, order.grace, self._clock())
            self._advance(task)

    def _on_signal(self) -> None:
        numbers = os.read(self._wakeup.fileno(), 4096)
        if signal.SIGTERM in numbers and self._leaving is None:
            self._report_fault(Cause(Code.AGENT_TERMINATED))
            self._leave()
        self._advance_all()

    def _advance_all(self) -> None:
        # Started reports come before exits, so what is still being executed waits.
        executed = [task for task in self._tasks.values() if task.execution is None]
        exited = [task for task in executed if task.check_exit()]
        if exited:
            self._check_disk()
        for task in exited:
            code = signum = None
            if task.exit is not None:
                code, signum = task.exit.code, task.exit.signal
            if self._logs is not None:
                self._logs.record(task.log)
            # What it said last belongs before its exit, however soon that came after it.
            self._on_notify(task)
            self._send_progress()
            self._report(
                TaskExited(
                    task.name,
                    task.attempt,
                    code,
                    signum,
                    time.time(),
                    lived=self._clock() - task.began,
                    oom=self._out_of_memory(task),
                    suspended=task.was_suspended,
                    was_told=task.is_told_to_stop,
                )
            )
        self._adopt()
        for task in executed:
            if task.exit is not None:
                self._advance(task)

    def _out_of_memory(self, task: Task) -> str:
        """What shows that the kernel killed it for want of memory; a shell exits 137 then."""
        exited = task.exit
        if exited is None or task.is_told_to_stop:
            return ""
        of_child = exited.code == 128 + signal.SIGKILL
        killed = of_child or exited.signal == signal.SIGKILL
        return self._oom.evidence(task.pid, of_child) if killed else ""

    def _adopt(self) -> None:
        """Reap orphans that have ended, and find out whose the others are."""
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
        """Those of this process's children that no task began with.

        An orphan's children become this process's before it can be reaped, so a pass that reaps
        none has seen all there are.
        """
        leaders = {task.pid for task in self._tasks.values()}
        while True:
            pids = [pid for pid in processes.children(os.getpid()) if pid not in leaders]
            if not [pid for pid in pids if _reaped(pid)]:
                break
        looked = [processes.look(pid) for pid in pids]
        return {process.pid: process for process in looked if process is not None}

    def _advance(self, task: Task) -> None:
        if task.advance(self._clock()):
            self._forget(task)
            if self._logs is not None:
                self._logs.record(task.log)
            self._report(TaskEnded(task.name, task.attempt, time.time()))

    def _forget(self, task: Task) -> None:
        if task.notify is not None:
            self._on_notify(task)
            self._send_progress()
            self._selector.unregister(task.notify)
        task.reap()
        del self._tasks[task.name]

    def _leave(self, grace: float = LEFTOVER_GRACE) -> None:
        """End everything: SIGTERM now, SIGKILL within a second."""
        if self._leaving is not None:
            return
        self._leaving = self._clock() + grace
        self._lease_ends = None
        for task in list(self._tasks.values()):
            task.stop(signal.SIGTERM, grace, self._clock())
            self._advance(task)
        self._adopt()
        self._end_strays(signal.SIGTERM)

    def _end_strays(self, signum: int) -> None:
        leaders = {task.pid for task in self._tasks.values()}
        for pid in processes.children(os.getpid()):
            if pid not in leaders:
                for process in processes.tree(pid):
                    processes.send(process, signum)

    # Logs and progress ---------------------------------------------------------------------

    def _watch_logs(self) -> None:
        """Hear of growth at once after a rest, and of none of it during one."""
        logs = self._logs
        if logs is None or logs.descriptor is None:
            return
        registered = logs.descriptor in self._selector.get_map()
        if logs.next_look is None and not registered:
            self._selector.register(logs.descriptor, selectors.EVENT_READ, self._on_growth)
        elif logs.next_look is not None and registered:
            self._selector.unregister(logs.descriptor)

    def _on_growth(self) -> None:
        if self._logs is not None:
            self._logs.look()
            self._check_disk()
            self._watch_logs()

    def _check_disk(self) -> None:
        """Say once that the disk is full, before anything that comes of it."""
        if self._logs is not None and not self._disk_is_full and self._logs.is_disk_full():
            self._disk_is_full = True
            self._report_fault(Cause(Code.LOG_DISK_FULL, path=self._folder))

    def _on_notify(self, task: Task) -> None:
        if task.notify is None:
            return
        values = task.notify.receive()
        if not values:
            return
        self._progress.setdefault(task.name, {}).update(values)
        if self._progress_due is None:
            self._progress_due = self._clock() + _PROGRESS_INTERVAL

    def _send_progress(self) -> None:
        for task, values in self._progress.items():
            self._channel.send(Progress(task, values, time.time()))
        self._progress.clear()
        self._progress_due = None


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
