"""Events in words, one line each."""

from __future__ import annotations

from functools import singledispatchmethod

from distrun import events
from distrun.agent.linux.syscalls import signal_name
from distrun.cli.cause_text import cause_text, exit_text
from distrun.cli.progress import progress_words
from distrun.cli.text_format import (
    format_bytes,
    format_count,
    format_duration,
    format_task_names,
    format_time,
    printable,
)
from distrun.cli.verdict_text import evidence_lines
from distrun.events import Origin, Result, TimerKind

_NOTABLE_SECONDS = 1.0


def restart_text(event: events.RestartPlanned) -> str:
    """Return what restarts, when at the earliest, and how many restarts are left."""
    who = format_task_names(event.tasks)
    verb = "starts" if len(event.tasks) == 1 else "start"
    left = (
        "not counted, a preemption"
        if event.is_free
        else f"{format_count(event.left, 'restart')} left"
    )
    when = format_duration(event.delay)
    return f"after {cause_text(event.cause)}: {who} {verb} again in {when} ({left})"


def verdict_text(event: events.VerdictReached) -> str:
    """Return the first cause of a failure and its kind."""
    verdict = event.verdict
    return f"first cause: {_first_line(cause_text(verdict.cause))} ({verdict.kind.value})"


def host_text(event: events.HostLost | events.HostFault) -> str:
    """Return that a host is lost or has failed, and why."""
    how = "is lost" if isinstance(event, events.HostLost) else "cannot go on"
    return f"{event.host} {how}: {cause_text(event.cause)}"


def link_lost_text(event: events.LinkLost) -> str:
    """Return that a link is lost, and why."""
    return f"the link to {event.host} is lost: {cause_text(event.cause)}"


def logs_incomplete_text(event: events.LogsIncomplete) -> str:
    """Return that the logs of a lost host could not all be fetched, and why."""
    return f"the logs of {event.host}'s tasks are not all here: {cause_text(event.cause)}"


def files_preserved_text(event: events.FilesPreserved) -> str:
    """Return how much the tasks wrote into their host's copy of the files, and where it is now."""
    what = f"{format_count(event.files, 'file')} ({format_bytes(event.size)})"
    return f"the tasks on {event.host} left {what}, now in {event.folder}"


def evaluator_failed_text(task: str) -> str:
    """Return that an evaluator has failed for good."""
    return f"{task} has failed and stays down; the job goes on without it"


