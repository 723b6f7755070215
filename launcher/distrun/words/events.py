"""What happened to a job in words: its events, its place in a queue, the phases of its attempts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distrun.agent.linux.syscalls import signal_name
from distrun.agent.protocol.causes import Cause, Code
from distrun.job import events
from distrun.job.events import Origin, Result, TimerKind
from distrun.job.scheduler import QueueEntry
from distrun.job.timing import AttemptTiming, Phase, first_time
from distrun.lifecycle import JobState
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes
from distrun.strategies import Role
from distrun.words.advice import advice_text
from distrun.words.causes import (
    by_cause,
    cause_advice,
    cause_text,
    cause_with_advice,
    check_text,
    exit_text,
    restart_reason,
)
from distrun.words.formats import (
    apart_text,
    format_count,
    format_duration,
    format_names,
    format_time,
)
from distrun.words.progress import progress_words
from distrun.words.verdicts import LABEL_INDENT, evidence_lines

_NOTABLE_SECONDS = 1.0


class EventFormatter:
    """Formats the events of one job, with the time since the first of them."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._exits: dict[str, float] = {}

    def lines(self, event: events.Event) -> list[tuple[str, int]]:
        """Return the lines about an event, each with its indent; none if it is not worth any.

        The first has the time, the time since the first event, and the text. A terminal wraps a
        line with its indent.
        """
        if self._first is None:
            self._first = event.at
        # Reports of other hosts come late, and clocks are set: times shown never go back.
        self._last = max(self._last, event.at)
        if isinstance(event, events.TaskExited):
            self._exits[event.task] = event.at
        text = self._late_end(event) if isinstance(event, events.TaskEnded) else event_text(event)
        if text is None:
            return []
        text = "; ".join(line.strip() for line in text.split("\n"))
        after = f"+{format_duration(self._last - self._first)}"
        when = f"{format_time(self._last)}  {after:>10}  "
        details = evidence_lines(event.verdict) if isinstance(event, events.VerdictReached) else []
        return [
            (f"{when}{printable(text)}", len(when)),
            *((" " * len(when) + printable(line), len(when) + LABEL_INDENT) for line in details),
        ]

    def _late_end(self, event: events.TaskEnded) -> str | None:
        """Return how long a task's last processes outlived it; None if less than a second."""
        took = event.at - self._exits.get(event.task, event.at)
        if took < _NOTABLE_SECONDS:
            return None
        return f"{event.task}'s last processes ended {format_duration(took)} after it"


def event_text(event: events.Event) -> str | None:
    """Return what happened, in one clause; None if it need not be mentioned."""
    words = _TEXTS.get(type(event), type(event).__name__)
    if not isinstance(words, str):
        return words(event)
    cause = getattr(event, "cause", None)
    return words.format(event=event, cause="" if cause is None else cause_text(cause))


def resumed_text(state: JobState) -> str:
    """Return how often a job was resumed, with which changes, and what that has cost."""
    times = format_count(len(state.resumed_at), "time")
    changes = f" with{_settings(state.changes)}" if state.changes else ""
    repeated = state.repeated_steps
    steps = f"; {format_count(repeated, 'step')} trained again" if repeated else ""
    return f"resumed {times}{changes}; it was down for {format_duration(state.down)}{steps}"


def anew_warnings(state: JobState) -> list[str]:
    """Return that a running job has begun at its first step again and again, if it has."""
    times = list(itertools.takewhile(lambda each: each.is_anew, reversed(state.interruptions)))
    if not times or state.outcome is not None:
        return []
    said = f"training began at its first step again, {format_count(len(times), 'time')} in a row"
    return [f"{said}: does the program save checkpoints, and load the last one?"]


def _settings(changes: Iterable[str]) -> str:
    return "".join(f" {each if each[:3] == '-- ' else f'--set {each}'}" for each in changes)


