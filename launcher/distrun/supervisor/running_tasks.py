"""What is known of the attempts that run, from the start of each to its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.protocol.stack_messages import ProgramRequested, StacksDumped
from distrun.job import events
from distrun.supervisor.cluster_check import ClusterCheck
from distrun.supervisor.hosts.inquiry import Question
from distrun.supervisor.quiet import SUSPECT_SECONDS, QuietWatch
from distrun.supervisor.ready_watch import ReadyWatch
from distrun.supervisor.stack_collector import StackCollector
from distrun.supervisor.stall import StallWatch
from distrun.supervisor.task_progress import TaskProgress
from distrun.supervisor.training_gap import TrainingGap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distrun.agent.loop import Loop
    from distrun.agent.protocol import Cause, Report
    from distrun.job.folder import JobFolder
    from distrun.plan import TaskPlan
    from distrun.spec.model import Spec
    from distrun.supervisor.failure_analyzer import FailureAnalyzer
    from distrun.supervisor.hosts.pool import HostPool

_MOST_SAVES = 2000
"""Of one attempt, that are recorded."""


class RunningTasks:
    """Tells all watches of the start and end of each attempt; what they find becomes events.

    Args:
        analyzer: reads logs and the program for where tasks serve.
        state: returns the job's.
        emit: called with the events.
        broadcast: called with the progress of tasks.
        has_own_files: returns whether a host does not see this machine's files.
    """

    def __init__(  # noqa: PLR0913 - what they need of a supervisor
        self,
        loop: Loop,
        folder: JobFolder,
        spec: Spec,
        hosts: HostPool,
        analyzer: FailureAnalyzer,
        *,
        state: Callable[[], lifecycle.JobState],
        emit: Callable[[events.Event], None],
        broadcast: Callable[[protocol.Progress], None],
        has_own_files: Callable[[str], bool],
    ) -> None:
        self._loop, self._hosts, self._analyzer = loop, hosts, analyzer
        self._state, self._emit, self._broadcast = state, emit, broadcast
        self.progress = TaskProgress(loop, folder, self._on_progress, self._on_step)
        self.training = TrainingGap(emit, time.time)
        self.stacks = StackCollector(loop, hosts.order, has_own_files)
        seconds = spec.timeouts.stall
        self._stall = None if seconds is None else StallWatch(seconds, folder.size_of_log, loop.now)
        self._quiet = None
        if self._stall is None:
            size_of_log, running = folder.size_of_log, self._list_running
            self._quiet = QuietWatch(loop, size_of_log, self._measure_cpu, running)
        self._cluster = self._check_cluster(())
        self._ready = ReadyWatch(loop, (), folder.log_of, self._report_ready)
        self._is_setter_asked = False
        self._setter: tuple[str, bool] | None = None
        """Where the program sets TF_CONFIG: see :class:`.ClusterCheck`; None: not known yet."""
        loop.checks.append(self._check_quiet)

    def use_plan(self, tasks: Sequence[TaskPlan], dropped: set[str]) -> None:
        """Watch these tasks from now on; those that were dropped have ended."""
        for task in dropped:
            self.progress.forget(task)
            if self._stall is not None:
                self._stall.forget(task)
        self._cluster.close()
        self._cluster = self._check_cluster(tasks)
        self._ready.use_plan(tasks)

    def _check_cluster(self, tasks: Sequence[TaskPlan]) -> ClusterCheck:
        read_served = self._analyzer.served_addresses
        return ClusterCheck(
            self._loop, tasks, read_served, self._find_setter, self._report_mismatch
        )

    # An attempt ----------------------------------------------------------------------------

    def expect(self, task: str) -> None:
        """The next attempt of a task is about to start."""
        self.progress.forget(task)
        self.training.start(task)

    def start(self, report: protocol.TaskStarted) -> None:
        """An attempt runs."""
        self.progress.start(report.task, report.log_start)
        self._ready.start(report.task, report.attempt, report.log_start)

    def end(self, task: str, event: events.Event) -> None:
        """An attempt ends with this event: all that it has reported comes before."""
        self.progress.read_rest([task])
        self._record_progress(task)
        self._cluster.forget(task)
        self._ready.forget(task)
        self._emit(event)
        if self._stall is not None:
            self._stall.forget(task)

    def record_rest(self) -> None:
        """Record the last progress of all tasks: the job ends."""
        self.progress.read_rest()
        for task in self.progress.latest:
            self._record_progress(task)

    def close(self) -> None:
        """Stop reading logs."""
        self.progress.close()

    # What hosts report ---------------------------------------------------------------------

    def receive(self, host: str, report: Report) -> bool:
        """Note what tasks do while they run. Returns whether the report says that."""
        state = self._state()
        if isinstance(report, (protocol.Progress, protocol.UsageSampled)):
            report = report._replace(at=report.at + state.hosts[host].behind)
        if isinstance(report, protocol.Progress):
            self.progress.record(report)
        elif isinstance(report, protocol.TaskListening):
            self._on_listening(report)
        elif isinstance(report, protocol.UsageSampled):
            self.progress.record_usage(report)
        elif isinstance(report, protocol.CpuMeasured):
            if self._quiet is not None:
                here = {task.name for task in state.tasks.values() if task.host == host}
                used = {task: used for task, used in report.seconds.items() if task in here}
                self._quiet.record_cpu(used)
        elif isinstance(report, (StacksDumped, ProgramRequested)):
            self.stacks.receive(host, report)
        else:
            return False
        return True

    def _on_progress(self, progress: protocol.Progress) -> None:
        if self._quiet is not None:
            self._quiet.record_sign()
        self._broadcast(progress)
        known = self._state().tasks.get(progress.task)
        if known is None:
            return
        if known.first_step_at is None and "STEP" in progress.values:
            values = {k: v for k, v in progress.values.items() if k in ("EPOCH", "STEP")}
            task, attempt = progress.task, known.attempt
            self._emit(events.FirstStep(at=progress.at, task=task, attempt=attempt, values=values))
        self._record_saving(known, progress)
        if known.is_in_group:
            is_printed = not self.progress.reports_steps(progress.task)
            self.training.record(progress.task, progress.values, is_printed=is_printed)

    def _record_saving(self, task: lifecycle.TaskState, progress: protocol.Progress) -> None:
        is_saving = progress.values.get("SAVING") == "1"
        if is_saving is not task.is_saving and task.saves < _MOST_SAVES:
            kind = events.SavingStarted if is_saving else events.SavingEnded
            self._emit(kind(at=progress.at, task=task.name, attempt=task.attempt))

    def _record_progress(self, task: str) -> None:
        """Record the last progress of a task's attempt, if it is not recorded yet."""
        last = self.progress.latest.get(task)
        if last is not None and last.values != self._state().tasks[task].reported:
            step_at = self.progress.step_at.get(task)
            self._emit(
                events.TaskReported(at=last.at, task=task, values=last.values, step_at=step_at)
            )

    # Readiness, and where tasks serve ------------------------------------------------------

    def why_not_ready(self) -> tuple[Cause, ...]:
        """Return what delays searches for lines in logs."""
        return self._ready.behind()

    @property
    def pids(self) -> set[int]:
        """The processes that search logs."""
        return self._ready.pids

    def _report_ready(self, task: str, attempt: int) -> None:
        self._emit(events.TaskReady(at=time.time(), task=task, attempt=attempt))

    def _on_listening(self, report: protocol.TaskListening) -> None:
        task = self._state().tasks[report.task]
        is_running = task.phase is lifecycle.TaskPhase.RUNNING and task.attempt == report.attempt
        if is_running:
            self._ready.on_listening(report.task, report.ports)
            self._report_cluster(self._cluster.record(report.task, report.ports))

    def _report_cluster(self, cause: Cause | None) -> None:
        if cause is not None:
            self._report_mismatch(cause)
        if self._cluster.suspect is not None and self._quiet is not None:
            self._quiet.limit(SUSPECT_SECONDS)

    def _report_mismatch(self, cause: Cause) -> None:
        if self._state().outcome is None:
            self._emit(events.ClusterMismatched(at=time.time(), cause=cause))

    def _find_setter(self) -> tuple[str, bool] | None:
        """Return where the program sets TF_CONFIG; None: that is being found out."""
        if not self._is_setter_asked:
            self._is_setter_asked = True
            question = Question("setter", self._analyzer.find_tf_config_line, tuple[str, bool])
            self._hosts.inquiries.ask(question, self._on_setter)
        return self._setter

    def _on_setter(self, setter: tuple[str, bool] | None) -> None:
        self._setter = setter or ("", False)
        self._report_cluster(self._cluster.check_unsure())

    # Signs of life -------------------------------------------------------------------------

    def watch_stall(self) -> float | None:
        """Watch for a stall anew. Returns the seconds until :meth:`check_stall`; None: off."""
        return None if self._stall is None else self._stall.start(self._state().training)

    def check_stall(self) -> float | None:
        """Return the seconds until the next check; None if the tasks stall."""
        return None if self._stall is None else self._stall.check(are_linked=self._are_linked)

    def _on_step(self, task: str, step: str | None, is_moving: bool) -> None:
        known = self._state().tasks.get(task)
        is_running = known is not None and known.phase is lifecycle.TaskPhase.RUNNING
        if self._stall is not None and is_running:  # a log may arrive after its task's exit
            self._stall.record(task, step, is_moving=is_moving)

    @property
    def _are_linked(self) -> bool:
        return all(host.link_lost is None for host in self._state().hosts.values())

    def _measure_cpu(self) -> None:
        self._hosts.order_all(protocol.MeasureCpu())

    def _list_running(self) -> set[str]:
        """Return the tasks that run; none if the job is not running, or a link is lost."""
        state = self._state()
        is_running = state.phase is lifecycle.JobPhase.RUNNING and self._are_linked
        tasks = state.tasks.values() if is_running else ()
        return {task.name for task in tasks if task.phase is lifecycle.TaskPhase.RUNNING}

    def _check_quiet(self) -> None:
        """Note that all tasks do nothing, or that one does something again."""
        quiet, state = self._quiet, self._state()
        if quiet is None or state.outcome is not None:
            return
        if quiet.is_quiet == (state.quiet_since is not None):
            return
        if not quiet.is_quiet:
            self._emit(events.TasksActive(at=time.time()))
        elif self._cluster.suspect is not None:
            self._report_mismatch(self._cluster.suspect)
        else:
            silent = self._loop.now() - quiet.since
            self._emit(events.TasksQuiet(at=time.time(), since=time.time() - silent))
