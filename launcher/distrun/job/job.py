"""A job: the one reader of its record, its samples and its place in the queue of a scheduler."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from distrun.advice.model import SECONDS, Advice, Symptom
from distrun.agent.linux.syscalls import signal_name
from distrun.agent.protocol import Progress
from distrun.agent.protocol.causes import Code
from distrun.codec import field_names, to_json
from distrun.errors import DistrunError
from distrun.frozen import Frozen, replace
from distrun.job import control, events, history, resumption
from distrun.job.events import Outcome, Result
from distrun.job.folder import JobFolder, JobRecord
from distrun.job.json_output import output_json, progress_json
from distrun.job.steps import behind, numbers
from distrun.job.timing import Activity, Timing
from distrun.lifecycle import (
    JOB,
    HostState,
    JobPhase,
    JobState,
    TaskPhase,
    TaskState,
    Used,
    highest,
    total,
)  # fmt: skip
from distrun.spec.problems import printable
from distrun.verdict.model import Kind, Replacement
from distrun.words.advice import advice_text
from distrun.words.causes import cause_text
from distrun.words.events import anew_warnings
from distrun.words.progress import number, seconds_left

if TYPE_CHECKING:
    from distrun.job.history import Sample, Usage
    from distrun.job.queued_job import QueuedJob
    from distrun.job.timing import AttemptTiming, Span

LOST = "lost"
"""The phase of a job whose record has no end and whose supervisor has died."""


_SAMPLES = 60
"""Of two minutes, or more of a long job."""
_MOST_ADVISED, _LOG_BYTES = 64, 1 << 18
"""Tasks, and bytes of the log of each, in which is searched for what makes the job slow."""
_END_BYTES = 4096
"""Of a log, in which is searched for the last progress."""

_INDEX_DELAY = 0.5
"""Seconds. The end of an attempt's log may be in the index after the attempt has ended."""


class TaskView(Frozen, kw_only=True):
    """A task with what only its processes and the supervisor know.

    Attributes:
        phase: the phase in the record, or `lost`.
        restarts_at: when it restarts at the earliest, in Unix seconds.
        log: the path of its log.
        usage: what it uses now; None if it does not run, or is not known yet.
        used: what all its attempts have used; the present one as far as it was sampled.
        progress_at: when it reported its progress, in Unix seconds; None: it does not run.
        last_output_at: when its log was written last; None: it does not run.
    """

    state: TaskState
    phase: str
    restarts_at: float | None
    log: str
    usage: Usage | None
    used: Used
    progress: Mapping[str, str]
    progress_at: float | None = None
    last_output_at: float | None = None

    @property
    def suspended_pid(self) -> int | None:
        return None if self.usage is None else self.usage.suspended_pid

    def to_json(self) -> dict[str, Any]:
        task = self.state
        return {
            "task": task.name,
            "state": self.phase,
            "last_state": task.phase.value,
            "host": task.host,
            "address": task.address,
            "pid": task.pid,
            "attempt": task.attempt,
            "exit_code": task.code,
            "signal": None if task.signal is None else signal_name(task.signal),
            "reason": None if task.reason is None else cause_text(task.reason),
            "reason_code": to_json(task.reason),
            "stopped_by_distrun": task.stopped_by_us,
            "started_at": task.started_at,
            "exited_at": task.exited_at,
            "seconds": task.exit.lived,
            "restarts_at": self.restarts_at,
            "log": self.log,
            "usage": to_json(self.usage),
            "used": to_json(self.used),
            "progress": progress_json(self.progress),
            "progress_at": self.progress_at,
            "last_output_at": self.last_output_at,
        }


