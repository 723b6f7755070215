"""The attempts that run, and what is known of each: what hosts say of them becomes events."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, Progress, Report
from distrun.agent.protocol.stack_messages import ProgramRequested, StacksDumped
from distrun.job import events
from distrun.job.history import HistoryLog, Sample
from distrun.job.stacks import Stacks, places
from distrun.job.steps import numbers
from distrun.plan import TaskPlan
from distrun.spec.model import Ready
from distrun.spec.regular_file import open_regular_file
from distrun.supervisor.cluster_check import ClusterCheck
from distrun.supervisor.failure_analyzer import FailureAnalyzer
from distrun.supervisor.hosts.background_calls import Question
from distrun.supervisor.line_search import LineSearch
from distrun.supervisor.log_tails import LogTails, TailedLog
from distrun.supervisor.running_job import RunningJob
from distrun.supervisor.stack_collector import StackCollector
from distrun.supervisor.stall_detector import (
    IDLE_SHARE,
    SPINNING_SHARE,
    SUSPECT_SECONDS,
    StallDetector,
)
from distrun.words.progress import TimeLeft

if TYPE_CHECKING:
    from distrun.job.printed_progress import PrintedProgress

_MOST_VALUES = 100
"""How many keys of a task are kept: those that it reported last."""
_MOST_LOADS = 64
_SAMPLED = 0.03
"""The part of a task's time in which its host samples it three times, and an idle one not."""
_LATENESS = 2.0
"""Seconds by which the time of printed progress may be late: it is that of reading the log."""
_MOST_SAVES = 2000
_ERRORS_BYTES = 16384


