"""Events in words, a line each."""

from __future__ import annotations

from functools import singledispatchmethod

from distrun import events
from distrun.agent.kernel import signal_name
from distrun.cli.console import clock_time, printable, span


class Story:
    """Tells one job's events; the time of each is shown after the job's first."""

    def __init__(self) -> None:
        self._began: float | None = None

    def tell(self, event: events.Event) -> str:
        """One line: when, how long after the beginning, and what."""
        if self._began is None:
            self._began = event.at
        after = f"+{span(event.at - self._began)}"
        return f"{clock_time(event.at)}  {after:>10}  {printable(self._say(event))}"

    @singledispatchmethod
    def _say(self, event: events.Event) -> str:
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
        return f"{event.host} cannot go on: {event.reason}"

    @_say.register
    def _(self, event: events.HostLost) -> str:
        return f"{event.host} is lost: {event.reason}"

    @_say.register
    def _(self, event: events.JobPlanned) -> str:
        return f"planned: {', '.join(task.name for task in event.tasks)}"

    @_say.register
    def _(self, event: events.Aborted) -> str:
        return f"it cannot go on: {event.reason}"

    @_say.register
    def _(self, event: events.TaskStarted) -> str:
        again = f", attempt {event.attempt}" if event.attempt else ""
        return f"{event.task} started (pid {event.pid}{again})"

    @_say.register
    def _(self, event: events.TaskNotStarted) -> str:
        return f"{event.task} could not be started: {event.reason}"

    @_say.register
    def _(self, event: events.TaskExited) -> str:
        if event.signal is not None:
            return f"{event.task} was killed by {signal_name(event.signal)}"
        return f"{event.task} exited {event.code}"

    @_say.register
    def _(self, event: events.TaskEnded) -> str:
        return f"{event.task} has ended: none of its processes is left"

    @_say.register
    def _(self, event: events.TaskReported) -> str:
        values = " ".join(f"{name}={value}" for name, value in event.values.items())
        return f"{event.task} last reported {values}"

    @_say.register
    def _(self, event: events.TensorBoardStarted) -> str:
        return f"TensorBoard started at {event.address}"

    @_say.register
    def _(self, event: events.TensorBoardEnded) -> str:
        return f"TensorBoard {event.how}"

    @_say.register
    def _(self, event: events.StopRequested) -> str:
        return (
            f"asked to stop by {event.reason}: {signal_name(event.signal)}, "
            f"SIGKILL after {event.grace:g} s"
        )

    @_say.register
    def _(self, event: events.TimedOut) -> str:
        return (
            f"timeouts.{event.timer} ran out"
            if event.timer != "evaluator"
            else ("the evaluator's time after success ran out")
        )

    @_say.register
    def _(self, event: events.JobEnded) -> str:
        outcome = event.outcome
        if outcome.result == "succeeded":
            return "the job succeeded"
        whose = outcome.task if outcome.origin == "task" else "distrun"
        return (
            f"the job {outcome.result}: {outcome.cause}; exit code {outcome.exit_code}, {whose}'s"
        )
