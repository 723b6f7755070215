"""The supervisor of one job: its record, its state, its hosts, and the loop that joins them.

Every event goes through :meth:`Supervisor.emit`: into the record, to the commands that watch, and
through the lifecycle, whose actions are then carried out. Nothing is polled.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from distrun import events, lifecycle, record
from distrun.agent import protocol
from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause, Code
from distrun.errors import DistrunError, HostError
from distrun.plan import READ
from distrun.strategies import Workers
from distrun.supervisor import tensorboard
from distrun.supervisor.clients import Client, Clients
from distrun.supervisor.cluster_check import ClusterCheck
from distrun.supervisor.failure_analyzer import FailureAnalyzer
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.preparation import Preparation, task_record, unreachable_hosts
from distrun.supervisor.quiet import SUSPECT_SECONDS, QuietWatch
from distrun.supervisor.ready_watch import ReadyWatch
from distrun.supervisor.stall import StallWatch
from distrun.supervisor.start_queue import StartQueue
from distrun.supervisor.tensorboard import TensorBoard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from distrun.agent.protocol import Report, Request
    from distrun.jobstore import JobFolder
    from distrun.plan import Plan, TaskPlan
    from distrun.spec.model import Spec
    from distrun.sync.manifest import Manifest

_FLUSH_SECONDS = 2.0
_REPORTS: dict[type, type[events.Event]] = {
    protocol.TaskStarted: events.TaskStarted,
    protocol.TaskNotStarted: events.TaskNotStarted,
    protocol.TaskExited: events.TaskExited,
    protocol.TaskEnded: events.TaskEnded,
    protocol.ProgressIgnored: events.ProgressIgnored,
}


class Supervisor:
    """Owns one job from the creation of its folder until nothing of it is left.

    Args:
        launch: the launch command; until it detaches, the job ends with it.
        cause_text: returns a cause in words, for the line in a log where a restart begins.
        manifest: the program's files, for the hosts that lack them; None: nothing is sent.
        preflight: whether hosts that need it are checked before the first task starts.
    """

    def __init__(
        self,
        folder: JobFolder,
        spec: Spec,
        launch: Client,
        cause_text: Callable[[Cause], str],
        *,
        manifest: Manifest | None,
        preflight: bool,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._cause_text = cause_text
        self._selector = selectors.DefaultSelector()
        self._record = record.EventLog(str(folder.events_file))
        self._record_failed = False
        self._state = lifecycle.JobState()
        self._timers: dict[events.Timer, float] = {}
        """When each timer expires, on the monotonic clock."""
        self._hosts = HostPool(self._selector, spec, folder.job_id, folder.logs, READ, self)
        self._preparation: Preparation | None = None
        self._manifest = manifest
        self._has_preflight = preflight
        self._tasks: dict[str, TaskPlan] = {}
        self._starts = StartQueue(self._send_start)
        self._progress: dict[str, protocol.Progress] = {}
        self._cluster: ClusterCheck | None = None
        self._quiet: QuietWatch | None = None
        self._tensorboard: TensorBoard | None = None
        self._ready: ReadyWatch | None = None
        self._stall: StallWatch | None = None
        if spec.timeouts.stall is not None:
            self._stall = StallWatch(spec.timeouts.stall, folder.log_of, time.monotonic)
        self._is_finishing = False
        self._analyzer = FailureAnalyzer(folder, spec)
        self._signals = syscalls.signal_pipe((signal.SIGCHLD, signal.SIGTERM))
        self._clients = Clients(
            self._selector, folder.listen(), self._on_client, self._on_client_end
        )
        self._launch: Client | None = launch
        self._clients.add(launch)
        self._clients.watching.add(launch)
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signal)

    def run(self, early: Sequence[Request]) -> None:
        """Run the job to its end. `early` are requests that its launch command has sent already."""
        spec = self._spec
        self.emit(
            events.JobCreated(
                at=time.time(),
                job_id=self._folder.job_id,
                name=spec.name,
                strategy=spec.strategy,
                success=spec.success,
                spec_file=self._folder.shown(self._folder.spec_file),
                supervisor_pid=os.getpid(),
                timeouts=spec.timeouts,
                restart=spec.restart,
                workers=spec.workers or Workers.COORDINATED,
                role_restarts={
                    role.role.value: role.restart for role in spec.roles if role.restart is not None
                },
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
        self._flush_clients()
        # Commands whose connection has ended must not find the supervisor alive.
        self._folder.release_lock()

    def emit(self, event: events.Event) -> None:
        """Record an event and perform the actions that follow from it."""
        self._clients.broadcast(protocol.JobEvent(self._write(event)))
        before = self._state
        self._state, actions = lifecycle.step(before, event)
        verdict = self._analyzer.on_event(before, event, self._state)
        if verdict is not None:
            self.emit(events.VerdictReached(at=time.time(), verdict=verdict))
        for action in actions:
            self._perform(action)
        canceled = self._starts.pop_canceled()
        if canceled:
            self.emit(events.StartsCanceled(at=time.time(), tasks=canceled))

    def _write(self, event: events.Event) -> dict[str, Any]:
        """Append an event to the record. If that fails, the event follows the job's failure."""
        with contextlib.suppress(OSError):
            try:
                return self._record.append(event)
            except OSError as error:
                self._on_record_failure(error)
            return self._record.append(event)
        return events.encode(event)

    # The lifecycle's actions ---------------------------------------------------------------

    def _perform(self, action: lifecycle.Action) -> None:
        if isinstance(action, lifecycle.StartTask):
            self._progress.pop(action.task, None)
            self._starts.add(self._tasks[action.task].host, action)
        elif isinstance(action, lifecycle.StopTask):
            host = self._state.tasks[action.task].host
            if not self._starts.cancel(host, action.task):
                order = protocol.StopTask(**vars(action))
                self._hosts.order(host, order)
        elif isinstance(action, lifecycle.SetTimer):
            seconds = action.seconds
            if action.timer == lifecycle.STALL and self._stall is not None:
                seconds = self._stall.start(self._state.training)
            self._timers[action.timer] = time.monotonic() + seconds
        elif isinstance(action, lifecycle.CancelTimer):
            self._timers.pop(action.timer, None)
        elif isinstance(action, lifecycle.Announce):
            self.emit(action.event)
        else:
            self._is_finishing = True
            self._hosts.order_all(protocol.Shutdown())
            if self._preparation is None or self._preparation.has_all_logs_here:
                self._analyze()  # while the agents end

    def _send_start(self, start: lifecycle.StartTask) -> None:
        if self._preparation is not None:
            task, job_id = self._tasks[start.task], self._folder.job_id
            words = "" if start.cause is None else self._cause_text(start.cause)
            order = self._preparation.start_order(task, job_id, start.attempt, words)
            self._hosts.order(task.host, order)

    def _finish_if_released(self) -> None:
        """End the job once all its agents have ended."""
        if self._state.outcome is None or not self._is_finishing or self._hosts:
            return
        self._analyze()  # the logs of other hosts are all here now
        self.emit(events.JobEnded(at=time.time(), outcome=self._state.outcome))

    def _analyze(self) -> None:
        """Find out why the job failed, if it did and that is not known yet."""
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
        path, errno = self._folder.shown(self._folder.events_file), error.errno or 0
        cause = Cause(Code.RECORD_NOT_WRITTEN, path=path, errno=errno, name="DISTRUN_HOME")
        self._abort(HostError(cause=cause))

    # Hosts ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        try:
            folder, has_preflight = self._folder.path, self._has_preflight
            preparation = Preparation(
                self._spec, self._hosts.order, folder, emit=self.emit, has_preflight=has_preflight
            )
        except DistrunError as error:
            self._abort(error)
            return
        if self._manifest is not None:
            from distrun.supervisor.hosts.file_delivery import FileDelivery

            hosts, send_list = preparation.hosts_without_files, self._hosts.deliver
            preparation.delivery = FileDelivery(
                self._manifest, hosts, send_list, self.emit, self._clients.broadcast
            )
        self._preparation = preparation
        self._hosts.connect(preparation.reaches)

    def _abort(self, error: DistrunError) -> None:
        self.emit(events.Aborted(at=time.time(), cause=error.as_cause(), exit_code=error.exit_code))

    def on_report(self, host: str, report: Report) -> None:
        if getattr(report, "task", None) == tensorboard.NAME:
            if self._tensorboard is not None and not self._is_finishing:
                self._tensorboard.receive(report)
            return
        preparation = self._preparation
        if preparation is None:
            return
        if preparation.delivery is not None and preparation.delivery.receive(host, report):
            preparation.advance()
            self._start_if_prepared(preparation)
            return
        kind = _REPORTS.get(type(report))
        if kind is not None:
            self._on_task_report(host, report, kind)
        elif isinstance(report, protocol.Fault):
            self.emit(events.HostFault(at=report.at, host=host, cause=report.cause))
        elif not self._on_observation(report) and self._state.outcome is None:
            preparation.receive(host, report)
            self._start_if_prepared(preparation)

    def _on_observation(self, report: Report) -> bool:
        """Note what tasks do while they run. Returns whether the report says that."""
        if isinstance(report, protocol.Progress):
            self._progress[report.task] = report
            if self._stall is not None:
                self._stall.record(report.task, report.values.get("STEP"))
            if self._quiet is not None:
                self._quiet.record_sign()
            self._clients.broadcast(report)
        elif isinstance(report, protocol.TaskListening):
            self._on_listening(report)
        elif isinstance(report, protocol.CpuMeasured):
            if self._quiet is not None:
                self._quiet.record_cpu(report.seconds)
        else:
            return False
        return True

    def _on_task_report(self, host: str, report: Any, kind: type[events.Event]) -> None:
        if isinstance(report, protocol.TaskExited) and report.task in self._progress:
            last = self._progress[report.task]
            self.emit(events.TaskReported(at=last.at, task=last.task, values=last.values))
        if self._cluster is not None and isinstance(report, protocol.TaskExited):
            self._cluster.forget(report.task)
        if self._ready is not None and isinstance(report, protocol.TaskExited):
            self._ready.forget(report.task)
        self.emit(kind(**report._asdict()))
        if isinstance(report, (protocol.TaskStarted, protocol.TaskNotStarted)):
            self._starts.on_answer(host, report.task)
        if self._ready is not None and isinstance(report, protocol.TaskStarted):
            self._ready.start(report.task, report.attempt)

    def _report_ready(self, attempts: Iterable[tuple[str, int]]) -> None:
        for task, attempt in attempts:
            self.emit(events.TaskReady(at=time.time(), task=task, attempt=attempt))

    def _on_listening(self, report: protocol.TaskListening) -> None:
        task = self._state.tasks[report.task]
        is_running = task.phase is lifecycle.TaskPhase.RUNNING and task.attempt == report.attempt
        if is_running and self._ready is not None:
            self._report_ready(self._ready.on_listening(report.task, report.ports))
        if is_running and self._cluster is not None:
            self._report_mismatch(self._cluster.record(report.task, report.ports))
            if self._cluster.suspect is not None and self._quiet is not None:
                self._quiet.limit(SUSPECT_SECONDS)

    def _report_mismatch(self, cause: Cause | None) -> None:
        if cause is not None and self._state.outcome is None:
            self.emit(events.ClusterMismatched(at=time.time(), cause=cause))

    def _start_if_prepared(self, preparation: Preparation) -> None:
        if self._tasks or self._state.outcome is not None or not preparation.is_finished:
            return
        if preparation.error is not None:
            self._abort(preparation.error)
        elif preparation.plan is not None:
            self._start(preparation.plan)

    def _start(self, plan: Plan) -> None:
        path = self._folder.plan_file
        try:
            path.write_text(json.dumps(plan.record(), indent=1) + "\n")
        except OSError as error:
            shown, errno = self._folder.shown(path), error.errno or 0
            cause = Cause(Code.PLAN_NOT_WRITTEN, path=shown, errno=errno)
            self._abort(HostError(cause=cause))
            return
        self._tasks = {task.name: task for task in plan.tasks}
        self._cluster = ClusterCheck(
            plan.tasks,
            self._analyzer.served_addresses,
            self._analyzer.find_tf_config_line,
            time.monotonic,
        )
        if self._stall is None:
            self._quiet = QuietWatch(self._size_of_log, self._measure_cpu, time.monotonic)
        log_of = self._folder.log_of
        self._ready = ReadyWatch(self._selector, plan.tasks, log_of, time.monotonic)
        records = tuple(task_record(task) for task in plan.tasks)
        self.emit(events.JobPlanned(at=time.time(), tasks=records))
        self._start_tensorboard()

    def _size_of_log(self, task: str) -> int:
        try:
            return self._folder.log_of(task).stat().st_size
        except OSError:
            return 0

    def _measure_cpu(self) -> None:
        self._hosts.order_all(protocol.MeasureCpu())

    def _start_tensorboard(self) -> None:
        """Start TensorBoard below an agent on this machine, which ends it with the job."""
        host, job_id = self._hosts.below_supervisor, self._folder.job_id
        order = None if host is None else partial(self._hosts.order, host)
        self._tensorboard = TensorBoard(
            self._spec, job_id, order, self.emit, time.monotonic, time.time
        )

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        if self._state.outcome is None and self._preparation is not None:
            self._abort(unreachable_hosts(causes, len(self._preparation.hosts)))

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.HostLost):
            self._starts.remove_host(event.host)
            if self._is_finishing:
                return
        self.emit(event)
        if self._state.killing and isinstance(event, events.LinkLost):
            self._hosts.abandon_lost()

    # Waiting -------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._hosts.watch_writing()
        self._clients.watch_writing()
        quiet = self._quiet if self._state.outcome is None else None
        others = (self._hosts, self._clients, self._ready, self._cluster, quiet, self._tensorboard)
        times = [*self._timers.values(), *(each.next_due for each in others if each is not None)]
        dues = [each for each in times if each is not None]
        due = min(dues) - time.monotonic() if dues else None
        for key, _ in self._selector.select(None if due is None else max(0.0, due)):
            if key.fileobj in self._selector.get_map():
                key.data()

    def _fire_timers(self) -> None:
        while self._timers:
            timer = min(self._timers, key=self._timers.__getitem__)
            if self._timers[timer] > time.monotonic():
                break
            del self._timers[timer]
            wait = None
            if timer == lifecycle.STALL and self._stall is not None:
                wait = self._stall.check(are_linked=self._are_linked)
            if wait is None:
                within = self._why_not_started() if timer == lifecycle.START else ()
                self.emit(events.TimedOut(at=time.time(), timer=timer, within=within))
            else:
                self._timers[timer] = time.monotonic() + wait
        if self._cluster is not None:
            self._report_mismatch(self._cluster.check())
        self._check_quiet()
        if self._tensorboard is not None:
            self._tensorboard.check()
        due = None if self._ready is None else self._ready.next_due
        if self._ready is not None and due is not None and due <= time.monotonic():
            self._report_ready(self._ready.check())
        self._hosts.run_due()
        self._clients.run_due()

    @property
    def _are_linked(self) -> bool:
        return all(host.link_lost is None for host in self._state.hosts.values())

    def _check_quiet(self) -> None:
        """Note that all tasks do nothing, or that one does something again."""
        quiet, state = self._quiet, self._state
        if quiet is None or state.outcome is not None:
            return
        if quiet.next_due <= time.monotonic():
            is_running = state.phase is lifecycle.JobPhase.RUNNING and self._are_linked
            tasks = state.tasks.values() if is_running else ()
            running = lifecycle.TaskPhase.RUNNING
            quiet.check({task.name for task in tasks if task.phase is running})
        if quiet.is_quiet == (state.quiet_since is not None):
            return
        suspect = None if self._cluster is None else self._cluster.suspect
        if not quiet.is_quiet:
            self.emit(events.TasksActive(at=time.time()))
        elif suspect is not None:
            self._report_mismatch(suspect)
        else:
            silent = time.monotonic() - quiet.since
            self.emit(events.TasksQuiet(at=time.time(), since=time.time() - silent))

    def _why_not_started(self) -> tuple[Cause, ...]:
        """Return what delays the start: unanswered questions to hosts, or slow searches."""
        if self._ready is not None:
            return self._ready.behind()
        preparation, seconds = self._preparation, self._spec.timeouts.start or 0.0
        if preparation is None:
            return ()
        causes = self._hosts.unanswered(preparation.waiting_for, seconds)
        return tuple(
            Cause(Code.HOST_NOT_PREPARED, host=host, within=(cause,))
            for host, cause in causes.items()
        )

    def _on_signal(self) -> None:
        numbers = os.read(self._signals.fileno(), 4096)
        if signal.SIGTERM in numbers:
            cause = Cause(Code.SUPERVISOR_SIGNALLED, signal=signal.SIGTERM)
            self._request_stop(protocol.StopJob(cause, signal.SIGTERM, None, 128 + 15))
        self._hosts.check_exits()

    # Commands ------------------------------------------------------------------------------

    def _on_client(self, client: Client, message: Request) -> None:
        if isinstance(message, protocol.StopJob):
            self._request_stop(message)
        elif isinstance(message, protocol.Detach) and client is self._launch:
            self._launch = None
        elif isinstance(message, protocol.Watch):
            self._clients.watching.add(client)
            for progress in self._progress.values():
                client.send(progress)
            client.send(protocol.WatchStarted())

    def _on_client_end(self, client: Client) -> None:
        if client is self._launch:
            self._launch = None
            cause = Cause(Code.LAUNCH_COMMAND_DIED)
            stop = protocol.StopJob(cause, signal.SIGTERM, protocol.KILL_GRACE, 129)
            self._request_stop(stop)

    def _request_stop(self, order: protocol.StopJob) -> None:
        grace = self._spec.timeouts.grace if order.grace is None else order.grace
        self._hosts.resume_suspended()
        self.emit(
            events.StopRequested(
                at=time.time(),
                cause=order.cause,
                signal=order.signal,
                grace=grace,
                exit_code=order.exit_code,
            )
        )
        if self._state.killing:
            self._hosts.abandon_lost()

    def _flush_clients(self) -> None:
        """Send the last event to the commands, for at most two seconds."""
        deadline = time.monotonic() + _FLUSH_SECONDS
        while self._clients.are_pending and time.monotonic() < deadline:
            self._clients.watch_writing()
            for key, _ in self._selector.select(deadline - time.monotonic()):
                key.data()
