"""The attempts that run: what hosts say of them becomes events."""

from __future__ import annotations

import time
from collections.abc import Sequence

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Report
from distrun.agent.protocol.stack_messages import ProgramRequested, StacksDumped
from distrun.codec import RANGES
from distrun.job import events
from distrun.job.history import HistoryLog
from distrun.job.stacks import Stacks, places
from distrun.plan import TaskPlan
from distrun.supervisor.cluster_check import ClusterCheck
from distrun.supervisor.failure_analyzer import FailureAnalyzer
from distrun.supervisor.hosts.background_calls import Question
from distrun.supervisor.log_tails import LogTails
from distrun.supervisor.running_job import RunningJob
from distrun.supervisor.running_task import RunningTask
from distrun.supervisor.stack_collector import StackCollector
from distrun.supervisor.stall_detector import (
    IDLE_SHARE,
    SPINNING_SHARE,
    SUSPECT_SECONDS,
    StallDetector,
)
from distrun.supervisor.training_gap import TrainingGap

_MOST_SAVES = 2000
"""How many saves of one attempt are recorded."""


class RunningTasks:
    """Has a :class:`.RunningTask` for the present attempt of each task."""

    def __init__(self, job: RunningJob, analyzer: FailureAnalyzer) -> None:
        self._job, self._emit, self._analyzer = job, job.emit, analyzer
        self._tasks: dict[str, RunningTask] = {}
        self._history = HistoryLog(job.folder)
        self.training = TrainingGap(job.emit, time.time)
        if job.former is not None:
            self.training.resume(job.former, job.last_change)
        self.stacks = StackCollector(job)
        self._signs = StallDetector(
            *(job.loop, job.spec.timeouts.stall, job.folder.size_of_log, self._list_watched),
            measure=lambda: job.hosts.order_all(protocol.MeasureCpu()),
            on_change=self._on_silence,
            is_between=lambda: any(task.is_between for task in self._tasks.values()),
            list_training=lambda: job.state.training,
        )
        self._tails = LogTails(job.loop, job.folder, self._signs.note_output)
        self._cluster = ClusterCheck((), self._find_setter)
        self._is_setter_asked = False
        self._setter: tuple[str, bool] | None = None
        """Where the program sets TF_CONFIG: see :class:`.ClusterCheck`; None: not known yet."""

    def use_plan(self, tasks: Sequence[TaskPlan]) -> None:
        """Use another plan from now on; tasks that it has not have ended."""
        for task in self._tasks.keys() - {task.name for task in tasks}:
            self._tasks.pop(task).close()
            self._signs.end(task)
        self._cluster = ClusterCheck(tasks, self._find_setter)

    # An attempt ----------------------------------------------------------------------------

    def expect(self, task: TaskPlan) -> None:
        if task.name in self._tasks:
            self._tasks[task.name].close()
        self._tasks[task.name] = RunningTask(task, self._job, self._tails, self)
        self.training.start(task.name)

    def start(self, report: protocol.TaskStarted) -> None:
        if report.task in self._tasks:
            self._tasks[report.task].start(report)

    def end(self, task: str, event: events.Event) -> None:
        """An attempt ends with this event: all that it has reported comes before."""
        if (ended := self._tasks.get(task)) is not None:
            self._record_rest(ended)
            ended.end()
        self._cluster.forget(task)
        self._emit(event)
        known = self._job.state.tasks.get(task)
        if known is not None and known.is_in_group:
            self._signs.end(task)

    def record_rest(self) -> None:
        """Record the last progress of all tasks: the job ends."""
        for task in self._tasks.values():
            self._record_rest(task)

    def close(self) -> None:
        for task in self._tasks.values():
            task.close()
        self._tails.close()

    def _record_rest(self, task: RunningTask) -> None:
        """Record the last progress of an attempt, if it is not recorded yet."""
        self._tails.read_rest(task.name)
        last = task.latest
        if last is not None and last.values != self._job.state.tasks[task.name].reported:
            self._emit(
                events.TaskReported(
                    at=last.at, task=task.name, values=last.values, step_at=task.step_at
                )
            )

    # What hosts report ---------------------------------------------------------------------

    def receive(self, host: str, report: Report) -> bool:
        """Note what tasks do while they run. Returns whether the report says that."""
        state = self._job.state
        if isinstance(report, (protocol.Progress, protocol.UsageSampled)):
            earliest, latest = RANGES["at"]  # of what the record can hold
            at = min(max(earliest, report.at + state.hosts[host].behind), latest)
            report = report._replace(at=at)
        if isinstance(report, (protocol.Progress, protocol.UsageSampled, protocol.TaskListening)):
            if report.task in self._tasks:
                self._on_observation(self._tasks[report.task], report)
        elif isinstance(report, protocol.CpuMeasured):
            here = {task.name for task in state.tasks.values() if task.host == host}
            used = {task: used for task, used in report.seconds.items() if task in here}
            self._signs.record_cpu(used)
        elif isinstance(report, (StacksDumped, ProgramRequested)):
            self.stacks.receive(host, report)
        else:
            return False
        return True

    def _on_observation(
        self,
        task: RunningTask,
        report: protocol.Progress | protocol.UsageSampled | protocol.TaskListening,
    ) -> None:
        if isinstance(report, protocol.Progress):
            task.record(report)
        elif isinstance(report, protocol.UsageSampled):
            self._history.append(task.name, task.sample(report))
        elif self._is_running(task.name) and task.attempt == report.attempt:
            task.on_listening(report.ports)
            self._report_cluster(self._cluster.record(task.name, report.ports))

    def _is_running(self, task: str) -> bool:
        known = self._job.state.tasks.get(task)
        return known is not None and known.phase is lifecycle.TaskPhase.RUNNING

    @property
    def progress(self) -> list[protocol.Progress]:
        return [task.latest for task in self._tasks.values() if task.latest is not None]

    # What an attempt does ------------------------------------------------------------------

    def on_progress(self, task: RunningTask) -> None:
        progress, known = task.latest, self._job.state.tasks.get(task.name)
        if progress is None or known is None:
            return
        self._job.clients.broadcast(progress)
        if known.first_step_at is None and "STEP" in progress.values:
            values = {k: v for k, v in progress.values.items() if k in ("EPOCH", "STEP")}
            name, attempt = task.name, known.attempt
            self._emit(events.FirstStep(at=progress.at, task=name, attempt=attempt, values=values))
        is_saving = progress.values.get("SAVING") == "1"
        if is_saving is not known.is_saving and known.saves < _MOST_SAVES:
            kind = events.SavingStarted if is_saving else events.SavingEnded
            self._emit(kind(at=progress.at, task=task.name, attempt=known.attempt))
        if known.is_in_group:
            is_printed = not task.reports_steps
            self.training.record(task.name, progress.values, is_printed=is_printed)

    def on_step(self, task: RunningTask, step: str | None, *, is_moving: bool) -> None:
        known = self._job.state.tasks.get(task.name)
        is_waited_for = known is not None and known.is_in_group and self._is_running(task.name)
        # A log may arrive after its task's exit.
        if is_waited_for or not self._signs.counts_steps:
            self._signs.record(task.name, step, is_moving=is_moving)

    def on_ready(self, task: RunningTask) -> None:
        self._emit(events.TaskReady(at=time.time(), task=task.name, attempt=task.attempt))

    def why_not_ready(self) -> tuple[Cause, ...]:
        """Return what delays searches for lines in logs."""
        found = (task.why_not_ready for task in self._tasks.values())
        return tuple(cause for cause in found if cause is not None)

    # Where tasks serve ---------------------------------------------------------------------

    def on_served(self, task: RunningTask, addresses: set[str]) -> None:
        if self._is_running(task.name):
            self._report_cluster(self._cluster.record_served(task.name, addresses))

    def _report_cluster(self, cause: Cause | None) -> None:
        if cause is not None:
            self._report_mismatch(cause)
        if self._cluster.suspect is not None:
            self._signs.limit(SUSPECT_SECONDS)

    def _report_mismatch(self, cause: Cause) -> None:
        if self._job.state.outcome is None:
            self._emit(events.ClusterMismatched(at=time.time(), cause=cause))

    def _find_setter(self) -> tuple[str, bool] | None:
        """Return where the program sets TF_CONFIG; None: that is being found out."""
        if not self._is_setter_asked:
            self._is_setter_asked = True
            question = Question("setter", self._analyzer.find_tf_config_line, tuple[str, bool])
            self._job.hosts.calls.ask(question, self._on_setter)
        return self._setter

    def _on_setter(self, setter: tuple[str, bool] | None) -> None:
        self._setter = setter or ("", False)
        self._report_cluster(self._cluster.check_unsure())

    # Signs of life -------------------------------------------------------------------------

    def watch_stall(self, *, is_training: bool) -> None:
        """Start to watch for a stall: the tasks train now; or stop watching."""
        if is_training:
            self._signs.start()
        else:
            self._signs.stop()

    def _list_watched(self) -> list[str]:
        """Return the tasks whose signs count; none while nothing can be known of them."""
        state = self._job.state
        if any(host.link_lost is not None for host in state.hosts.values()):
            return []
        if self._signs.counts_steps:
            return state.training
        is_running = state.phase is lifecycle.JobPhase.RUNNING
        return list(filter(self._is_running, state.tasks)) if is_running else []

    def _on_silence(self, are_silent: bool) -> None:
        """The tasks do nothing, or one does something again."""
        if self._job.state.outcome is not None:
            return
        if self._signs.counts_steps:
            if are_silent:
                self._on_stall()
        elif not are_silent:
            self._emit(events.TasksActive(at=time.time()))
        elif self._cluster.suspect is not None:
            self._report_mismatch(self._cluster.suspect)
        else:
            usual, busy = self._signs.stop_found or (0.0, ())
            since = time.time() - (self._job.loop.now() - self._signs.silent_since)
            self._emit(events.TasksQuiet(at=time.time(), since=since, usual=usual, busy=busy))

    def _on_stall(self) -> None:
        """Report the stall once the stacks of the tasks are known."""

        def go_on(found: Stacks) -> None:
            if self._signs.are_silent and self._job.state.outcome is None:
                where, busy = places(found.processes), self._list_busy()
                timed_out = events.TimedOut(
                    at=time.time(), timer=lifecycle.STALL, places=where, busy=busy
                )
                self._emit(timed_out)

        self.stacks.ask_stalled(go_on)

    def _list_busy(self) -> tuple[str, ...]:
        """Return the tasks that have been busy since the last step while the others wait."""
        since = time.time() - (self._job.loop.now() - self._signs.silent_since)
        training = self._job.state.training
        loads = {name: task.load_since(since) for name, task in self._tasks.items()
                 if name in training}  # fmt: skip
        busy = tuple(name for name, load in loads.items() if load >= SPINNING_SHARE)
        return busy if any(load <= IDLE_SHARE for load in loads.values()) else ()