class Job:
    """A job as it is now. Its record, samples and logs are read when they are first asked for.

    Args:
        folder: the job's.
        state: the job's, where that is known already, and no supervisor lives.
        queued: what its scheduler says of a submitted job, if its supervisor is elsewhere.
    """

    def __init__(
        self, folder: JobFolder, state: JobState | None = None, *, queued: QueuedJob | None = None
    ) -> None:
        self.folder, self.queued = folder, queued
        self.supervisor: int | None = None
        """The process of its supervisor; None: there is none."""
        if queued is not None:
            self.state = queued.state
        elif state is not None:
            self.state = state
        else:
            # Before the record: a supervisor that has ended by now has written its whole record.
            self.supervisor = folder.supervisor_pid()

    @cached_property
    def history(self) -> list[events.Event]:
        """Its events; also those that an agent could not send to a supervisor that died."""
        found, state = self.folder.job_record.read()
        self.__dict__.setdefault("state", state)
        return found

    @cached_property
    def state(self) -> JobState:
        # It may be one of very many that have ended: only its state is kept.
        return JobRecord(self.folder).read()[1] if self.supervisor is None else self.folder.state()

    @cached_property
    def samples(self) -> dict[str, list[Sample]]:
        return self.samples_of([*self.state.tasks])

    def samples_of(self, tasks: Sequence[str]) -> dict[str, list[Sample]]:
        """Return samples, and the last report of each attempt, in the order of time."""
        none: dict[str, list[Sample]] = {task: [] for task in tasks}
        found, attempts = none | history.read(self.folder, tasks), dict[str, int]()
        for event in self.history:
            if isinstance(event, events.TaskStarted):
                attempts[event.task] = event.attempt
            elif isinstance(event, events.TaskReported) and event.task in found:
                attempt, progress = attempts.get(event.task, 0), numbers(event.values)
                found[event.task].append(
                    history.Sample(at=event.at, attempt=attempt, progress=progress)
                )
        for task, last in self._reports.items():
            if last.at and task in found:
                attempt, progress = self.state.tasks[task].attempt, numbers(last.values)
                found[task].append(history.Sample(at=last.at, attempt=attempt, progress=progress))
        return {task: sorted(its, key=lambda one: one.at) for task, its in found.items() if its}

    @property
    def ready_hosts(self) -> dict[str, events.HostReady]:
        """How each host last became ready, by its name."""
        return {each.host: each for each in self.history if isinstance(each, events.HostReady)}

    @cached_property
    def tasks(self) -> list[TaskView]:
        """All its tasks. Of those on this machine, it is measured for 100 ms what they use."""
        return [self._task(task) for task in self.state.tasks.values()]

    def _task(self, task: TaskState) -> TaskView:
        incident = self.state.incident_of(task)
        is_restarting = incident is not None and task.has_ended and not self.is_lost
        return TaskView(
            state=task,
            phase=LOST if self.is_lost and not task.has_ended else task.phase.value,
            restarts_at=incident.due_at if incident is not None and is_restarting else None,
            log=str(self.folder.log_of(task.name)),
            usage=self._sampled(task),
            used=self._used_by(task),
            progress=self._reports[task.name].values,
            progress_at=self._reports[task.name].at or None,
            last_output_at=None if task.has_ended else self.folder.last_output(task.name),
        )

    def _sampled(self, task: TaskState) -> Usage | None:
        if not self.is_running or task.started_at is None or task.has_ended:
            return None
        return history.sampled(self.folder, task)

    def _used_by(self, task: TaskState) -> Used:
        """What a task has used, with the present attempt or one whose end is not recorded."""
        if task.ended_at is not None or task.started_at is None:
            return task.used
        for last in history.last(self.folder, task.name, 1):
            if last.attempt == task.attempt:
                used = {name: getattr(last, name) for name in field_names(Used)}
                return task.used.with_attempt(Used(**used))
        return task.used_if_ended

    @cached_property
    def used(self) -> list[Used]:
        """What its tasks have used, in the order of the tasks."""
        return [self._used_by(task) for task in self.state.tasks.values()]

    @cached_property
    def first_outputs(self) -> dict[tuple[str, int], float]:
        """When attempts printed their first byte (Unix time), to the index's 100 ms."""
        from distrun.logs import TaskLog

        started: dict[tuple[str, int], tuple[float, int]] = {}
        ended: dict[tuple[str, int], float] = {}
        for event in self.history:
            if isinstance(event, events.TaskStarted):
                started[event.task, event.attempt] = event.at, event.log_start
            elif isinstance(event, events.TaskEnded):
                ended[event.task, event.attempt] = event.at
        found: dict[tuple[str, int], float] = {}
        for (task, attempt), (at, begin) in started.items():
            with contextlib.suppress(OSError, ValueError):  # of a name that no task can have
                log = TaskLog.of(self.folder, task)
                marker = b"--- attempt %d, " % (attempt + 1)
                if (task, attempt + 1) in started and log.read(begin, len(marker)) == marker:
                    continue  # it printed nothing: this is the agent's line before the next one
                written = next((when for when, _ in log.spans(begin, log.extent().size)), None)
                latest = ended.get((task, attempt), time.time()) + _INDEX_DELAY
                if written is not None and written <= latest:
                    found[task, attempt] = max(written, at)
        return found

    @property
    def timing(self) -> list[AttemptTiming]:
        return self._timed.attempts

    def spans(self, until: float) -> list[Span]:
        """Return what its tasks did; what has not ended is taken to end at `until`."""
        spans = self._timed.spans
        return [span if span.end <= until else replace(span, end=until) for span in spans]

    @cached_property
    def _timed(self) -> Timing:
        return Timing(self.history, self.first_outputs, self.state.ended_at or time.time())

    @property
    def tensorboard(self) -> str | None:
        kinds = (events.TensorBoardStarted, events.TensorBoardEnded)
        told = (each for each in reversed(self.history) if isinstance(each, kinds))
        return getattr(next(told, None), "address", None) if self.is_running else None

    @property
    def _is_active(self) -> bool:
        return self.supervisor is not None or (self.queued is not None and self.queued.is_active)

    @property
    def is_lost(self) -> bool:
        return not self._is_active and not self.state.phase.is_final

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; it may also wait in the queue of a scheduler."""
        if self.queued is not None:
            return self.queued.is_active
        return self._is_active and not self.state.phase.is_final

    @property
    def phase(self) -> str:
        if self.is_lost:
            return LOST
        if self.is_running and self.state.is_queued:
            return JobPhase.PENDING.value
        if self.queued is not None and self.queued.is_active:
            if self.queued.is_pending:
                return JobPhase.PENDING.value
            if self.state.phase is JobPhase.PENDING and self.queued.entry is not None:
                return JobPhase.PREPARING.value  # its batch script or its pod has just begun
        return self.state.phase.value

    @property
    def outcome(self) -> Outcome | None:
        return self.state.outcome if self.state.phase.is_final else None

    @cached_property
    def record_fault(self) -> str | None:
        return self.folder.record_fault() or ("is damaged" if self.state.lacks_events else None)

    @property
    def record_note(self) -> str:
        """What its record lacks, if it is known how the job ended or is doing; else empty."""
        lacks = "lines of it cannot be read" if self.state.name else "the beginning is missing"
        return f"its record is damaged: {lacks}" if self.record_fault == "is damaged" else ""

    @property
    def has_counts(self) -> bool:
        """Whether its record shows what it consists of."""
        return bool(self.state.tasks) or self.record_fault is None

    @property
    def cause_word(self) -> str | None:
        """Why it failed, as a verdict's kind, or what stopped it; None if it did neither."""
        if self.is_lost:
            here = "supervisor_died" if self.record_fault is None else "record_damaged"
            return here if self.queued is None else "unknown_to_scheduler"
        outcome = self.outcome
        if outcome is not None and outcome.verdict is not None:
            return outcome.verdict.kind.value
        if outcome is None or outcome.result is Result.SUCCEEDED:
            return None
        cause = outcome.cause
        while cause.within:
            cause = cause.within[0]
        if cause.signal:
            return signal_name(cause.signal)
        if cause.code is Code.STOPPED_BY_COMMAND:
            return cause.name.rpartition(" ")[2]  # `kill` of `distrun kill`
        is_launch = cause.code in (Code.LAUNCH_COMMAND_DIED, Code.OUTPUT_READER_GONE)
        return cause.code.value if is_launch else "scheduler"  # a verdict's kind, too

    @property
    def progress(self) -> Mapping[str, str]:
        """What the first of its tasks that report any has reported last, a running one if any."""
        return self._first_report.values

    @cached_property
    def _first_report(self) -> Progress:
        found = {name: report for name, report in self._reports.items() if report.values}
        running = [found[name] for name in found if self._is_running(name)]
        return next(iter(running or found.values()), Progress("", {}, 0.0))

    def _is_running(self, name: str) -> bool:
        return self.state.tasks[name].phase is TaskPhase.RUNNING

    @cached_property
    def _answer(self) -> tuple[Mapping[str, Progress], DistrunError | None]:
        """What its tasks have reported last, if its supervisor is near; why it says nothing."""
        try:
            return (control.progress(self.folder) if self.is_running else {}), None
        except DistrunError as error:
            return {}, error

    @property
    def silence(self) -> str | None:
        """Why its supervisor does not say how far the tasks are; None: it does, or has ended."""
        return None if self._answer[1] is None else str(self._answer[1])

    @cached_property
    def _reports(self) -> dict[str, Progress]:
        """What each task has reported last; at 0: an earlier attempt has."""
        now = self._answer[0]
        return {
            name: now.get(name) or self._sampled_report(task)
            for name, task in self.state.tasks.items()
        }

    def _sampled_report(self, task: TaskState) -> Progress:
        """What a task had reported when it was sampled last, if its supervisor cannot be asked.

        Or what the end of its log shows, if that is further.
        """
        has_no_end = self.is_running or self.is_lost or task.exited_at is None
        has_no_end &= not self._answer[0]
        samples = history.last(self.folder, task.name, _SAMPLES) if has_no_end else []
        its = [each for each in samples if each.attempt == task.attempt and each.progress]
        # Later ones that are equal are no sign of life.
        found = next((each for each in its if each.progress == its[-1].progress), None)
        printed = self._printed(task) if has_no_end else {}
        sampled, ends_at = ({}, None) if found is None else (found.progress, found.ends_at)
        is_of_form = sampled.keys() <= printed.keys()  # else the task tells more than it prints
        if is_of_form and _place(numbers(printed)) > _place(sampled):
            at = self.folder.last_output(task.name) or 0.0
            return Progress(task.name, printed, at, ends_at)
        if found is None:
            return Progress(task.name, dict(task.reported), 0.0)
        values = {key: f"{value:.12g}" for key, value in sampled.items()}
        return Progress(task.name, values, found.at, ends_at)

    def _printed(self, task: TaskState) -> dict[str, str]:
        """What a task has printed of its progress at the end of its log."""
        from distrun.job.printed_progress import PrintedProgress

        printed = PrintedProgress()
        if task.output_start is not None:  # else its attempt has not started
            printed.read(self._log_of(task, end=_END_BYTES).decode(errors="replace"))
        return printed.values

    @property
    def progress_at(self) -> float | None:
        """When `progress` was reported, in Unix seconds; None: unknown, or by an ended attempt."""
        return self._first_report.at or None

    @cached_property
    def time_left(self) -> float | None:
        """The seconds until the last of the tasks that report their work has done it."""
        if not self.is_running or self.state.outcome is not None:
            return None
        running = filter(self._is_running, self._reports)
        return seconds_left((self._reports[name].ends_at for name in running), time.time())

    @property
    def behind(self) -> str | None:
        """Which running task is slower or behind the others of its role, or lets them wait."""
        advice = self.advice if self.is_running else None
        if advice is not None and advice.symptom in (Symptom.BEHIND, Symptom.WAITED_FOR):
            return self.advice_words
        if self._behind is None:
            return None
        name, least, usual = self._behind
        return f"{name} is behind: step {least:,.0f}, the others are at {usual:,.0f}"

    @cached_property
    def _behind(self) -> tuple[str, float, float] | None:
        """The task that is behind, its step, and the others'. A lost link hides its tasks."""
        found: dict[str, dict[str, float]] = {}
        for name, report in self._reports.items():
            task, values = self.state.tasks[name], report.values
            host = self.state.hosts.get(task.host)
            # What no answer has is of different times, but for the last of a task that has ended.
            is_seen = task.phase is TaskPhase.RUNNING and name in self._answer[0]
            is_seen &= host is None or host.link_lost is None
            if not is_seen and task.phase is not TaskPhase.SUCCEEDED:
                continue
            step, epoch = number(values.get("STEP", "")), number(values.get("EPOCH", "0"))
            if step is not None and epoch is not None:
                same = f"{name.partition(':')[0]} {epoch} {number(values.get('STEPS', ''))}"
                found.setdefault(same, {})[name] = step
        for done in found.values():
            first = (number(self.state.tasks[name].first_step.get("STEP", "")) for name in done)
            slow = min(done, key=lambda name: done[name])
            epoch = number(self._reports[slow].values.get("EPOCH", "0"))
            its = (each.progress for each in history.last(self.folder, slow, _SAMPLES))
            seen = (each.get("STEP") for each in its if each.get("EPOCH", 0.0) == epoch)
            task_behind = behind(done, [each for each in (*first, *seen) if each is not None])
            if task_behind and not self.state.tasks[task_behind[0]].has_ended:
                return task_behind
        return None

    @cached_property
    def advice(self) -> Advice | None:
        """What costs much of its time; None: nothing, or it has failed, or was short."""
        outcome, tasks = self.outcome, [*self.state.tasks.values()][:_MOST_ADVISED]
        began = max([self.state.created_at, *(task.started_at or 0.0 for task in tasks)])
        has_failed = outcome is not None and outcome.result is Result.FAILED
        if has_failed or (self.state.ended_at or time.time()) - began < SECONDS:
            return None
        advised = (each for each in reversed(self.history) if isinstance(each, events.JobAdvised))
        last = next(advised, None)
        if last is not None and last.finding is not None and last.at >= began:
            return last.finding
        from distrun.advice.rules import advise  # most jobs that are asked about are short

        return advise(
            {task.name: history.last(self.folder, task.name, _SAMPLES) for task in tasks},
            {task.name: self._log_of(task) for task in tasks},
            self._saving_shares(began),
        )

    @property
    def advice_words(self) -> str:
        """Its advice; how to see more is said while it runs."""
        job_id = self.folder.job_id if self.outcome is None else None
        return "" if self.advice is None else advice_text(self.advice, job_id)

    def _saving_shares(self, began: float) -> dict[str, float]:
        """Return for which share of its time since then each task has saved."""
        now = self.state.ended_at or time.time()
        saving: dict[str, float] = {}
        for span in self.spans(now):
            if span.activity is Activity.SAVING and span.start >= began:
                saving[span.task] = saving.get(span.task, 0.0) + span.end - span.start
        return {task: seconds / max(1.0, now - began) for task, seconds in saving.items()}

    def _log_of(self, task: TaskState, *, end: int = 0) -> bytes:
        """The beginning of what its attempt has printed, or the last bytes of it: `end`."""
        from distrun.logs import TaskLog

        with contextlib.suppress(OSError):
            log, start = TaskLog.of(self.folder, task.name), task.output_start or 0
            start = max(start, log.extent().size - end) if end else start
            return log.read_kept(start, end or _LOG_BYTES)[1]
        return b""

    @property
    def restarts(self) -> int:
        return self.state.restarts_made

    @property
    def restarts_left(self) -> int:
        return self.state.policy.max - self.state.budget(JOB).counted

    @property
    def other_replacements(self) -> list[Replacement]:
        """What further plans have changed, without the one that the verdict has."""
        verdict = self.state.verdict
        of_verdict = None if verdict is None else verdict.replacement
        return [each for each in self.state.replacements if each != of_verdict]

    @property
    def warnings(self) -> list[str]:
        """The warnings about its success or its progress, and why results are missing."""
        verdict = None if self.outcome is None else self.outcome.verdict
        is_qualified = verdict is not None and verdict.kind is Kind.QUALIFIED
        causes = verdict.cause.within if verdict is not None and is_qualified else ()
        found = [printable(cause_text(each)) for each in (*causes, *self.state.result_faults)]
        tasks = self.state.tasks.values() if self.outcome is None else ()
        found += [cause_text(task.failing) for task in tasks if task.failing is not None]
        for state, pid in ((each.state, each.suspended_pid) for each in self.tasks):
            how = f"to let it continue: kill -CONT {pid} (on {printable(state.host)})"
            found += [f"{state.name} is suspended; {how}"] if pid is not None else []
        return [*found, *anew_warnings(self.state)]

    @property
    def resume_command(self) -> str | None:
        """The command that continues it; None if it runs, has succeeded, or is of elsewhere."""
        is_over = not self.is_running and self.record_fault is None
        can_resume = is_over and resumption.is_resumable(self.state)
        can_resume = can_resume and self.folder.resolved_spec_file.exists()
        is_own = not can_resume or getattr(self.folder.batch_job(), "is_own", True)
        return f"distrun resume {self.folder.job_id}" if can_resume and is_own else None

    def host_state(self, host: HostState) -> str:
        """Return `in use`, `spare`, `lost`, `link lost`, or `left out`."""
        if host.lost is not None:
            return "lost"
        if host.fault is not None or host.left_out is not None:
            return "left out"
        if host.link_lost is not None:
            return "link lost"
        return "in use" if host.name in self.hosts_in_use else "spare"

    @cached_property
    def hosts_in_use(self) -> set[str]:
        return {task.host for task in self.state.tasks.values()}

    def summary(self) -> dict[str, Any]:
        state, outcome = self.state, self.outcome
        running = [task for task in state.tasks.values() if task.phase is TaskPhase.RUNNING]
        used = self.used
        seconds = total(each.cpu_seconds for each in used)
        counts = {
            "task_count": len(state.tasks),
            "running_task_count": 0 if self.is_lost else len(running),
            "restarts": self.restarts,
            "restarts_left": self.restarts_left,
            "resumed": len(state.resumed_at),
            "cpu_seconds": None if seconds is None else round(seconds, 3),
        }
        return {
            "job_id": self.folder.job_id,
            "name": state.name,
            "state": self.phase,
            "running": self.is_running,
            "strategy": state.strategy,
            **(counts if self.has_counts else dict.fromkeys(counts)),
            "resume_command": self.resume_command,
            "record_fault": self.record_fault,
            "created_at": state.created_at,
            "ended_at": state.ended_at,
            "peak_memory_bytes": highest(each.peak_memory_bytes for each in used),
            "exit_code": outcome.exit_code if outcome else None,
            "origin": outcome.origin.value if outcome else None,
            "warnings": self.warnings,
            "seconds_left": self.time_left,
            "progress_at": self.progress_at,
            "behind": self.behind,
            "folder": str(self.folder.path),
            **self._scheduler_json(),
        }

    def _scheduler_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"slurm": None, "kubernetes": None}
        batch = self.folder.batch_job() if self.state.batch_id else None
        if batch is None:
            return shown
        entry = None if self.queued is None else self.queued.entry
        said = {
            "job": self.state.batch_id,
            "state": None if entry is None else entry.state,
            "reason": None if entry is None else entry.reason or None,
        }
        if batch.namespace:
            return {**shown, "kubernetes": {**said, "namespace": batch.namespace}}
        return {**shown, "slurm": {**said, "starts_at": None if entry is None else entry.starts_at}}

    def to_json(self) -> dict[str, Any]:
        return {
            **self.summary(),
            "outcome": output_json(self.outcome),
            "verdict": output_json(self.state.verdict),
            "supervisor_pid": self.supervisor or None,
            "resumptions": {
                "at": list(self.state.resumed_at),
                "changes": list(self.state.changes),
                "down_seconds": self.state.down if self.has_counts else None,
                "repeated_steps": self.state.repeated_steps if self.has_counts else None,
                "hosts_not_cleared": list(self.state.former_hosts),
            },
            "hosts": [self._host_json(host) for host in self.state.hosts.values()],
            "replacements": output_json(self.state.replacements),
            "tensorboard": self.tensorboard,
            "quiet_since_at": None if self.state.quiet is None else self.state.quiet.since,
            "advice": self.advice and {**to_json(self.advice), "text": self.advice_words},
            "timing": output_json(self.timing),
            "tasks": [task.to_json() for task in self.tasks],
        }

    def _host_json(self, host: HostState) -> dict[str, Any]:
        fields = output_json(host)
        names = (
            *("name", "hostname", "kind", "agent_pid", "gpus", "spare", "clock_behind_seconds"),
            *("lost", "lost_code", "lost_at", "link_lost", "link_lost_code", "link_lost_at"),
            *("left_out", "left_out_code", "fault", "fault_code"),
        )
        return {"state": self.host_state(host), **{name: fields.get(name) for name in names}}


def _place(progress: Mapping[str, float]) -> tuple[float, float]:
    return progress.get("EPOCH", 0.0), progress.get("STEP", 0.0)


def read_jobs(folders: Sequence[JobFolder]) -> list[Job]:
    """Return jobs as they are now. A scheduler is asked once for all of those that it holds."""
    elsewhere = [folder for folder in folders if folder.is_elsewhere]
    queued: dict[str, QueuedJob] = {}
    if elsewhere:
        from distrun.job.queued_job import look_at

        queued = look_at(elsewhere)
    return [Job(folder, queued=queued.get(folder.job_id)) for folder in folders]


def read_job(folder: JobFolder) -> Job:
    """Return one job. Of what is asked for again, only the new part of its record is read."""
    (job,) = read_jobs([folder])
    _ = job.history
    return job
