"""Events in words, a line each."""

from __future__ import annotations

from functools import singledispatchmethod

from distrun import events
from distrun.agent.linux.syscalls import signal_name
from distrun.cli.cause_text import cause_text, cause_with_advice
from distrun.cli.progress import progress_words
from distrun.cli.text_format import (
    format_bytes,
    format_count,
    format_duration,
    format_task_names,
    format_time,
    printable,
)
from distrun.cli.verdictview import grounds

_WORTH_TELLING = 1.0  # seconds


def restart_words(event: events.RestartPlanned) -> str:
    """What is restarted, when at the earliest, and how often that may be done again."""
    who = format_task_names(event.tasks)
    verb = "starts" if len(event.tasks) == 1 else "start"
    left = (
        "not counted, a preemption"
        if event.is_free
        else f"{format_count(event.left, 'restart')} left"
    )
    return f"after {event.cause}: {who} {verb} again in {format_duration(event.delay)} ({left})"


def verdict_words(event: events.VerdictReached) -> str:
    """The first cause of a failure, apart from what followed from it."""
    verdict = event.verdict
    cause = verdict.cause.partition("\n")[0]
    return f"first cause: {cause} ({verdict.kind.value})"


def logs_incomplete_words(event: events.LogsIncomplete) -> str:
    """That a gone host's logs could not all be fetched, and what became of them."""
    return f"the logs of {event.host}'s tasks are not all here: {cause_text(event.cause)}"


def files_preserved_words(event: events.FilesPreserved) -> str:
    """How much tasks wrote into their host's copy of the program's files, and where it is now."""
    what = f"{format_count(event.files, 'file')} ({format_bytes(event.size)})"
    return f"the tasks on {event.host} left {what}, now in {event.folder}"


def stays_down_words(task: str) -> str:
    """What an evaluator's last failure means to its job."""
    return f"{task} has failed and stays down; the job goes on without it"


