"""What the supervisor must do next."""

from __future__ import annotations

from distrun.agent.protocol.causes import Cause
from distrun.events import Event, Outcome, Timer
from distrun.frozen import dataclass


@dataclass(frozen=True)
class StartTask:
    """Start an attempt. `cause`: why the task restarts; None for its first attempt."""

    task: str
    attempt: int
    cause: Cause | None = None


@dataclass(frozen=True)
class StopTask:
    """Send a signal to a task, and SIGKILL after `grace` seconds."""

    task: str
    signal: int
    grace: float


@dataclass(frozen=True)
class SetTimer:
    """Emit TimedOut(timer) after so many seconds, unless the job has ended by then."""

    timer: Timer
    seconds: float


@dataclass(frozen=True)
class CancelTimer:
    """Forget a timer."""

    timer: Timer


@dataclass(frozen=True)
class Announce:
    """Add an event to the record for its readers. It changes no state."""

    event: Event


@dataclass(frozen=True)
class Finish:
    """Release the hosts; once nothing of the job is left on them, emit JobEnded."""

    outcome: Outcome


Action = StartTask | StopTask | SetTimer | CancelTimer | Announce | Finish