def quiet_text(quiet: events.TasksQuiet, at: float) -> str:
    """Return that the tasks had done nothing for long at this time (Unix seconds)."""
    lasts = f"for {format_duration(max(0.0, at - quiet.since))}, no task has printed anything new"
    if not quiet.usual:
        return f"{lasts}, reported progress or used the processor"
    work = "is" if len(quiet.busy) == 1 else "are"
    who = f"{format_names(quiet.busy)} {work} busy while the others wait" if quiet.busy else ""
    often = format_duration(quiet.usual) if quiet.usual >= 1 else "second"
    return f"{lasts} or reported progress, which came every {often} before; " + (
        who or "the tasks use the processor"
    )


def quiet_advice(job_id: str) -> str:
    return (
        f"to see where each task is: distrun stacks {job_id}; distrun kill {job_id}, or Ctrl-C in "
        "its launch, prints it and ends the job"
    )


def queue_text(entry: QueueEntry, expected: float | None = None) -> str:
    """Return where a job is: `running in Slurm as job 12, until 14:05:00`, for example.

    Args:
        entry: what its scheduler says of it.
        expected: when it said before that it would start (Unix time), if it did.
    """
    words = f"{entry.state.lower()} in {entry.scheduler} as job {entry.id}"
    if not entry.is_pending:
        return words + (f", until {format_time(entry.ends_at)}" if entry.ends_at else "")
    why = f" ({entry.reason})" if entry.reason else ""
    if entry.scheduler != "Slurm":
        return words + why
    starts_at = entry.starts_at or expected
    if starts_at is None:
        return f"{words}{why}; Slurm has no estimate of its start yet"
    left = starts_at - time.time()
    wait = f", in {format_duration(left)}" if left > 0 else ""
    return f"{words}{why}; it starts at about {format_time(starts_at)}{wait}"


def timing_title(attempt: AttemptTiming) -> str:
    what = format_count(len(attempt.tasks), "task")
    if attempt.resumed:
        return f"resumed: {what}"
    if attempt.cause is None:
        return f"launched: {what}"
    return f"restarted after {cause_text(attempt.cause).partition(chr(10))[0]}: {what}"


def first_times(attempts: Sequence[AttemptTiming]) -> list[str]:
    """Return how long it took until all tasks had printed, and had done a step, at first."""
    phases = (Phase.FIRST_OUTPUT, Phase.FIRST_STEP)
    known = ((phase, first_time(attempts, phase)) for phase in phases)
    return [f"{p.words} after {format_duration(took)}" for p, took in known if took is not None]


def _host_cleared(event: events.HostCleared) -> str:
    cleared = f"nothing of earlier attempts is left on {event.host}"
    if event.cause is None:
        return cleared
    says_how = event.cause.code in (Code.FORMER_LEASE_OVER, Code.FORMER_HOST_ASSUMED_DEAD)
    how = "" if says_how else "its lease is over, and it cannot be reached: "
    return f"{cleared}: {how}{cause_text(event.cause)}"


def _host_not_cleared(event: events.HostNotCleared) -> str:
    if event.seconds == 0:
        return (
            f"{event.host} cannot be reached; its lease is over, so no task of earlier attempts "
            f"runs there, unless it is suspended ({cause_text(event.cause)})"
        )
    until = "" if event.seconds is None else f"; its lease ends in {format_duration(event.seconds)}"
    return (
        f"{event.host} cannot be reached, so tasks of earlier attempts may still run there{until} "
        f"({cause_text(event.cause)})"
    )


def _logs_received_late(event: events.LogsReceivedLate) -> str:
    sizes = format_names(f"{format_bytes(size)} of {task}" for task, size in event.sizes.items())
    return (
        f"{event.host} was reached again and has sent the rest of its logs: {sizes}; "
        "`distrun logs` shows them in their place"
    )


def _host_ready(event: events.HostReady) -> str:
    gpus = f", {len(event.gpus)} GPUs" if event.gpus else ""
    return (
        f"{event.host} is ready{', a spare' if event.spare else ''}: {event.cores:g} cores{gpus}, "
        f"Python {event.python} (agent {event.agent_pid})"
    )


def _results_fetched(event: events.ResultsFetched) -> str:
    count, size = format_count(event.files, "file"), format_bytes(event.size)
    said = f"fetched {count} of the results ({size}) into {event.folder}"
    if event.folder.startswith("distrun fetch "):
        said = f"kept {count} of the results ({size}); to bring them: {event.folder}"
    return "; ".join([said + apart_text(event.apart), *map(cause_text, event.causes)])