class Story:
    """Tells one job's events; the time of each is shown after the job's first."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._last = 0.0
        self._exited: dict[str, float] = {}
        self.indent = 0
        """Columns before the words of what was told last."""
        self.details: list[str] = []
        """Lines to be shown below it."""

    def tell(self, event: events.Event) -> str | None:
        """One line: when, how long after the beginning, and what; None for what is no news."""
        if self._began is None:
            self._began = event.at
        # Some are told after what came of them, and clocks are set: a story goes forward.
        self._last = max(self._last, event.at)
        if isinstance(event, events.TaskExited):
            self._exited[event.task] = event.at
        self.details = []
        said = self._say(event)
        if said is None:
            return None
        said = "; ".join(line.strip() for line in said.split("\n"))
        after = f"+{format_duration(self._last - self._began)}"
        when = f"{format_time(self._last)}  {after:>10}  "
        self.indent = len(when)
        return f"{when}{printable(said)}"

    @singledispatchmethod
    def _say(self, event: events.Event) -> str | None:
        return type(event).__name__

    @_say.register
    def _(self, event: events.JobCreated) -> str:
        return f"job {event.job_id} created: {event.strategy} (supervisor {event.supervisor_pid})"

    @_say.register
    def _(self, event: events.HostReady) -> str:
        gpus = f", {len(event.gpus)} GPUs" if event.gpus else ""
        return (
            f"{event.host} is ready: {event.cores:g} cores{gpus}, Python {event.python} "
            f"(agent {event.agent_pid})"
        )

    @_say.register
    def _(self, event: events.HostFault) -> str:
        return f"{event.host} cannot go on: {cause_text(event.cause)}"

    @_say.register
    def _(self, event: events.HostLost) -> str:
        return f"{event.host} is lost: {cause_text(event.cause)}"

    @_say.register
    def _(self, event: events.LinkLost) -> str:
        return f"the link to {event.host} is lost: {cause_text(event.cause)}"

    @_say.register
    def _(self, event: events.LinkRestored) -> str:
        return f"the link to {event.host} is restored"

    @_say.register
    def _(self, event: events.LogsIncomplete) -> str:
        return logs_incomplete_words(event)

    @_say.register
    def _(self, event: events.SyncStarted) -> str | None:
        if not event.files:
            return None
        return (
            f"{event.host} is sent {event.files} of {format_count(event.all_files, 'file')}, "
            f"{format_bytes(event.size)} of {format_bytes(event.all_size)}"
        )

    @_say.register
    def _(self, event: events.Synced) -> str:
        if not event.files:
            return f"{event.host} has the program's files; none had to be sent"
        return f"{event.host} has the program's files"

    @_say.register
    def _(self, event: events.FilesPreserved) -> str:
        return files_preserved_words(event)

    @_say.register
    def _(self, event: events.PreflightSkipped) -> str:  # noqa: ARG002 - told by its kind
        return "the preflight was skipped (--no-preflight)"

    @_say.register
    def _(self, event: events.PreflightStarted) -> str:
        return f"checking {format_count(event.hosts, 'host')}"

    @_say.register
    def _(self, event: events.PreflightFound) -> str:
        advice = f" ({event.advice})" if event.advice else ""
        return f"preflight {event.grade}: {event.text}{advice}"

    @_say.register
    def _(self, event: events.PreflightEnded) -> str:
        found = [f"{event.failed} failed"] if event.failed else []
        found += [format_count(event.warnings, "warning")] if event.warnings else []
        return (
            f"preflight: {format_count(event.checks, 'check')}, {', '.join(found) or 'all passed'}"
        )

    @_say.register
    def _(self, event: events.JobPlanned) -> str:
        return f"planned: {', '.join(task.name for task in event.tasks)}"

    @_say.register
    def _(self, event: events.Aborted) -> str:
        reason = cause_with_advice(event.cause)
        return f"it cannot go on: {reason}"

    @_say.register
    def _(self, event: events.TaskStarted) -> str:
        again = f", attempt {event.attempt}" if event.attempt else ""
        return f"{event.task} started (pid {event.pid}{again})"

    @_say.register
    def _(self, event: events.TaskNotStarted) -> str:
        return f"{event.task} could not be started: {cause_text(event.cause)}"

    @_say.register
    def _(self, event: events.TaskExited) -> str:
        if event.signal is not None:
            return f"{event.task} was killed by {signal_name(event.signal)}"
        return f"{event.task} exited {event.code}"

    @_say.register
    def _(self, event: events.TaskEnded) -> str | None:
        took = event.at - self._exited.get(event.task, event.at)
        if took < _WORTH_TELLING:
            return None
        return f"{event.task}'s last processes ended {format_duration(took)} after it"

    @_say.register
    def _(self, event: events.TaskReported) -> str | None:
        words = progress_words(event.values, rate_of=" examples")
        return f"{event.task} had come to {', '.join(words)}" if words else None

    @_say.register
    def _(self, event: events.RestartPlanned) -> str:
        return restart_words(event)

    @_say.register
    def _(self, event: events.TensorBoardStarted) -> str:
        return f"TensorBoard started at {event.address}"

    @_say.register
    def _(self, event: events.TensorBoardEnded) -> str:
        return f"TensorBoard {cause_text(event.cause)}"

    @_say.register
    def _(self, event: events.StopRequested) -> str:
        return (
            f"asked to stop by {cause_text(event.cause)}: {signal_name(event.signal)}, "
            f"SIGKILL after {event.grace:g} s"
        )

    @_say.register
    def _(self, event: events.TimedOut) -> str | None:
        timer, _, which = event.timer.partition(":")
        if timer == "restart":  # what it waited for follows, or the last of its tasks has to end
            return None
        if timer == "health":
            return f"no failure for long enough: the {which}'s restarts are counted from 0 again"
        if event.timer == "evaluator":
            return "the evaluator's time after success ran out"
        return f"timeouts.{event.timer} ran out"

    @_say.register
    def _(self, event: events.VerdictReached) -> str:
        self.details = grounds(event.verdict)
        return verdict_words(event)

    @_say.register
    def _(self, event: events.JobEnded) -> str:
        outcome = event.outcome
        if outcome.result == "succeeded":
            return "the job succeeded"
        whose = outcome.task if outcome.origin == "task" else "distrun"
        cause = outcome.cause.partition("\n")[0]  # the rest has been told with what ended it
        how = f"was {cause}" if outcome.result == "stopped" else f"failed: {cause}"
        return f"the job {how}; exit code {outcome.exit_code}, {whose}'s"
