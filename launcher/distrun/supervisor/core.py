"""One job: its record, its state, its hosts, and the loop that joins them.

Every event goes through :meth:`Supervisor.emit`: into the record, through the lifecycle, to the
commands that watch; then the lifecycle's actions are carried out. Nothing is polled.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING

from distrun import events, lifecycle, transport
from distrun.agent import family, kernel, wire
from distrun.codec import to_json
from distrun.errors import DistrunError, HostError
from distrun.supervisor.clients import Client, Clients, happened
from distrun.supervisor.preparation import Preparation, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distrun.agent.wire import Message
    from distrun.jobstore import JobFolder
    from distrun.plan import Plan, TaskPlan
    from distrun.spec.model import Spec

_FAREWELL_SECONDS = 2.0
_REPORTS: dict[type, type[events.Event]] = {
    wire.TaskStarted: events.TaskStarted,
    wire.TaskNotStarted: events.TaskNotStarted,
    wire.TaskExited: events.TaskExited,
    wire.TaskEnded: events.TaskEnded,
}


class Supervisor:
    """Owns one job from its folder's making until nothing of it is left."""

    def __init__(
        self,
        folder: JobFolder,
        spec: Spec,
        launch: wire.Channel,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._record = events.EventLog(str(folder.events_file))
        self._record_failed = False
        self._state = lifecycle.JobState()
        self._timers: list[tuple[float, str]] = []
        self._links: dict[str, transport.AgentLink] = {}
        self._preparation: Preparation | None = None
        self._tasks: dict[str, TaskPlan] = {}
        self._progress: dict[str, wire.Progress] = {}
        self._finish: events.Outcome | None = None
        self._signals = kernel.signal_pipe((signal.SIGCHLD, signal.SIGTERM))
        self._clients = Clients(
            self._selector, folder.listen(), self._on_client, self._on_client_end
        )
        self._launch: Client | None = self._clients.add(launch)
        self._launch.is_watching = True
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signal)

    def run(self, early: Sequence[Message] = ()) -> None:
        """Run the job to its end. `early` is what its launch command has said already."""
        spec = self._spec
        self.emit(
            events.JobCreated(
                at=time.time(),
                job_id=self._folder.job_id,
                name=spec.name,
                strategy=spec.strategy,
                success=spec.success,
                spec_file=str(self._folder.spec_file),
                supervisor_pid=os.getpid(),
                grace=spec.timeouts.grace,
                start_timeout=spec.timeouts.start,
                run_timeout=spec.timeouts.run,
            )
        )
        for message in early:
            if self._launch is not None:
                self._on_client(self._launch, message)
        if self._state.outcome is None:
            self._prepare()
        self._finish_if_released()
        while not self._state.phase.is_final:
            self._wait()
            self._fire_timers()
            self._finish_if_released()
        self._say_farewell()

    def emit(self, event: events.Event) -> None:
        """Record an event and do what follows from it."""
        try:
            record = self._record.append(event)
        except OSError as error:
            record = events.encode(event)
            self._on_record_failure(error)
        self._clients.tell(happened(record))
        self._state, actions = lifecycle.step(self._state, event)
        for action in actions:
            self._perform(action)

    def end_everything(self) -> None:
        """After a defect: leave nothing running, blocking until that is so."""
        family.end_all(lifecycle.PROMPT_GRACE)

    # The lifecycle's actions ---------------------------------------------------------------

    def _perform(self, action: lifecycle.Action) -> None:
        if isinstance(action, lifecycle.StartTask):
            self._start_task(self._tasks[action.task], action.attempt)
        elif isinstance(action, lifecycle.StopTask):
            host = self._state.tasks[action.task].host
            if host in self._links:
                order = wire.StopTask(action.task, action.signal, action.grace)
                self._links[host].channel.send(order)
        elif isinstance(action, lifecycle.SetTimer):
            heapq.heappush(self._timers, (self._clock() + action.seconds, action.timer))
        else:
            self._finish = action.outcome
            for link in self._links.values():
                link.channel.send(wire.Shutdown())

    def _start_task(self, task: TaskPlan, attempt: int) -> None:
        env = {
            **task.env,
            "DISTRUN_JOB_ID": self._folder.job_id,
            "DISTRUN_ATTEMPT": str(attempt),
        }
        order = wire.StartTask(
            task=task.name,
            attempt=attempt,
            argv=list(task.argv),
            workdir=task.workdir,
            log=task.log,
            env=env,
            unset=list(task.unset),
        )
        self._links[task.host].channel.send(order)

    def _finish_if_released(self) -> None:
        """The job has ended once its agents have: they leave nothing behind."""
        if self._finish is None or self._links:
            return
        family.end_all(lifecycle.PROMPT_GRACE)
        self.emit(events.JobEnded(at=time.time(), outcome=self._finish))

    def _on_record_failure(self, error: OSError) -> None:
        with contextlib.suppress(OSError):  # its log is on the same disk
            print(f"the record cannot be written: {error}", file=sys.stderr)  # noqa: T201
        if self._record_failed:
            return
        self._record_failed = True
        reason = f"the job's record {self._folder.events_file} cannot be written: {error.strerror}"
        self.emit(events.Aborted(at=time.time(), reason=reason, exit_code=HostError.exit_code))

    # Hosts ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        try:
            self._preparation = Preparation(self._spec)
        except DistrunError as error:
            self._abort(error)
            return
        for host in self._preparation.hosts:
            link = transport.start_local_agent(host, self._folder.job_id)
            self._links[host] = link
            link.channel.send(
                wire.Configure(
                    wire.PROTOCOL, self._folder.job_id, str(self._folder.logs), lease=0.0
                )
            )
            self._selector.register(
                link.channel.reader, selectors.EVENT_READ, lambda each=link: self._on_agent(each)
            )

    def _abort(self, error: DistrunError) -> None:
        reason = error.message if error.hint is None else f"{error.message} ({error.hint})"
        self.emit(events.Aborted(at=time.time(), reason=reason, exit_code=error.exit_code))

    def _on_agent(self, link: transport.AgentLink) -> None:
        try:
            messages = link.channel.receive()
        except wire.WireError as error:
            self.emit(events.HostFault(at=time.time(), host=link.host, reason=str(error)))
            link.channel.ended = True
            link.channel.send(wire.Shutdown())
            messages = []
        last = 0
        for seq, message in messages:
            last = max(last, seq)
            self._on_report(link, message)
        if last:
            link.channel.send(wire.Ack(last))
        if link.channel.ended:
            self._selector.unregister(link.channel.reader)
            self._release_if_gone(link)

    def _on_report(self, link: transport.AgentLink, message: Message) -> None:
        kind = _REPORTS.get(type(message))
        if kind is not None:
            self.emit(kind(**message._asdict()))
        elif isinstance(message, wire.Progress):
            self._progress[message.task] = message
            self._clients.tell(message)
        elif isinstance(message, wire.Fault):
            self.emit(events.HostFault(at=message.at, host=link.host, reason=message.reason))
        elif self._state.outcome is None and self._preparation is not None:
            self._on_preparing(link, message, self._preparation)

    def _on_preparing(
        self, link: transport.AgentLink, message: Message, preparation: Preparation
    ) -> None:
        if isinstance(message, wire.Hello):
            self.emit(
                events.HostReady(
                    at=message.at,
                    host=link.host,
                    agent_pid=message.pid,
                    hostname=message.hostname,
                    python=message.python,
                    cores=message.cores,
                    gpus=tuple(message.gpus),
                )
            )
            link.channel.send(preparation.on_hello(link.host, message))
        elif isinstance(message, wire.PortsRefused):
            self._abort(refusal(link.host, message))
        elif isinstance(message, wire.PortsHeld):
            try:
                plan = preparation.on_ports(link.host, message)
                if plan is not None:
                    self._begin(plan)
            except DistrunError as error:
                self._abort(error)

    def _begin(self, plan: Plan) -> None:
        try:
            self._folder.plan_file.write_text(json.dumps(to_json(plan), indent=1) + "\n")
        except OSError as error:
            raise HostError(f"the plan cannot be written: {error}") from error
        self._tasks = {task.name: task for task in plan.tasks}
        records = tuple(
            events.TaskRecord(
                name=task.name,
                role=task.role.value,
                index=task.index,
                host=task.host,
                address=task.address,
            )
            for task in plan.tasks
        )
        self.emit(events.JobPlanned(at=time.time(), tasks=records))

    def _release_if_gone(self, link: transport.AgentLink) -> None:
        """Once its agent's process is gone: let the host go, or say that it is lost."""
        if self._links.get(link.host) is not link:
            return
        if not link.channel.ended or not link.has_exited():
            return
        if link.channel.writer in self._selector.get_map():
            self._selector.unregister(link.channel.writer)
        link.channel.close()
        del self._links[link.host]
        if self._finish is None:
            # Orphans of a dead agent have become this process's children.
            spare = {other.process.pid for other in self._links.values()}
            family.end_all(lifecycle.PROMPT_GRACE, spare)
            self.emit(events.HostLost(at=time.time(), host=link.host, reason=link.death))

    # Waiting -------------------------------------------------------------------------------

    def _wait(self) -> None:
        for link in self._links.values():
            link.channel.watch_writing(self._selector)
        self._clients.watch_writing()
        due = self._timers[0][0] - self._clock() if self._timers else None
        for key, _ in self._selector.select(None if due is None else max(0.0, due)):
            if key.fileobj in self._selector.get_map():
                key.data()

    def _fire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._clock():
            _, timer = heapq.heappop(self._timers)
            self.emit(events.TimedOut(at=time.time(), timer=timer))

    def _on_signal(self) -> None:
        numbers = os.read(self._signals.fileno(), 4096)
        if signal.SIGTERM in numbers:
            self._request_stop(
                wire.StopJob("SIGTERM to its supervisor", signal.SIGTERM, None, 128 + 15)
            )
        for link in list(self._links.values()):
            self._release_if_gone(link)

    # Commands ------------------------------------------------------------------------------

    def _on_client(self, client: Client, message: Message) -> None:
        if isinstance(message, wire.StopJob):
            self._request_stop(message)
        elif isinstance(message, wire.Detach) and client is self._launch:
            self._launch = None
        elif isinstance(message, wire.Watch):
            client.is_watching = True
            for progress in self._progress.values():
                client.channel.send(progress)

    def _on_client_end(self, client: Client) -> None:
        if client is not self._launch:
            return
        self._launch = None
        self._request_stop(
            wire.StopJob(
                "the death of its launch command", signal.SIGTERM, lifecycle.PROMPT_GRACE, 129
            )
        )

    def _request_stop(self, order: wire.StopJob) -> None:
        grace = self._spec.timeouts.grace if order.grace is None else order.grace
        self.emit(
            events.StopRequested(
                at=time.time(),
                reason=order.reason,
                signal=order.signal,
                grace=grace,
                exit_code=order.exit_code,
            )
        )

    def _say_farewell(self) -> None:
        """Let the commands have the last event; one that does not read is not waited for long."""
        deadline = self._clock() + _FAREWELL_SECONDS
        while self._clients.channels_to_flush and self._clock() < deadline:
            self._clients.watch_writing()
            for key, _ in self._selector.select(deadline - self._clock()):
                key.data()