class EventFormatter:
    """Formats the events of one job, with the time since the first of them."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._exits: dict[str, float] = {}
        self.indent = 0
        """The columns before the text in the last line."""
        self.details: list[str] = []
        """Further lines to show below the last line."""

    def line(self, event: events.Event) -> str | None:
        """Return the time, the time since the first event, and the text; None if not worth it."""
        if self._first is None:
            self._first = event.at
        # Reports of other hosts come late, and clocks are set: times shown never go back.
        self._last = max(self._last, event.at)
        if isinstance(event, events.TaskExited):
            self._exits[event.task] = event.at
        self.details = []
        text = self._text(event)
        if text is None:
            return None
        text = "; ".join(line.strip() for line in text.split("\n"))
        after = f"+{format_duration(self._last - self._first)}"
        when = f"{format_time(self._last)}  {after:>10}  "
        self.indent = len(when)
        return f"{when}{printable(text)}"

    @singledispatchmethod
    def _text(self, event: events.Event) -> str | None:
        return type(event).__name__

    @_text.register
    def _(self, event: events.JobCreated) -> str:
        return f"job {event.job_id} created: {event.strategy} (supervisor {event.supervisor_pid})"

    @_text.register
    def _(self, event: events.HostReady) -> str:
        gpus = f", {len(event.gpus)} GPUs" if event.gpus else ""
        return (
            f"{event.host} is ready: {event.cores:g} cores{gpus}, Python {event.python} "
            f"(agent {event.agent_pid})"
        )

    @_text.register(events.HostFault)
    @_text.register(events.HostLost)
    def _(self, event: events.HostFault | events.HostLost) -> str:
        return host_text(event)

    @_text.register
    def _(self, event: events.LinkLost) -> str:
        return link_lost_text(event)

    @_text.register
    def _(self, event: events.LinkRestored) -> str:
        return f"the link to {event.host} is restored"

    @_text.register
    def _(self, event: events.LogsIncomplete) -> str:
        return logs_incomplete_text(event)

    @_text.register
    def _(self, event: events.SyncStarted) -> str | None:
        if not event.files:
            return None
        return (
            f"{event.host} is sent {event.files} of {format_count(event.all_files, 'file')}, "
            f"{format_bytes(event.size)} of {format_bytes(event.all_size)}"
        )

    @_text.register
    def _(self, event: events.Synced) -> str:
        if not event.files:
            return f"{event.host} has the program's files; none had to be sent"
        return f"{event.host} has the program's files"

    @_text.register
    def _(self, event: events.FilesPreserved) -> str:
        return files_preserved_text(event)

    @_text.register
    def _(self, event: events.PreflightSkipped) -> str:  # noqa: ARG002 - its type says all
        return "the preflight was skipped (--no-preflight)"

    @_text.register
    def _(self, event: events.PreflightStarted) -> str:
        return f"checking {format_count(event.hosts, 'host')}"

    @_text.register
    def _(self, event: events.PreflightFound) -> str:
        advice = f" ({event.advice})" if event.advice else ""
        return f"preflight {event.grade}: {event.text}{advice}"

    @_text.register
    def _(self, event: events.PreflightEnded) -> str:
        found = [f"{event.failed} failed"] if event.failed else []
        found += [format_count(event.warnings, "warning")] if event.warnings else []
        return (
            f"preflight: {format_count(event.checks, 'check')}, {', '.join(found) or 'all passed'}"
        )

    @_text.register
    def _(self, event: events.JobPlanned) -> str:
        return f"planned: {', '.join(task.name for task in event.tasks)}"

    @_text.register
    def _(self, event: events.Aborted) -> str:
        return f"the job cannot go on: {cause_text(event.cause)}"

    @_text.register
    def _(self, event: events.TaskStarted) -> str:
        again = f", attempt {event.attempt}" if event.attempt else ""
        return f"{event.task} started (pid {event.pid}{again})"

    @_text.register
    def _(self, event: events.TaskNotStarted) -> str:
        return f"{event.task} could not be started: {cause_text(event.cause)}"

    @_text.register
    def _(self, event: events.TaskExited) -> str:
        return f"{event.task} {exit_text(event.code, event.signal)}"

    @_text.register
    def _(self, event: events.TaskEnded) -> str | None:
        took = event.at - self._exits.get(event.task, event.at)
        if took < _NOTABLE_SECONDS:
            return None
        return f"{event.task}'s last processes ended {format_duration(took)} after it"

    @_text.register
    def _(self, event: events.TaskReported) -> str | None:
        words = progress_words(event.values, rate_of=" examples")
        return f"{event.task} last reported {', '.join(words)}" if words else None

    @_text.register
    def _(self, event: events.RestartPlanned) -> str:
        return restart_text(event)

    @_text.register
    def _(self, event: events.TensorBoardStarted) -> str:
        return f"TensorBoard started at {event.address}"

    @_text.register
    def _(self, event: events.TensorBoardEnded) -> str:
        return f"TensorBoard {cause_text(event.cause)}"

    @_text.register
    def _(self, event: events.StopRequested) -> str:
        return (
            f"asked to stop by {cause_text(event.cause)}: {signal_name(event.signal)}, "
            f"SIGKILL after {event.grace:g} s"
        )

    @_text.register
    def _(self, event: events.TimedOut) -> str | None:
        timer = event.timer
        if timer.kind is TimerKind.RESTART:  # the starts that follow say the same
            return None
        if timer.kind is TimerKind.HEALTH:
            return (
                f"no failure for restart.reset_after: the {timer.key}'s restarts are counted from "
                "0 again"
            )
        if timer.kind is TimerKind.EVALUATOR:
            return "the evaluator did not end within timeouts.grace after success"
        return f"timeouts.{timer} expired"

    @_text.register
    def _(self, event: events.VerdictReached) -> str:
        self.details = evidence_lines(event.verdict)
        return verdict_text(event)

    @_text.register
    def _(self, event: events.JobEnded) -> str:
        outcome = event.outcome
        if outcome.result is Result.SUCCEEDED:
            return "the job succeeded"
        whose = outcome.task if outcome.origin is Origin.TASK else "distrun"
        cause = _first_line(cause_text(outcome.cause))  # the event that ended it has the rest
        how = f"was {cause}" if outcome.result is Result.STOPPED else f"failed: {cause}"
        return f"the job {how}; exit code {outcome.exit_code}, {whose}'s"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
