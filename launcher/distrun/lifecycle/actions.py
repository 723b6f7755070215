"""What the supervisor is to do."""

from __future__ import annotations

from dataclasses import dataclass

from distrun.events import Event, Outcome


@dataclass(frozen=True)
class StartTask:
    """`cause`: what this attempt follows, in words; empty for the first."""

    task: str
    attempt: int
    cause: str = ""


@dataclass(frozen=True)
class StopTask:
    task: str
    signal: int
    grace: float


@dataclass(frozen=True)
class SetTimer:
    """Have TimedOut(timer) happen in so many seconds, unless the job is over by then."""

    timer: str
    seconds: float


@dataclass(frozen=True)
class CancelTimer:
    """That timer no longer matters."""

    timer: str


@dataclass(frozen=True)
class Announce:
    """Put that into the record, for those who read it."""

    event: Event


@dataclass(frozen=True)
class Finish:
    """Let the hosts go; once nothing is left on them, JobEnded has happened."""

    outcome: Outcome


Action = StartTask | StopTask | SetTimer | CancelTimer | Announce | Finish