class RunningTask:
    """One attempt, from the order to start it until the next one, or until the task is dropped.

    What it reports through DISTRUN_NOTIFY replaces what it prints, key by key. Once it has reported
    a step or an epoch, what it prints does not count.
    """

    def __init__(
        self, plan: TaskPlan, job: RunningJob, tails: LogTails, observer: RunningTasks
    ) -> None:
        self._plan, self.name = plan, plan.name
        self._job, self._tails, self._observer = job, tails, observer
        self._reported: dict[str, str] = {}
        self._printed: dict[str, str] = {}
        self.latest: Progress | None = None
        """All that is known of its progress. Times are by this machine's clock."""
        self._left = TimeLeft()
        self.step_at: float | None = None
        self._loads: deque[tuple[float, float]] = deque(maxlen=_MOST_LOADS)
        """When it was sampled (Unix time), and the processor seconds that it had used by then."""
        self.attempt = 0
        self._search: LineSearch | None = None
        self._is_awaited = False
        """Whether it runs, and is not ready for the tasks that start after it."""

    def start(self, report: protocol.TaskStarted) -> None:
        self.attempt = report.attempt
        self._is_awaited = self._plan.is_awaited and self._plan.ready is not Ready.OFF
        if self._is_awaited and self._plan.ready is Ready.LINE:
            self._search = LineSearch(
                *(self._job.loop, self._job.hosts.calls, self._job.folder.log_of(self.name)),
                start=report.log_start,
                expression=self._plan.ready_line,
                on_found=self._on_line,
            )
        if not self.reports_steps:
            tail = TailedLog(
                *(self._job.folder, self.name, report.log_start, self._on_printed),
                on_served=lambda addresses: self._observer.on_served(self, addresses),
            )
            self._tails.start(self.name, tail)

    def end(self) -> None:
        """The attempt has exited. The rest of its log may come later."""
        self._is_awaited = False
        if self._search is not None:
            self._search.close()
            self._search = None

    def close(self) -> None:
        """The next attempt begins, or there is none."""
        self.end()
        self._tails.stop(self.name)

    # Readiness -----------------------------------------------------------------------------

    def on_listening(self, ports: Collection[int]) -> None:
        """Note the ports on which it listens: it may be ready now."""
        if self._is_awaited and self._plan.ready is Ready.PORT and self._plan.port in ports:
            self._is_awaited = False
            self._observer.on_ready(self)

    def _on_line(self) -> None:
        self.end()
        self._observer.on_ready(self)

    @property
    def why_not_ready(self) -> Cause | None:
        """A cause if its log has not been searched to its end."""
        count, total = (0, 0) if self._search is None else self._search.progress
        if count >= total:
            return None
        code, expression = Code.LINE_SEARCH_BEHIND, self._plan.ready_line
        return Cause(code, task=self.name, text=expression, count=count, total=total)

    # Progress ------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress | None:
        """Its latest, with what is known now of its end: nothing if it has not moved for long."""
        return self.latest and self.latest._replace(ends_at=self._left.ends_at(time.time()))

    @property
    def reports_steps(self) -> bool:
        """Whether it has reported steps or epochs. Then what it prints does not count."""
        return not {"STEP", "EPOCH"}.isdisjoint(self._reported)

    @property
    def is_between(self) -> bool:
        """Whether it saves, or has made the last step of an epoch: what follows prints nothing."""
        values = {} if self.latest is None else self.latest.values
        return values.get("SAVING") == "1" or values.get("STEP", "") == values.get("STEPS", "?")

    def record(self, report: Progress) -> None:
        """Note what it has reported. What it reported before stays valid."""
        had_steps = self.reports_steps
        self._reported = _merged(self._reported, report.values)
        if self.reports_steps and not had_steps:
            self._tails.stop(self.name)
            self._printed = {}
            self._observer.on_step(self, None, is_moving=False)  # its bar is not waited for
        self._observer.on_step(self, report.values.get("STEP"), is_moving=True)
        self._update(report.at, None)

    def sample(self, report: protocol.UsageSampled) -> Sample:
        """Return what it uses, with the progress that it had reported or printed by then."""
        if report.cpu_seconds is not None:
            self._loads.append((report.at, report.cpu_seconds))
        values = report._asdict()
        del values["task"]
        is_known = self.latest is not None and self.latest.at <= report.at + _LATENESS
        values["progress"] = numbers({**(self._printed if is_known else {}), **report.progress})
        return Sample(**values, ends_at=self._left.ends_at(time.time()))

    def load_since(self, at: float) -> float:
        """Return how much of a core it has used since then (Unix time); 0: it was idle, or new."""
        loads = [each for each in self._loads if each[0] >= at]
        passed = loads[-1][0] - loads[0][0] if loads else 0.0
        return (loads[-1][1] - loads[0][1]) / passed if passed > 0 else 0.0

    def _on_printed(self, values: dict[str, str], printed: PrintedProgress) -> None:
        step = f"{values.get('EPOCH')} {values.get('STEP')}"
        self._observer.on_step(self, step, is_moving=printed.is_moving)
        if self._printed != values:
            self._printed = values
            self._update(time.time(), printed.epochs_done)

    def _update(self, at: float, epochs_done: float | None) -> None:
        values = _merged(self._printed, self._reported)
        before = {} if self.latest is None else self.latest.values
        if "STEP" in values and values["STEP"] != before.get("STEP"):
            self.step_at = at
        self._left.note(values, at, epochs_done)
        self.latest = Progress(self.name, values, at, self._left.ends_at(at))
        self._observer.on_progress(self)


