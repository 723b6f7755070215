"""What each task of a job did from when to when, from the events of its record."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from distrun.frozen import Frozen, replace
from distrun.job import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Activity(str, Enum):
    """What a task does. The last three are at the same time as one of the others.

    `starting` ends with its first step, or, if it reports no steps, with its first output.
    `stalled`: there was no progress for so long that `timeouts.stall` expired, or no sign of life.
    """

    WAITING = "waiting"
    STARTING = "starting"
    TRAINING = "training"
    RUNNING = "running, no steps reported"
    ENDING = "ending"
    SAVING = "saving"
    STALLED = "stalled"
    LINK_LOST = "link lost"


BESIDE_OTHERS = (Activity.SAVING, Activity.STALLED, Activity.LINK_LOST)


class Span(Frozen, kw_only=True):
    """A time in which a task did one thing: Unix seconds by the launching machine's clock.

    `attempt`: of the task, from 0; of a wait, the one before it.
    """

    task: str
    activity: Activity
    start: float
    end: float
    attempt: int
    host: str


class _Reader:
    """Turns events into spans."""

    def __init__(self, first_outputs: Mapping[tuple[str, int], float]) -> None:
        self.spans: list[Span] = []
        self._first_outputs = first_outputs
        self._open: dict[str, Span] = {}
        self._beside: dict[tuple[str, Activity], Span] = {}
        self._hosts: dict[str, str] = {}
        self._attempts: dict[str, int] = {}
        self._behind: dict[str, float] = {}
        """By host: add it to the times that the host has reported."""
        self._waits_since: float | None = None
        self._longest_stall = 0.0
        self._restarting: set[str] = set()

    def read(self, event: events.Event) -> None:  # noqa: C901, PLR0912 - one line a kind
        match event:
            case events.JobQueued() | events.JobCreated():
                self.end(event.at)
                self._waits_since = event.at
                self._restarting.clear()
                self._longest_stall = event.timeouts.stall or 0.0
            case events.HostReady():
                self._behind[event.host] = event.behind
            case events.JobPlanned():
                self._on_planned(event)
            case events.TaskStarted():
                self._on_started(event)
            case events.FirstStep():
                self._begin(event.task, Activity.TRAINING, event.at)
            case events.SavingStarted():
                self._begin_beside(event.task, Activity.SAVING, event.at)
            case events.SavingEnded():
                self._end_beside(event.task, Activity.SAVING, event.at)
            case events.TaskExited():
                self._begin(event.task, Activity.ENDING, self._corrected(event.task, event.at))
            case events.TaskEnded():
                self._on_ended(event.task, self._corrected(event.task, event.at))
            case events.RestartPlanned():
                self._restarting.update(event.tasks)
                for task in event.tasks:
                    if task not in self._open:
                        self._begin(task, Activity.WAITING, event.at)
            case events.TasksQuiet():
                for task in list(self._open):
                    self._begin_beside(task, Activity.STALLED, event.since)
            case events.TimedOut() if event.timer.kind is events.TimerKind.STALL:
                for task, span in self._open.items():
                    began = max(span.start, event.at - self._longest_stall)
                    self._begin_beside(task, Activity.STALLED, began)
            case events.TasksActive():
                for task in self._hosts:
                    self._end_beside(task, Activity.STALLED, event.at)
            case events.LinkLost():
                for task in self._on_host(event.host):
                    self._begin_beside(task, Activity.LINK_LOST, event.at)
            case events.LinkRestored():
                for task in self._on_host(event.host):
                    self._end_beside(task, Activity.LINK_LOST, event.at)
            case events.HostLost():
                for task in self._on_host(event.host):
                    self._end(task, event.at)
            case events.JobEnded():
                self.end(event.at)

    def _on_host(self, host: str) -> list[str]:
        return [task for task in self._open if self._hosts.get(task) == host]

    def _on_planned(self, event: events.JobPlanned) -> None:
        for task in event.tasks:
            self._hosts[task.name] = task.host
            if task.name not in event.kept and task.name not in self._open:
                since = event.at if self._waits_since is None else self._waits_since
                self._begin(task.name, Activity.WAITING, since)
        self._waits_since = None

    def _on_started(self, event: events.TaskStarted) -> None:
        self._attempts[event.task] = event.attempt
        self._restarting.discard(event.task)
        at = self._corrected(event.task, event.at)
        self._begin(event.task, Activity.STARTING, at)

    def _on_ended(self, task: str, at: float) -> None:
        self._end(task, at)
        if task in self._restarting:
            self._begin(task, Activity.WAITING, at)

    def _begin(self, task: str, activity: Activity, at: float) -> None:
        former = self._open.get(task)
        if activity is Activity.ENDING and former is None:
            return
        self._close(task, at, has_steps=activity is Activity.TRAINING)
        self._open[task] = self._span(task, activity, at)

    def _span(self, task: str, activity: Activity, at: float) -> Span:
        attempt = self._attempts.get(task, 0)
        host = self._hosts.get(task, "")
        return Span(task=task, activity=activity, start=at, end=at, attempt=attempt, host=host)

    def _close(self, task: str, at: float, *, has_steps: bool = False) -> None:
        span = self._open.pop(task, None)
        if span is None:
            return
        # The clocks of hosts differ by milliseconds: nothing ends before it begins.
        span = replace(span, end=max(at, span.start))
        if span.activity is Activity.STARTING and not has_steps:
            self.spans += self._without_steps(span)
        else:
            self.spans.append(span)

    def _without_steps(self, span: Span) -> list[Span]:
        """Return what an attempt without a step did: it starts until its first output."""
        printed = self._first_outputs.get((span.task, span.attempt))
        if printed is None or not span.start <= printed <= span.end:
            return [span]
        before = replace(span, end=printed)
        return [before, replace(span, activity=Activity.RUNNING, start=printed)]

    def _end(self, task: str, at: float) -> None:
        self._close(task, at)
        for activity in BESIDE_OTHERS:
            self._end_beside(task, activity, at)

    def _begin_beside(self, task: str, activity: Activity, at: float) -> None:
        self._beside.setdefault((task, activity), self._span(task, activity, at))

    def _end_beside(self, task: str, activity: Activity, at: float) -> None:
        span = self._beside.pop((task, activity), None)
        if span is not None:
            self.spans.append(replace(span, end=max(at, span.start)))

    def _corrected(self, task: str, at: float) -> float:
        return at + self._behind.get(self._hosts.get(task, ""), 0.0)

    def end(self, at: float) -> None:
        """End all that has not ended."""
        for task in {*self._open, *(task for task, _ in self._beside)}:
            self._end(task, at)


def spans(
    history: Iterable[events.Event],
    first_outputs: Mapping[tuple[str, int], float],
    until: float,
) -> list[Span]:
    """Return what the tasks of a job did, in the order of its beginning.

    Args:
        history: the events of its record.
        first_outputs: when each attempt of a task printed first (Unix time), by task and attempt.
        until: when what has not ended is taken to end: now, or the last that is known of it.
    """
    reader = _Reader(first_outputs)
    for event in history:
        reader.read(event)
    reader.end(until)
    return sorted(reader.spans, key=lambda each: (each.start, each.end))
