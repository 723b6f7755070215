"""Where the time of a job went: when each attempt reached each of its phases, and who was last."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.job import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distrun.agent.protocol import Cause


class Phase(str, Enum):
    """What an attempt reaches, in this order. Not every attempt reaches each."""

    QUEUED = "queued"
    ACCEPTED = "accepted"
    HOSTS_REACHED = "hosts reached"
    FILES_SENT = "files sent"
    PORTS_HELD = "ports held"
    PROGRAM_EXECUTED = "program executed"
    FIRST_OUTPUT = "first output"
    FIRST_STEP = "first step"
    LAST_STEP = "last step"
    END = "end"


class Reached(Frozen, kw_only=True):
    """When a phase was reached by all tasks or hosts that have reached it.

    Attributes:
        phase: which.
        at: when the last of them did (Unix time in seconds, by the launching machine's clock).
        seconds: since the phase before it was reached; the first one: 0.
        last: the task or host that was last; empty if there is only one, or it is the job's own.
        spread: the seconds between the first of them and the last.
    """

    phase: Phase
    at: float
    seconds: float
    last: str = ""
    spread: float = 0.0


class AttemptTiming(Frozen, kw_only=True):
    """One attempt: the job's first one, one after a restart, or one after a resume.

    Attributes:
        number: from 0, in the order of their beginnings.
        tasks: those that it has started.
        cause: why it followed another one; None: it is the first, or a resume.
        resumed: whether `distrun resume` began it.
        reached: the phases in the order of time.
    """

    number: int
    tasks: tuple[str, ...]
    cause: Cause | None
    resumed: bool
    reached: tuple[Reached, ...]

    def at(self, phase: Phase) -> float | None:
        """Return when a phase was reached (Unix time); None: it was not."""
        return next((each.at for each in self.reached if each.phase is phase), None)


class _Attempt:
    """An attempt that is being read: by phase, when each task or host reached it."""

    def __init__(self, cause: Cause | None = None, *, resumed: bool = False) -> None:
        self.cause, self.resumed = cause, resumed
        self.tasks: list[str] = []
        self.attempts: dict[str, int] = {}
        """The number of each task's own attempt."""
        self.times: dict[Phase, dict[str, float]] = {}

    def note(self, phase: Phase, who: str, at: float) -> None:
        self.times.setdefault(phase, {})[who] = at

    def timing(self, number: int, first_outputs: Mapping[tuple[str, int], float]) -> AttemptTiming:
        for task, attempt in self.attempts.items():
            at = first_outputs.get((task, attempt))
            if at is not None:
                self.note(Phase.FIRST_OUTPUT, task, at)
        reached: list[Reached] = []
        for phase in Phase:
            times = self.times.get(phase)
            if times:
                reached.append(_reached(phase, times, reached[-1].at if reached else None))
        return AttemptTiming(
            number=number,
            tasks=tuple(self.tasks),
            cause=self.cause,
            resumed=self.resumed,
            reached=tuple(reached),
        )


def _reached(phase: Phase, times: Mapping[str, float], before: float | None) -> Reached:
    last = max(times, key=times.__getitem__)
    at = times[last]
    # The clocks of hosts differ by milliseconds: no phase takes less than nothing.
    return Reached(
        phase=phase,
        at=at,
        seconds=0.0 if before is None else round(max(0.0, at - before), 3),
        last=last if len(times) > 1 else "",
        spread=round(at - min(times.values()), 3),
    )


class _Reader:
    """Assigns events to attempts."""

    def __init__(self) -> None:
        self.attempts: list[_Attempt] = []
        self._of_task: dict[str, _Attempt] = {}
        self._behind: dict[str, float] = {}
        """By host: add it to the times that the host has reported."""
        self._hosts: dict[str, str] = {}

    def read(self, event: events.Event) -> None:  # noqa: C901 - one line a kind
        match event:
            case events.JobQueued():
                self._begin(_Attempt(event.cause), Phase.QUEUED, event.at)
            case events.JobCreated():
                self._on_created(event)
            case events.RestartPlanned():
                attempt = _Attempt(event.cause)
                self._begin(attempt, Phase.ACCEPTED, event.at)
                self._of_task.update(dict.fromkeys(event.tasks, attempt))
            case events.HostReady():
                self._behind[event.host] = event.behind
                self._note(Phase.HOSTS_REACHED, event.host, event.at)
            case events.Synced():
                self._note(Phase.FILES_SENT, event.host, event.at)
            case events.JobPlanned():
                self._hosts.update({task.name: task.host for task in event.tasks})
                self._note(Phase.PORTS_HELD, "", event.at)
            case events.TaskStarted():
                self._on_started(event)
            case events.FirstStep():
                self._note_task(Phase.FIRST_STEP, event.task, event.at)
            case events.TaskReported() if event.step_at is not None:
                self._note_task(Phase.LAST_STEP, event.task, event.step_at)
            case events.TaskExited():
                at = self._corrected(event.task, event.at)
                self._note_task(Phase.END, event.task, at)

    def _begin(self, attempt: _Attempt, phase: Phase, at: float) -> None:
        attempt.note(phase, "", at)
        self.attempts.append(attempt)

    def _on_created(self, event: events.JobCreated) -> None:
        is_resumed = isinstance(event, events.JobResumed)
        queued = self.attempts[-1] if self.attempts else None
        if queued is not None and queued.times.keys() == {Phase.QUEUED}:
            queued.note(Phase.ACCEPTED, "", event.at)
            queued.resumed = is_resumed
        else:
            self._begin(_Attempt(resumed=is_resumed), Phase.ACCEPTED, event.at)
        self._of_task = {}

    def _note(self, phase: Phase, who: str, at: float) -> None:
        """Note what the job does before the tasks of its last attempt start."""
        if self.attempts and not self.attempts[-1].tasks:
            self.attempts[-1].note(phase, who, at)

    def _on_started(self, event: events.TaskStarted) -> None:
        if not self.attempts:
            return
        attempt = self._of_task.setdefault(event.task, self.attempts[-1])
        if event.task not in attempt.attempts:
            attempt.tasks.append(event.task)
        attempt.attempts[event.task] = event.attempt
        at = self._corrected(event.task, event.at)
        attempt.note(Phase.PROGRAM_EXECUTED, event.task, at)

    def _note_task(self, phase: Phase, task: str, at: float) -> None:
        attempt = self._of_task.get(task)
        if attempt is not None and task in attempt.attempts:
            attempt.note(phase, task, at)

    def _corrected(self, task: str, at: float) -> float:
        return at + self._behind.get(self._hosts.get(task, ""), 0.0)


def attempts(
    history: Iterable[events.Event], first_outputs: Mapping[tuple[str, int], float] | None = None
) -> list[AttemptTiming]:
    """Return the attempts of a job, in the order of their beginnings.

    Args:
        history: the events of its record.
        first_outputs: when each attempt of a task printed first (Unix time), by task and attempt.
    """
    reader = _Reader()
    for event in history:
        reader.read(event)
    return [
        attempt.timing(number, first_outputs or {})
        for number, attempt in enumerate(reader.attempts)
    ]