def _sync_started(event: events.SyncStarted) -> str | None:
    if not event.files:
        return None
    return (
        f"{event.host} is sent {event.files} of {format_count(event.all_files, 'file')}, "
        f"{format_bytes(event.size)} of {format_bytes(event.all_size)}"
    )


def _preflight_found(event: events.PreflightFound) -> str:
    advice = cause_advice(event.cause)
    more = f" ({advice})" if advice else ""
    return f"preflight {event.grade.value}: {check_text(event)}{more}"


def _preflight_ended(event: events.PreflightEnded) -> str:
    found = [f"{event.failed} failed"] if event.failed else []
    found += [format_count(event.warnings, "warning")] if event.warnings else []
    return f"preflight: {format_count(event.checks, 'check')}, {', '.join(found) or 'all passed'}"


def _task_reported(event: events.TaskReported) -> str | None:
    words = progress_words(event.values, rate_of=" examples")
    return f"{event.task} last reported {', '.join(words)}" if words else None


def _restart_planned(event: events.RestartPlanned) -> str:
    verb = "starts" if len(event.tasks) == 1 else "start"
    left = f"{format_count(event.left, 'restart')} left"
    is_counted = event.cause.code is Code.HOST_LOST
    free = "counted already" if is_counted else "not counted, a preemption"
    counted = free if event.is_free else left
    return (
        f"after {restart_reason(event.cause)}: {format_names(event.tasks)} {verb} again in "
        f"{format_duration(event.delay)} ({counted})"
    )


def _job_planned(event: events.JobPlanned) -> str:
    hosts = {task.name: task.host for task in event.tasks}
    words = [
        f"{name} on {hosts[name]} instead of {former}"
        for name, former in event.former_hosts.items()
        if name in hosts
    ]
    if event.all_workers is not None:
        workers = sum(task.role is Role.WORKER for task in event.tasks)
        words.append(f"{workers} of {event.all_workers} workers")
    again = f"planned again: {', '.join(words)}; " if words else "planned: "
    return again + format_names(hosts)


def waiting_text(cause: Cause, limit: str = "") -> str:
    """Return why a restart waits. `limit`: for how long it does, unless it is in a queue."""
    is_queued = cause.code is Code.POD_QUEUED
    what = "the job continues once it has" if is_queued else f"waiting for a host{limit}"
    return f"{cause_text(cause)}; {what}"


def _plan_failed(event: events.PlanFailed) -> str:
    is_evaluator = all(task.startswith(Role.EVALUATOR.value) for task in event.cause.tasks)
    # The job does not wait for an evaluator, which then stays down; the verdict says so.
    is_waiting = not (event.cause.tasks and is_evaluator)
    return waiting_text(event.cause) if is_waiting else cause_text(event.cause)


def _timed_out(event: events.TimedOut) -> str | None:
    timer = event.timer
    if timer.kind is TimerKind.RESTART:  # the starts that follow say the same
        return None
    if timer.kind is TimerKind.HEALTH:
        return (
            f"no failure for restart.reset_after: the {timer.key}'s restarts are counted from "
            "0 again"
        )
    if timer.kind is TimerKind.ABORT:
        return "tasks that still run get SIGABRT, so that Python prints its stacks"
    if timer.kind is TimerKind.EVALUATOR:
        return "the evaluator did not end within timeouts.grace after success"
    return f"timeouts.{timer} expired"


def _job_ended(event: events.JobEnded) -> str:
    outcome = event.outcome
    if outcome.result is Result.SUCCEEDED:
        return "the job succeeded"
    whose = outcome.task if outcome.origin is Origin.TASK else "distrun"
    cause = cause_text(outcome.cause).partition("\n")[0]  # the event that ended it has the rest
    how = f"was {cause}" if outcome.result is Result.STOPPED else f"failed: {cause}"
    return f"the job {how}; exit code {outcome.exit_code}, {whose}'s"


