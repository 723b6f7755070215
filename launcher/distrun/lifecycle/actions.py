"""What the supervisor must do next."""

from __future__ import annotations

from distrun.agent.protocol import Cause, StopTask
from distrun.frozen import Frozen
from distrun.job.events import Event, Timer


class StartAttempt(Frozen):
    """Start an attempt. `cause`: why the task restarts; None for its first attempt."""

    task: str
    attempt: int
    cause: Cause | None = None


class SetTimer(Frozen):
    """Emit TimedOut(timer) after so many seconds, unless the job has ended by then; None: never."""

    timer: Timer
    seconds: float | None


class Announce(Frozen):
    """Add an event to the record for its readers. It changes no state."""

    event: Event


class MakePlan(Frozen):
    """Find hosts for the tasks of a restart, some of whose hosts cannot be used any more.

    JobPlanned or PlanFailed must follow, unless the job ends.
    """

    restart: int
    tasks: tuple[str, ...]


class Finish(Frozen):
    """Release the hosts; once nothing of the job is left on them, emit JobEnded."""


Action = StartAttempt | StopTask | SetTimer | Announce | MakePlan | Finish
