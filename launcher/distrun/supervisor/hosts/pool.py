"""All hosts of a job: connected in parallel, given orders, and released when they are gone."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from distrun.agent import protocol
from distrun.agent.linux import labels, processes, syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol import KILL_GRACE, Cause, Code, Order, Report
from distrun.job import events
from distrun.lifecycle import LostAgent
from distrun.spec.model import Spec
from distrun.supervisor import guard
from distrun.supervisor.forked_process import Process
from distrun.supervisor.hosts.host import Host, LogEnd
from distrun.supervisor.hosts.late_logs import LateLogs
from distrun.supervisor.hosts.link import Links
from distrun.supervisor.hosts.local import end_unused_agent
from distrun.supervisor.hosts.reach import Lifetime, Reach

if TYPE_CHECKING:
    from distrun.supervisor.hosts.file_delivery import FileSender

_MOST_NAMED = 20
"""How many processes a cause names that do not die."""


def _is_stopped(child: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG) is not None
    return False


class PoolObserver(Protocol):
    """Receives the events of the hosts. Each host has its name in the spec."""

    def on_report(self, host: str, report: Report) -> None:
        """The host's agent has sent a message."""

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        """Some hosts could not be reached. Called once, when all hosts have been tried."""

    def on_event(self, event: events.Event) -> None:
        """A link was lost or restored, logs are incomplete, or a host and its tasks are gone."""