class RunningTasks:
    """Has a :class:`.RunningTask` for the present attempt of each task."""

    def __init__(self, job: RunningJob, analyzer: FailureAnalyzer) -> None:
        self._job, self._emit, self._analyzer = job, job.emit, analyzer
        self._tasks: dict[str, RunningTask] = {}
        self._history = HistoryLog(job.folder)
        self.stacks = StackCollector(job)
        self._tails = LogTails(job.loop, job.folder, self._on_output)
        self.signs = StallDetector(
            *(job.loop, job.spec.timeouts.stall, self._tails.size_of_output, self._list_watched),
            measure=lambda: job.hosts.order_all(protocol.MeasureCpu()),
            on_change=self._on_silence,
            is_between=lambda: any(task.is_between for task in self._tasks.values()),
            list_training=lambda: job.state.training,
        )
        self._cluster = ClusterCheck((), self._find_setter)
        self._is_setter_asked = False
        self._setter: tuple[str, bool] | None = None
        """Where the program sets TF_CONFIG: see :class:`.ClusterCheck`; None: not known yet."""

    def use_plan(self, tasks: Sequence[TaskPlan]) -> None:
        """Use another plan from now on; tasks that it has not have ended."""
        for task in self._tasks.keys() - {task.name for task in tasks}:
            self._tasks.pop(task).close()
            self.signs.end(task)
        self._cluster = ClusterCheck(tasks, self._find_setter)

    # An attempt ----------------------------------------------------------------------------

    def expect(self, task: TaskPlan) -> None:
        if task.name in self._tasks:
            self._tasks[task.name].close()
        self._tasks[task.name] = RunningTask(task, self._job, self._tails, self)

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
            self.signs.end(task)

    def note_failing_children(self, task: str) -> None:
        """What a task prints is no sign of life any more, if its children print that they fail."""
        from distrun.verdict.traceback_forms import START  # few jobs need it

        start = max(0, self._job.folder.size_of_log(task) - _ERRORS_BYTES)
        with (
            contextlib.suppress(OSError),
            open_regular_file(self._job.folder.log_of(task)) as file,
        ):
            file.seek(start)
            if START.encode() in file.read(_ERRORS_BYTES):
                self.signs.record(task, "")

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
        self._tails.read(task.name)
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
        if isinstance(report, (Progress, protocol.UsageSampled, protocol.TaskListening)):
            if report.task in self._tasks and self.is_on(host, report):
                self._on_observation(self._tasks[report.task], report)
        elif isinstance(report, protocol.CpuMeasured):
            here = {task.name for task in state.tasks.values() if task.host == host}
            used = {task: used for task, used in report.seconds.items() if task in here}
            self.signs.record_cpu(used)
        elif isinstance(report, (StacksDumped, ProgramRequested)):
            self.stacks.receive(host, report)
        else:
            return False
        return True

    def is_on(self, host: str, report: Any) -> bool:
        """Whether a report is about a task of its host, not one that is on another by now."""
        task = self._job.state.tasks.get(report.task)
        return task is not None and task.host == host

    def _on_observation(
        self, task: RunningTask, report: Progress | protocol.UsageSampled | protocol.TaskListening
    ) -> None:
        if isinstance(report, Progress):
            task.record(report)
        elif isinstance(report, protocol.UsageSampled):
            self._history.append(task.name, task.sample(report))
            if task.progress != task.latest:  # it has not moved for long: its end is unknown
                task.latest = task.progress
                self.on_progress(task)
        elif self._is_running(task.name):
            task.on_listening(report.ports)
            self._report_cluster(self._cluster.record(task.name, report.ports))

    def _is_running(self, task: str) -> bool:
        known = self._job.state.tasks.get(task)
        return known is not None and known.phase is lifecycle.TaskPhase.RUNNING

    @property
    def progress(self) -> list[Progress]:
        return [each for task in self._tasks.values() if (each := task.progress) is not None]

    # What an attempt does ------------------------------------------------------------------

    def on_progress(self, task: RunningTask) -> None:
        """There is progress: :attr:`RunningTask.latest`."""
        progress, known = task.latest, self._job.state.tasks.get(task.name)
        if progress is None or known is None:
            return
        self._job.clients.broadcast(progress)
        if known.first_step_at is None and "STEP" in progress.values:
            values = {k: v for k, v in progress.values.items() if k in ("EPOCH", "STEP")}
            self._emit(
                events.FirstStep(
                    at=progress.at,
                    task=task.name,
                    attempt=known.attempt,
                    values=values,
                    is_printed=not task.reports_steps,
                )
            )
        is_saving = progress.values.get("SAVING") == "1"
        if is_saving is not known.is_saving and known.saves < _MOST_SAVES:
            kind = events.SavingStarted if is_saving else events.SavingEnded
            self._emit(kind(at=progress.at, task=task.name, attempt=known.attempt))

    def on_step(self, task: RunningTask, step: str | None, *, is_moving: bool) -> None:
        """It has this step now. None: it has only other progress."""
        known = self._job.state.tasks.get(task.name)
        is_waited_for = known is not None and known.is_in_group and self._is_running(task.name)
        # A log may arrive after its task's exit.
        if is_waited_for or not self.signs.counts_steps:
            self.signs.record(task.name, step, is_moving=is_moving)

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
            self.signs.limit(SUSPECT_SECONDS)

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

    def _list_watched(self) -> list[str]:
        """Return the tasks whose signs count; none while nothing can be known of them."""
        state = self._job.state
        if any(host.link_lost is not None for host in state.hosts.values()):
            return []
        if self.signs.counts_steps:
            return state.training
        is_running = state.phase is lifecycle.JobPhase.RUNNING
        return list(filter(self._is_running, state.tasks)) if is_running else []

    def _on_output(self) -> None:
        self.signs.note_output()

    def _on_silence(self, are_silent: bool) -> None:
        """The tasks do nothing, or one does something again."""
        if self._job.state.outcome is not None:
            return
        if self.signs.counts_steps:
            if are_silent:
                self._on_stall()
        elif not are_silent:
            self._emit(events.TasksActive(at=time.time()))
        elif self._cluster.suspect is not None:
            self._report_mismatch(self._cluster.suspect)
        else:
            usual, busy = self.signs.stop_found or (0.0, ())
            since = time.time() - (self._job.loop.now() - self.signs.silent_since)
            self._emit(events.TasksQuiet(at=time.time(), since=since, usual=usual, busy=busy))

    def note_hang(self) -> None:
        """Report that the tasks seem to hang, if they do: somebody stops the job."""
        at, state = time.time(), self._job.state
        since = at - (self._job.loop.now() - self.signs.last_output)
        loads = {name: self._tasks[name].load_since(since) for name in self._list_watched()}
        began = min((state.tasks[name].started_at or 0.0 for name in loads), default=0.0)
        if state.quiet is None and at - since >= _SAMPLED * (at - began):
            found = self.signs.find_hang(loads)
            if found is not None:
                quiet = events.TasksQuiet(at=at, since=since, is_asked=True, **found._asdict())
                self._emit(quiet)

    def _on_stall(self) -> None:
        """Report the stall once the stacks of the tasks are known."""

        def go_on(found: Stacks) -> None:
            if self.signs.are_silent and self._job.state.outcome is None:
                where, busy = places(found.processes), self._list_busy()
                timed_out = events.TimedOut(
                    at=time.time(), timer=lifecycle.STALL, places=where, busy=busy
                )
                self._emit(timed_out)

        self.stacks.ask_stalled(go_on)

    def _list_busy(self) -> tuple[str, ...]:
        """Return the tasks that have been busy since the last step while the others wait."""
        since = time.time() - (self._job.loop.now() - self.signs.silent_since)
        training = self._job.state.training
        loads = {name: task.load_since(since) for name, task in self._tasks.items()
                 if name in training}  # fmt: skip
        busy = tuple(name for name, load in loads.items() if load >= SPINNING_SHARE)
        return busy if any(load <= IDLE_SHARE for load in loads.values()) else ()


def _merged(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Return both, with the values that `after` has, and with the last keys if there are many."""
    kept = [(key, value) for key, value in before.items() if key not in after]
    return dict([*kept, *after.items()][-_MOST_VALUES:])