_TEXTS: dict[type[events.Event], str | Callable[[Any], str | None]] = {
    events.JobCreated: (
        "job {event.job_id} created: {event.strategy} (supervisor {event.supervisor_pid})"
    ),
    events.ClusterMismatched: "{cause}",
    events.HostFault: "{event.host} cannot continue: {cause}",
    events.HostLeftOut: "{event.host} is left out: {cause}",
    events.HostLost: "{event.host} is lost: {cause}",
    events.LinkLost: "the link to {event.host} is lost: {cause}",
    events.LinkRestored: "the link to {event.host} is restored",
    events.LogsIncomplete: "the logs of {event.host}'s tasks may not all be here: {cause}",
    events.PreflightSkipped: "the preflight was skipped (--no-preflight)",
    events.ProgressIgnored: "{event.task}: {cause}",
    events.ChildrenFail: lambda event: cause_with_advice(event.cause),
    events.TasksActive: "a task does something again",
    events.JobAdvised: lambda event: (
        advice_text(event.finding, "").rstrip() if event.finding else "the advice no longer holds"
    ),
    events.TaskNotStarted: "{event.task} could not be started: {cause}",
    events.TensorBoardStarted: "TensorBoard is at {event.address}",
    events.TensorBoardEnded: "TensorBoard {cause}",
    events.TensorBoardSilent: "TensorBoard {cause}",
    events.JobQueued: lambda event: (
        f"job {event.job_id} queued in {event.scheduler} as job {event.batch_id}"
        + (f" again: {cause_text(event.cause)}" if event.cause else "")
    ),
    events.JobResumed: lambda event: (
        f"job {event.job_id} resumed{_settings(event.changes)} after "
        f"{format_duration(event.down)} (supervisor {event.supervisor_pid})"
    ),
    events.HostNotCleared: _host_not_cleared,
    events.HostCleared: _host_cleared,
    events.HostReady: _host_ready,
    events.LogsReceivedLate: _logs_received_late,
    events.SyncStarted: _sync_started,
    events.Synced: lambda event: (
        f"{event.host} has the program's files{'' if event.files else '; none had to be sent'}"
    ),
    events.FilesPreserved: lambda event: (
        f"the tasks on {event.host} left {format_count(event.files, 'file')} "
        f"({format_bytes(event.size)})"
        + (f", now in {event.folder}" if event.folder else "; only `program.results` are kept")
    ),
    events.ResultsFetched: _results_fetched,
    events.PreflightStarted: lambda event: f"checking {format_count(event.hosts, 'host')}",
    events.PreflightFound: _preflight_found,
    events.PreflightEnded: _preflight_ended,
    events.JobPlanned: _job_planned,
    events.PlanFailed: _plan_failed,
    events.Aborted: lambda event: f"the job cannot continue: {cause_with_advice(event.cause)}",
    events.TaskStarted: lambda event: (
        f"{event.task} started (pid {event.pid}"
        f"{f', attempt {event.attempt}' if event.attempt else ''})"
    ),
    events.TaskReady: "{event.task} is ready",
    events.FirstStep: "{event.task} has done its first step",
    events.SavingStarted: lambda _: None,  # the report shows them
    events.SavingEnded: lambda _: None,
    events.StartsCanceled: lambda event: (
        f"{format_names(event.tasks)} {'was' if len(event.tasks) == 1 else 'were'} not started"
    ),
    events.TaskExited: lambda event: f"{event.task} {exit_text(event.code, event.signal)}",
    events.TaskReported: _task_reported,
    events.RestartPlanned: _restart_planned,
    events.TasksQuiet: lambda event: quiet_text(event, event.at),
    events.StopRequested: lambda event: (
        f"asked to stop{by_cause(event.cause)}: {signal_name(event.signal)}, "
        f"SIGKILL after {event.grace:g} s"
    ),
    events.TimedOut: _timed_out,
    events.VerdictReached: lambda event: (
        f"first cause: {cause_text(event.verdict.cause).splitlines()[0]} "
        f"({event.verdict.kind.value})"
    ),
    events.JobEnded: _job_ended,
}
"""A text that needs more than the fields of an event and the words of its cause is a function."""