class HostPool:
    """The hosts of one job."""

    def __init__(
        self, loop: Loop, spec: Spec, job_id: str, logs: Path, observer: PoolObserver
    ) -> None:
        self._loop, self._spec, self._logs = loop, spec, logs
        self.links = Links(loop, job_id)
        self.calls = self.links.calls
        self.on_event = observer.on_event
        self._observer = observer
        self._hosts: dict[str, Host] = {}
        self.late_logs = LateLogs(self.links, logs, spec.log_max_size, observer.on_event)
        self._former: dict[str, Mapping[str, int]] = {}
        """The last attempts of tasks that a lost host may have left."""
        self._reaches: dict[type[Reach], Reach] = {}
        """One reach of each kind."""
        self._endings: list[tuple[processes.Ending, Callable[[list[int]], None]]] = []
        """What hosts have left below this process and is being ended, and what follows then."""
        self._next_endings = loop.call_at(None, self._run_endings)
        self._is_ending = False
        self._removals: list[Process] = []
        """The processes that remove hosts which the job has created."""
        self.unreachable: dict[str, Cause] = {}
        """Why hosts could not be reached that were not reported yet."""

    def __len__(self) -> int:
        """The number of hosts that are not gone, or that send logs after they were lost."""
        others = len(self.late_logs) + len(self._endings) + len(self._removals)
        return len(self._hosts) + others

    def connect(self, reaches: Mapping[str, Reach]) -> None:
        """Start an agent on each host; its Hello follows as a report."""
        for name, reach in reaches.items():
            self._reaches.setdefault(type(reach), reach)
            about = (self._spec, self._logs, self._former.get(name, {}))
            self._hosts[name] = host = Host(name, reach, self.links, self, *about)
            host.link.connect()
        if all(reach.lifetime is not Lifetime.SUPERVISOR for reach in reaches.values()):
            end_unused_agent()

    def order(self, host: str, message: Order) -> None:
        """Send an agent an order. A host that is gone gets none."""
        if host in self._hosts:
            self._hosts[host].order(message)

    def set_logs_aside(self, hosts: Mapping[str, str]) -> None:
        """Keep apart what a host still sends of the log of a task that is on another now."""
        tasks: dict[str, set[str]] = {}
        for task, name in hosts.items():
            tasks.setdefault(name, set()).add(task)
        for name, host in self._hosts.items():
            host.set_logs_aside(tasks.get(name, ()))

    def log_end(self, host: str, task: str) -> LogEnd | None:
        """Return the end of a task's log on a host: see :meth:`.Host.log_end`."""
        return self._hosts[host].log_end(task) if host in self._hosts else None

    def order_all(self, message: Order) -> None:
        for host in list(self._hosts.values()):
            host.order(message)

    def shut_down(self) -> None:
        self._is_ending = True
        self.order_all(protocol.Shutdown())
        self._give_up_hosts()

    def _give_up_hosts(self) -> None:
        """Once the job ends and all hosts are gone, remove those that it has created."""
        if self._is_ending and not self._hosts:
            found = [each.release() for each in self._reaches.values() if each.release is not None]
            self._removals += [each for each in found if each and each.poll() is None]

    def deliver(self, host: str, sender: FileSender, parts: list[Order]) -> None:
        if host in self._hosts:
            self._hosts[host].send_list(sender, parts)

    def unanswered(self, hosts: Iterable[str], seconds: float) -> dict[str, Cause]:
        """Return for each of these hosts what it has not answered, for so many seconds."""
        return {
            name: Cause(
                Code.ORDER_NOT_ANSWERED,
                seconds=seconds,
                name=self._hosts[name].orders.unanswered,
            )
            for name in hosts
            if name in self._hosts
        }

    @property
    def below_supervisor(self) -> str | None:
        """A host whose agent and tasks are processes below this one; None: there is none."""
        return next((host.name for host in self._hosts_below), None)

    @property
    def _hosts_below(self) -> list[Host]:
        hosts = self._hosts.values()
        return [host for host in hosts if host.reach.lifetime is Lifetime.SUPERVISOR]

    def abandon_lost(self) -> None:
        """Stop waiting for hosts that are out of reach: the job must end at once."""
        for host in list(self._hosts.values()):
            host.abandon()
        self.late_logs.abandon()

    def end_at_once(self, seconds: float) -> None:
        """Have the agents within reach end after a defect. It takes so many seconds at most."""
        links = []
        for host in self._hosts.values():
            with contextlib.suppress(Exception):
                connection = host.end_at_once()
                links += [] if connection is None else [connection.channel]
        deadline = time.monotonic() + seconds
        while links and (left := deadline - time.monotonic()) > 0:
            pending = [each.writer for each in links if each.pending]
            syscalls.wait_until_ready([each.reader for each in links], pending, left)
            for each in links:
                each.flush()
                each.discard()
            links = [each for each in links if not each.ended]

    def note_former(self, host: str, attempts: Mapping[str, int]) -> None:
        """Have the next agent of a host end what is left there of these attempts of tasks."""
        self._former[host] = {**self._former.get(host, {}), **attempts}

    def recall_lost(self, agents: Iterable[LostAgent], spec: Spec) -> None:
        """Remember the agents that an earlier supervisor of the job has lost."""
        for agent in agents:
            self.late_logs.recall(agent, spec)
            self.note_former(agent.host, agent.attempts)

    def limit_ends(self, grace: float) -> None:
        """Do not wait for processes on this machine that do not die `grace` seconds from now on."""
        for host in self._hosts_below:
            host.orders.limit_ends(grace, processes.DEATH_SECONDS)

    def find_interruption(self, cause: Cause, follow: Callable[[Cause], None]) -> None:
        """Call `follow` with why this process gets SIGTERM, if the hosts' cluster has sent it."""
        first = next(iter(self._hosts.values()), None)  # all are of one cluster: it is asked once
        question = None
        if first is not None and first.link.connection is not None:
            question = first.reach.question(first.link.connection, cause)
        if question is None:
            follow(cause)
            return
        found = partial(question.cause, cause)
        self.calls.ask(question, lambda answer: follow(found(answer)))

    def check_exits(self) -> None:
        """Handle children that have exited or were stopped. A guard is resumed."""
        for host in self._hosts_below:
            if host.link.pid is not None and _is_stopped(host.link.pid):
                processes.resume(host.link.pid)
        self.links.check_exits()
        self._removals = [each for each in self._removals if each.poll() is None]
        # Clients that were killed, and what ssh had started, such as the ssh to a jump host.
        processes.reap(self._own_pids().__contains__)
        self._run_endings()

    def _run_endings(self) -> None:
        for each in list(self._endings):
            ending, follow = each
            if ending.step():
                self._endings.remove(each)
                follow([process.pid for process in ending.left])
        if self._endings:
            self._next_endings.move(self._loop.now() + processes.KILL_INTERVAL)

    # Events of a host ----------------------------------------------------------------------

    def on_report(self, host: Host, report: Report) -> None:
        self._observer.on_report(host.name, report)
        if isinstance(report, protocol.Hello):
            self.late_logs.receive(host.name)
            self._report_unreachable()

    def on_unreachable(self, host: Host, cause: Cause) -> None:
        def follow(cause: Cause) -> None:
            self.unreachable[host.name] = cause
            self._report_unreachable()

        self._release(host, cause, follow)

    def on_gone(self, host: Host, cause: Cause) -> None:
        self._release(host, cause, partial(self._report_gone, host))

    def _report_gone(self, host: Host, cause: Cause) -> None:
        failure = host.mirror.failure
        is_known = host.has_announced_exit or host.mirror.is_complete
        if host.mirror.sizes and (host.preserved_folder or not is_known):
            failure = failure or cause
        if failure is not None:
            is_cut_off = cause.code is Code.HOST_SILENT_TOO_LONG
            if path := host.preserved_folder or (host.folder if is_cut_off else ""):
                left = Cause(Code.LOGS_LEFT_ON_HOST, host=host.name, path=path)
                failure = left._replace(within=(failure,))
            self.on_event(events.LogsIncomplete(at=time.time(), host=host.name, cause=failure))
        at = time.time()
        received = self.late_logs.add(host, cause, at)
        self.on_event(events.HostLost(at=at, host=host.name, cause=cause, received=received))
        self._report_unreachable()

    def _report_unreachable(self) -> None:
        """Once every new host has answered or failed, report all that failed together."""
        if self.unreachable and not any(host.is_new for host in self._hosts.values()):
            causes, self.unreachable = self.unreachable, {}
            self._observer.on_unreachable(causes)

    def _release(self, host: Host, cause: Cause, follow: Callable[[Cause], None]) -> None:
        """Forget a host, and end the processes that it has left below this one.

        With the last host, all are ended. `follow` is called then, with the cause and those that do
        not die.
        """
        del self._hosts[host.name]
        self.note_former(host.name, host.attempts)
        if host.reach.lifetime is not Lifetime.SUPERVISOR and self._hosts:
            follow(cause)
            return
        self._give_up_hosts()

        def is_excluded(pid: int) -> bool:
            return pid in self._own_pids() or guard.outlives(pid)

        left, patience = (lambda: processes.descendants(is_excluded)), processes.DEATH_SECONDS
        ending = processes.Ending(KILL_GRACE, left, patience, labels.runs_no_task)
        if ending.step():
            follow(cause)
        else:
            self._endings.append((ending, lambda left: follow(self._with_left(host, cause, left))))
            self._next_endings.move(self._loop.now() + processes.KILL_INTERVAL)

    def _with_left(self, host: Host, cause: Cause, left: list[int]) -> Cause:
        """Return why a host is gone, with the processes of its tasks that do not die."""
        is_here = host.reach.lifetime is Lifetime.SUPERVISOR
        named = [pid for pid in left if is_here and not labels.runs_no_task(pid)]
        pids = " ".join(map(str, (named or left)[:_MOST_NAMED]))
        if named:
            return Cause(Code.PROCESSES_NOT_ENDED, text=pids, within=(cause,))
        if left:
            print(f"processes that do not die: {pids}", file=sys.stderr)  # noqa: T201 - its log
        return cause

    def _own_pids(self) -> set[int]:
        """The children of this process that it uses."""
        return self.links.pids | self.calls.pids | {each.pid for each in self._removals}
