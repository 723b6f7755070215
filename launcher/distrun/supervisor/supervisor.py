"""One job: its record, its state, its hosts, and the loop that joins them.

Every event goes through :meth:`Supervisor.emit`: into the record, through the lifecycle, to the
commands that watch; then the lifecycle's actions are carried out. Nothing is polled.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from distrun import events, lifecycle, record
from distrun.agent import protocol
from distrun.agent.linux import processes, syscalls
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.channel import Channel
from distrun.codec import to_json
from distrun.errors import DistrunError, HostError
from distrun.plan import READ
from distrun.supervisor import tensorboard
from distrun.supervisor.clients import Client, Clients
from distrun.supervisor.failure_analyzer import FailureAnalyzer
from distrun.supervisor.hosts.pool import Callbacks, Hosts, unreachable_error
from distrun.supervisor.preparation import Preparation, start_order, task_record
from distrun.supervisor.stall import StallWatch
from distrun.supervisor.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distrun.agent.protocol import Report, Request
    from distrun.jobstore import JobFolder
    from distrun.plan import Plan, TaskPlan
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.diagnosis import Diagnosis
    from distrun.supervisor.hosts.file_delivery import Delivery
    from distrun.supervisor.preflight import Preflight
    from distrun.sync.manifest import Manifest

_FAREWELL_SECONDS = 2.0
_REPORTS: dict[type, type[events.Event]] = {
    protocol.TaskStarted: events.TaskStarted,
    protocol.TaskNotStarted: events.TaskNotStarted,
    protocol.TaskExited: events.TaskExited,
    protocol.TaskEnded: events.TaskEnded,
}


def _uncoded(text: str) -> Cause:
    return Cause(Code.UNCODED, text=text)


class Supervisor:
    """Owns one job from its folder's making until nothing of it is left.

    Args:
        launch: the launch command, whose end is the job's until it detaches.
        manifest: the files that other hosts are sent; None: they see what is here.
        cause_text: puts a cause into words, for the line with which a restart begins in a log.
        preflight: whether hosts that are not this machine are tried out first.
    """

    def __init__(
        self,
        folder: JobFolder,
        spec: Spec,
        launch: Channel[protocol.Request, protocol.Notice],
        *,
        cause_text: Callable[[Cause], str],
        manifest: Manifest | None = None,
        preflight: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._cause_text = cause_text
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._record = record.EventLog(str(folder.events_file))
        self._record_failed = False
        self._state = lifecycle.JobState()
        self._timers = Timers(clock)
        self._hosts = Hosts(
            self._selector,
            spec,
            folder.job_id,
            folder.logs,
            READ,
            Callbacks(
                report=self._on_report,
                gone=self._on_host_gone,
                unreachable=self._on_unreachable,
                link_lost=self._on_link_lost,
                link_restored=self._on_link_restored,
                logs_incomplete=self._on_logs_incomplete,
            ),
        )
        self._preparation: Preparation | None = None
        self._manifest = manifest
        self._delivery: Delivery | None = None
        self._plan: Plan | None = None
        self._wants_preflight = preflight
        self._preflight: Preflight | None = None
        self._tasks: dict[str, TaskPlan] = {}
        self._progress: dict[str, protocol.Progress] = {}
        self._stall: StallWatch | None = None
        if spec.timeouts.stall is not None:
            self._stall = StallWatch(spec.timeouts.stall, folder.log_of, clock)
        self._is_finishing = False
        self._analyzer = FailureAnalyzer(folder)
        self._signals = syscalls.signal_pipe((signal.SIGCHLD, signal.SIGTERM))
        self._clients = Clients(
            self._selector, folder.listen(), self._on_client, self._on_client_end
        )
        self._launch: Client | None = self._clients.add(launch)
        self._launch.is_watching = True
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signal)

    def run(self, early: Sequence[Request] = ()) -> None:
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
                timeouts=spec.timeouts,
                restart=spec.restart,
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
        self._record.release_reserve()
        self._folder.stop_listening()
        self._say_farewell()
        # Commands take the end of their connections for its own; none is to find it alive then.
        self._folder.release_lock()

    def emit(self, event: events.Event) -> None:
        """Record an event and do what follows from it."""
        self._clients.tell(protocol.JobEvent(self._write(event)))
        before = self._state
        self._state, actions = lifecycle.step(before, event)
        verdict = self._analyzer.on_event(before, event, self._state)
        if verdict is not None:
            self.emit(events.VerdictReached(at=time.time(), verdict=verdict))
        for action in actions:
            self._perform(action)

    def _write(self, event: events.Event) -> dict[str, Any]:
        """Into the record, behind the job's end where that is what comes of it."""
        with contextlib.suppress(OSError):
            try:
                return self._record.append(event)
            except OSError as error:
                self._on_record_failure(error)
            return self._record.append(event)
        return events.encode(event)

    def end_everything(self) -> None:
        """After a defect: leave nothing running, blocking until that is so."""
        processes.end_all(lifecycle.PROMPT_GRACE)

    # The lifecycle's actions ---------------------------------------------------------------

    def _perform(self, action: lifecycle.Action) -> None:
        if isinstance(action, lifecycle.StartTask):
            self._start_task(self._tasks[action.task], action.attempt, action.cause)
        elif isinstance(action, lifecycle.StopTask):
            host = self._state.tasks[action.task].host
            self._hosts.order(host, protocol.StopTask(action.task, action.signal, action.grace))
        elif isinstance(action, lifecycle.SetTimer):
            seconds = action.seconds
            if action.timer == lifecycle.STALL and self._stall is not None:
                seconds = self._stall.begin(self._state.training)
            self._timers.set(action.timer, seconds)
        elif isinstance(action, lifecycle.CancelTimer):
            self._timers.cancel(action.timer)
        elif isinstance(action, lifecycle.Announce):
            self.emit(action.event)
        else:
            self._is_finishing = True
            self._hosts.order_all(protocol.Shutdown())
            if all(host.is_local for host in self._spec.hosts):
                self._judge()  # while the agent takes its leave

    def _start_task(self, task: TaskPlan, attempt: int, cause: Cause | None) -> None:
        self._progress.pop(task.name, None)
        words = "" if cause is None else self._cause_text(cause)
        order = start_order(self._spec, task, self._folder.job_id, attempt, words)
        self._hosts.order(task.host, order)

    def _is_local(self, host: str) -> bool:
        return any(each.is_local for each in self._spec.hosts if each.name == host)

    def _finish_if_released(self) -> None:
        """The job has ended once its agents have: they leave nothing behind."""
        if self._state.outcome is None or not self._is_finishing or self._hosts.connected:
            return
        self._judge()  # the logs of other hosts are all here now
        self.emit(events.JobEnded(at=time.time(), outcome=self._state.outcome))

    def _judge(self) -> None:
        """Find out why the job failed, where it did and that is not known yet."""
        outcome = self._state.outcome
        if outcome is not None and outcome.verdict is None:
            verdict = self._analyzer.on_end(self._state)
            if verdict is not None:
                self.emit(events.VerdictReached(at=time.time(), verdict=verdict))

    def _on_record_failure(self, error: OSError) -> None:
        with contextlib.suppress(OSError):  # its log is on the same disk
            print(f"the record cannot be written: {error}", file=sys.stderr)  # noqa: T201
        if self._record_failed:
            return
        self._record_failed = True
        reason = f"the job's record {self._folder.events_file} cannot be written: {error.strerror}"
        self.emit(
            events.Aborted(at=time.time(), cause=_uncoded(reason), exit_code=HostError.exit_code)
        )

    # Hosts ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        try:
            self._preparation = Preparation(self._spec)
        except DistrunError as error:
            self._abort(error)
            return
        if self._manifest is not None:
            from distrun.supervisor.hosts.file_delivery import Delivery

            self._delivery = Delivery(
                self._manifest,
                self._preparation.remote,
                self._hosts.deliver,
                self.emit,
                self._clients.tell,
            )
        self._hosts.connect(self._preparation.hosts)

    def _abort(self, error: DistrunError) -> None:
        reason = error.message if error.hint is None else f"{error.message} ({error.hint})"
        self.emit(events.Aborted(at=time.time(), cause=_uncoded(reason), exit_code=error.exit_code))

    def _on_report(self, host: str, message: Report) -> None:
        if getattr(message, "task", None) == tensorboard.NAME:
            self._on_tensorboard(message)
            return
        if self._delivery is not None and self._delivery.takes(host, message):
            self._begin_if_ready()
            return
        kind = _REPORTS.get(type(message))
        if kind is not None:
            if isinstance(message, protocol.TaskExited) and message.task in self._progress:
                last = self._progress[message.task]
                self.emit(events.TaskReported(at=last.at, task=last.task, values=last.values))
            self.emit(kind(**message._asdict()))
        elif isinstance(message, protocol.Progress):
            self._progress[message.task] = message
            if self._stall is not None:
                self._stall.take(message.task, message.values.get("STEP"))
            self._clients.tell(message)
        elif isinstance(message, protocol.Fault):
            self.emit(events.HostFault(at=message.at, host=host, cause=message.cause))
        elif self._state.outcome is None and self._preparation is not None:
            self._on_preparing(host, message, self._preparation)

    def _start_tensorboard(self) -> None:
        """Beside the job, below this machine's agent where it has one."""
        spec = self._spec.tensorboard
        local = next((host.name for host in self._spec.hosts if host.is_local), "")
        if spec is None:
            return
        if local not in self._hosts.connected:
            self._say_tensorboard_ended("is not started: no task runs on this machine")
            return
        try:
            port = tensorboard.choose_port(spec)
        except OSError as error:
            self._say_tensorboard_ended(f"could not be started: {error}")
            return
        order = tensorboard.start_order(spec, port, self._spec.program.workdir, self._folder.job_id)
        self._hosts.order(local, order)
        address = tensorboard.address(port)
        self.emit(events.TensorBoardStarted(at=time.time(), address=address))

    def _on_tensorboard(self, message: Report) -> None:
        if isinstance(message, protocol.TaskNotStarted):
            self._say_tensorboard_ended(f"could not be started: {self._cause_text(message.cause)}")
        elif isinstance(message, protocol.TaskExited) and not self._is_finishing:
            status = syscalls.signal_name(message.signal) if message.signal else message.code
            self._say_tensorboard_ended(f"ended by itself ({status}); see {tensorboard.LOG}")

    def _say_tensorboard_ended(self, how: str) -> None:
        self.emit(events.TensorBoardEnded(at=time.time(), cause=_uncoded(how)))

    def _on_preparing(self, host: str, message: Report, preparation: Preparation) -> None:
        if isinstance(message, protocol.Hello):
            self.emit(
                events.HostReady(
                    at=message.at,
                    host=host,
                    agent_pid=message.pid,
                    hostname=message.hostname,
                    python=message.python,
                    cores=message.cores,
                    gpus=tuple(message.gpus),
                    is_local=self._is_local(host),
                    address=message.address or None,
                    behind=round(time.time() - message.at, 3),
                )
            )
            self._hosts.order(host, preparation.on_hello(host, message))
            if self._delivery is not None:
                self._delivery.begin(host)
        elif isinstance(message, (protocol.PortsHeld, protocol.PortsRefused)):
            try:
                self._plan = preparation.on_ports(host, message)
            except DistrunError as error:
                self._abort(error)
            self._begin_if_ready()
        else:
            self._on_preflight(host, message)

    def _begin_if_ready(self) -> None:
        """Once everything is decided, and every host has its files."""
        if self._state.outcome is not None or self._plan is None:
            return
        if self._delivery is not None:
            if not self._delivery.is_settled:
                return
            if self._delivery.error is not None:
                self._abort(self._delivery.error)
                return
        made, self._plan = self._plan, None
        try:
            self._begin(made)
        except DistrunError as error:
            self._abort(error)

    def _begin(self, plan: Plan) -> None:
        try:
            self._folder.plan_file.write_text(json.dumps(to_json(plan), indent=1) + "\n")
        except OSError as error:
            raise HostError(f"the plan cannot be written: {error}") from error
        self._tasks = {task.name: task for task in plan.tasks}
        if all(self._is_local(host) for host in plan.hosts):
            self._start()
        elif not self._wants_preflight:
            self.emit(events.PreflightSkipped(at=time.time()))
            self._start()
        else:
            from distrun.supervisor.preflight import Preflight

            self._preflight = Preflight(
                self._spec, plan, plan.hosts, self._folder.path, self._hosts.order
            )
            self.emit(events.PreflightStarted(at=time.time(), hosts=len(plan.hosts)))
            self._preflight.begin()

    def _on_preflight(self, host: str, answer: Report) -> None:
        if self._preflight is None:
            return
        from distrun.supervisor.preflight import failure, record

        self._preflight.take(host, answer)
        checks = self._preflight.checks()
        if checks is None:
            return
        self._preflight = None
        for event in record(checks, time.time()):
            self.emit(event)
        error = failure(checks)
        if error is None:
            self._start()
        else:
            self._abort(error)

    def _start(self) -> None:
        records = tuple(task_record(task) for task in self._tasks.values())
        self.emit(events.JobPlanned(at=time.time(), tasks=records))
        self._start_tensorboard()

    def _on_host_gone(self, host: str, how: str) -> None:
        if not self._is_finishing:
            self.emit(events.HostLost(at=time.time(), host=host, cause=_uncoded(how)))

    def _on_unreachable(self, found: dict[str, Diagnosis]) -> None:
        count = 0 if self._preparation is None else len(self._preparation.hosts)
        if self._state.outcome is None:
            error = unreachable_error(found, count)
            hints = "".join(f"\n  {line}" for line in (error.hint or "").splitlines())
            self.emit(
                events.Aborted(
                    at=time.time(), cause=_uncoded(error.message + hints), exit_code=error.exit_code
                )
            )

    def _on_link_lost(self, host: str, why: str) -> None:
        self.emit(events.LinkLost(at=time.time(), host=host, cause=_uncoded(why)))
        if self._state.killing:
            self._hosts.give_up_lost()

    def _on_link_restored(self, host: str) -> None:
        self.emit(events.LinkRestored(at=time.time(), host=host))

    def _on_logs_incomplete(self, host: str, why: str) -> None:
        self.emit(events.LogsIncomplete(at=time.time(), host=host, cause=_uncoded(why)))

    # Waiting -------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._hosts.watch_writing()
        self._clients.watch_writing()
        dues = [each for each in (self._timers.next_due, self._hosts.next_due) if each is not None]
        due = min(dues) - self._clock() if dues else None
        for key, _ in self._selector.select(None if due is None else max(0.0, due)):
            if key.fileobj in self._selector.get_map():
                key.data()

    def _fire_timers(self) -> None:
        while (timer := self._timers.pop_due()) is not None:
            wait = self._look_for_stall() if timer == lifecycle.STALL else None
            if wait is None:
                self.emit(events.TimedOut(at=time.time(), timer=timer))
            else:
                self._timers.set(timer, wait)
        self._hosts.on_time()

    def _look_for_stall(self) -> float | None:
        """Seconds until the next look; None where the job stalls."""
        known = not any(host.link_lost for host in self._state.hosts.values())
        return None if self._stall is None else self._stall.look(are_known=known)

    def _on_signal(self) -> None:
        numbers = os.read(self._signals.fileno(), 4096)
        if signal.SIGTERM in numbers:
            self._request_stop(
                protocol.StopJob("SIGTERM to its supervisor", signal.SIGTERM, None, 128 + 15)
            )
        self._hosts.look_for_exits()

    # Commands ------------------------------------------------------------------------------

    def _on_client(self, client: Client, message: Request) -> None:
        if isinstance(message, protocol.StopJob):
            self._request_stop(message)
        elif isinstance(message, protocol.Detach) and client is self._launch:
            self._launch = None
        elif isinstance(message, protocol.Watch):
            client.is_watching = True
            for progress in self._progress.values():
                client.channel.send(progress)
            client.channel.send(protocol.WatchStarted())

    def _on_client_end(self, client: Client) -> None:
        if client is not self._launch:
            return
        self._launch = None
        self._request_stop(
            protocol.StopJob(
                "the death of its launch command", signal.SIGTERM, lifecycle.PROMPT_GRACE, 129
            )
        )

    def _request_stop(self, order: protocol.StopJob) -> None:
        grace = self._spec.timeouts.grace if order.grace is None else order.grace
        self._hosts.wake()
        self.emit(
            events.StopRequested(
                at=time.time(),
                cause=_uncoded(order.reason),
                signal=order.signal,
                grace=grace,
                exit_code=order.exit_code,
            )
        )
        if self._state.killing:
            self._hosts.give_up_lost()

    def _say_farewell(self) -> None:
        """Let the commands have the last event; one that does not read is not waited for long."""
        deadline = self._clock() + _FAREWELL_SECONDS
        while self._clients.channels_to_flush and self._clock() < deadline:
            self._clients.watch_writing()
            for key, _ in self._selector.select(deadline - self._clock()):
                key.data()
