"""Where the time of a job went, from the events of its record.

There are two views of it: what each task did from when to when, and when each attempt reached each
of its phases, and who was last. All times are Unix seconds by the launching machine's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from distrun.agent.protocol import Cause
from distrun.frozen import Frozen, replace
from distrun.job import events


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
    """A time in which a task did one thing. `attempt`: from 0; of a wait, the one before it."""

    task: str
    activity: Activity
    start: float
    end: float
    attempt: int
    host: str


class Phase(str, Enum):
    """What an attempt reaches, in this order. Not every attempt reaches each."""

    QUEUED = "queued"
    ACCEPTED = "accepted"
    HOSTS_REACHED = "hosts_reached"
    FILES_SENT = "files_sent"
    PORTS_HELD = "ports_held"
    PROGRAM_EXECUTED = "program_executed"
    FIRST_OUTPUT = "first_output"
    FIRST_STEP = "first_step"
    LAST_STEP = "last_step"
    END = "end"

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")


class Reached(Frozen, kw_only=True):
    """When a phase was reached by all tasks or hosts that have reached it.

    Attributes:
        at: when the last of them did.
        seconds: since the phase before it was reached; the first one: 0.
        last: the task or host that was last; None if there is only one, or it is the job's own.
        spread: the seconds between the first of them and the last.
    """

    phase: Phase
    at: float
    seconds: float
    last: str | None = None
    spread: float = 0.0


class AttemptTiming(Frozen, kw_only=True):
    """One attempt: the job's first one, one after a restart, or one after a resume.

    Attributes:
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
        """Return when a phase was reached; None: it was not."""
        return next((each.at for each in self.reached if each.phase is phase), None)

    def until(self, phase: Phase) -> float | None:
        """Return the seconds from its beginning until a phase was reached; None: it was not."""
        begin, at = self.at(Phase.ACCEPTED), self.at(phase)
        return None if begin is None or at is None else max(0.0, at - begin)


def first_time(attempts: Sequence[AttemptTiming], phase: Phase) -> float | None:
    """Return how many seconds the first attempt took that reached a phase; None: none did."""
    found = (attempt.until(phase) for attempt in attempts)
    return next((each for each in found if each is not None), None)


def unmade_restarts(history: Iterable[events.Event]) -> list[events.RestartPlanned]:
    """Return the restarts that were planned and not made.

    Another one replaced them, or the job ended, or was lost, before one of their tasks started.
    """
    unmade: list[events.RestartPlanned] = []
    waiting: dict[int, events.RestartPlanned] = {}
    for event in history:
        match event:
            case events.RestartPlanned():
                unmade += [waiting.pop(event.number)] if event.number in waiting else []
                waiting[event.number] = event
            case events.TaskStarted():
                waiting = {n: each for n, each in waiting.items() if event.task not in each.tasks}
            case events.JobEnded() | events.JobCreated():
                unmade += waiting.values()
                waiting = {}
    return unmade


class _Attempt:
    def __init__(self, cause: Cause | None = None, *, resumed: bool = False) -> None:
        self.cause, self.resumed = cause, resumed
        self.tasks: dict[str, int] = {}
        """The number of each task's own attempt."""
        self.times: dict[Phase, dict[str, float]] = {}
        """By phase, when each task or host reached it."""

    def note(self, phase: Phase, who: str, at: float) -> None:
        self.times.setdefault(phase, {})[who] = at

    def timing(self, number: int) -> AttemptTiming:
        reached: list[Reached] = []
        for phase in Phase:
            if times := self.times.get(phase):
                last = max(times, key=times.__getitem__)
                before = reached[-1].at if reached else times[last]
                reached.append(
                    Reached(
                        phase=phase,
                        at=times[last],
                        # The clocks of hosts differ by milliseconds.
                        seconds=round(max(0.0, times[last] - before), 3),
                        last=last or None if len(times) > 1 else None,
                        spread=round(times[last] - min(times.values()), 3),
                    )
                )
        return AttemptTiming(
            number=number,
            tasks=tuple(self.tasks),
            cause=self.cause,
            resumed=self.resumed,
            reached=tuple(reached),
        )


class Timing:
    """Reads the events of a job.

    Args:
        history: the events of its record.
        printed: when each attempt of a task printed first, by task and attempt.
        until: when what has not ended is taken to end: now, or the last that is known of it.
    """

    def __init__(
        self,
        history: Sequence[events.Event],
        printed: Mapping[tuple[str, int], float],
        until: float,
    ) -> None:
        self._printed = printed
        self._spans: list[Span] = []
        self._attempts: list[_Attempt] = []
        self._attempt_of: dict[str, _Attempt] = {}
        self._open: dict[tuple[str, Activity | None], Span] = {}
        """By task: what it does; and, by the activity, what it does at the same time."""
        self._hosts: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        """Of the tasks' own attempts."""
        self._waits_since: float | None = None
        self._longest_stall = 0.0
        self._restarting: set[str] = set()
        self._unmade = unmade_restarts(history)
        for event in history:
            self._read(event)
        self._end_all(until)

    @property
    def spans(self) -> list[Span]:
        return sorted(self._spans, key=lambda each: (each.start, each.end))

    @property
    def attempts(self) -> list[AttemptTiming]:
        return [attempt.timing(number) for number, attempt in enumerate(self._attempts)]

    def _read(self, event: events.Event) -> None:  # noqa: C901, PLR0912 - one line a kind
        match event:  # the most frequent first
            case events.SavingStarted():
                self._begin(event.task, Activity.SAVING, event.at)
            case events.SavingEnded():
                self._close(event.task, Activity.SAVING, event.at)
            case events.JobQueued() | events.JobCreated():
                self._on_created(event)
            case events.HostReady():
                self._note(Phase.HOSTS_REACHED, event.host, event.at)
            case events.Synced():
                self._note(Phase.FILES_SENT, event.host, event.at)
            case events.JobPlanned():
                self._on_planned(event)
            case events.TaskStarted():
                self._on_started(event)
            case events.FirstStep():
                self._note_task(Phase.FIRST_STEP, event.task, event.at)
                self._begin(event.task, Activity.TRAINING, event.at)
            case events.TaskReported() if event.step_at is not None:
                self._note_task(Phase.LAST_STEP, event.task, event.step_at)
            case events.TaskExited():
                self._note_task(Phase.END, event.task, event.at)
                if (event.task, None) in self._open:
                    self._begin(event.task, Activity.ENDING, event.at)
            case events.TaskEnded():
                self._end(event.task, event.at)
                if event.task in self._restarting:
                    self._begin(event.task, Activity.WAITING, event.at)
            case events.RestartPlanned():
                self._on_restart(event)
            case events.TasksQuiet():
                for task, _ in self._at_work():
                    self._begin(task, Activity.STALLED, event.since)
            case events.TimedOut() if event.timer.kind is events.TimerKind.STALL:
                for task, span in self._at_work():
                    began = max(span.start, event.at - self._longest_stall)
                    self._begin(task, Activity.STALLED, began)
            case events.TasksActive():
                for task in self._hosts:
                    self._close(task, Activity.STALLED, event.at)
            case events.LinkLost():
                for task, _ in self._at_work(event.host):
                    self._begin(task, Activity.LINK_LOST, event.at)
            case events.LinkRestored():
                for task, _ in self._at_work(event.host):
                    self._close(task, Activity.LINK_LOST, event.at)
            case events.HostLost():
                for task, _ in self._at_work(event.host):
                    self._end(task, event.at)
            case events.JobEnded():
                self._end_all(event.at)

    def _on_created(self, event: events.JobQueued | events.JobCreated) -> None:
        self._end_all(event.at)
        self._waits_since = event.at
        self._restarting.clear()
        self._longest_stall = event.timeouts.stall or 0.0
        self._attempt_of = {}
        is_resumed = isinstance(event, events.JobResumed)
        last = self._attempts[-1] if self._attempts else None
        if isinstance(event, events.JobQueued):
            self._attempts.append(_Attempt(event.cause))
            self._attempts[-1].note(Phase.QUEUED, "", event.at)
            return
        if last is not None and last.times.keys() == {Phase.QUEUED}:
            last.resumed = is_resumed
        else:
            self._attempts.append(_Attempt(resumed=is_resumed))
        self._attempts[-1].note(Phase.ACCEPTED, "", event.at)

    def _on_planned(self, event: events.JobPlanned) -> None:
        self._note(Phase.PORTS_HELD, "", event.at)
        for task in event.tasks:
            self._hosts[task.name] = task.host
            if task.name not in event.kept and (task.name, None) not in self._open:
                since = event.at if self._waits_since is None else self._waits_since
                self._begin(task.name, Activity.WAITING, since)
        self._waits_since = None

    def _on_started(self, event: events.TaskStarted) -> None:
        self._numbers[event.task] = event.attempt
        self._restarting.discard(event.task)
        self._begin(event.task, Activity.STARTING, event.at)
        if self._attempts:
            attempt = self._attempt_of.setdefault(event.task, self._attempts[-1])
            attempt.tasks[event.task] = event.attempt
            attempt.note(Phase.PROGRAM_EXECUTED, event.task, event.at)
            printed = self._printed.get((event.task, event.attempt))
            if printed is not None:
                attempt.note(Phase.FIRST_OUTPUT, event.task, printed)

    def _on_restart(self, event: events.RestartPlanned) -> None:
        if event not in self._unmade:
            attempt = _Attempt(event.cause)
            attempt.note(Phase.ACCEPTED, "", event.at)
            self._attempts.append(attempt)
            self._attempt_of.update(dict.fromkeys(event.tasks, attempt))
        self._restarting.update(event.tasks)
        for task in event.tasks:
            if (task, None) not in self._open:
                self._begin(task, Activity.WAITING, event.at)

    def _note(self, phase: Phase, who: str, at: float) -> None:
        """Note what the job does before the tasks of its last attempt start."""
        if self._attempts and not self._attempts[-1].tasks:
            self._attempts[-1].note(phase, who, at)

    def _note_task(self, phase: Phase, task: str, at: float) -> None:
        attempt = self._attempt_of.get(task)
        if attempt is not None and task in attempt.tasks:
            attempt.note(phase, task, at)

    def _at_work(self, host: str | None = None) -> list[tuple[str, Span]]:
        """Return the tasks that do something, on a host or on any, and what they do."""
        found = ((task, span) for (task, beside), span in self._open.items() if beside is None)
        return [each for each in found if host is None or self._hosts.get(each[0]) == host]

    def _begin(self, task: str, activity: Activity, at: float) -> None:
        beside = activity if activity in BESIDE_OTHERS else None
        if beside is not None and (task, beside) in self._open:
            return
        self._close(task, beside, at, has_steps=activity is Activity.TRAINING)
        attempt, host = self._numbers.get(task, 0), self._hosts.get(task, "")
        self._open[task, beside] = Span(
            task=task, activity=activity, start=at, end=at, attempt=attempt, host=host
        )

    def _close(
        self, task: str, beside: Activity | None, at: float, *, has_steps: bool = False
    ) -> None:
        span = self._open.pop((task, beside), None)
        if span is None:
            return
        # The clocks of hosts differ by milliseconds: nothing ends before it begins.
        span = replace(span, end=max(at, span.start))
        printed = self._printed.get((task, span.attempt))
        is_without_steps = span.activity is Activity.STARTING and not has_steps
        if is_without_steps and printed is not None and span.start <= printed <= span.end:
            self._spans.append(replace(span, end=printed))
            span = replace(span, activity=Activity.RUNNING, start=printed)
        self._spans.append(span)

    def _end(self, task: str, at: float) -> None:
        for beside in (None, *BESIDE_OTHERS):
            self._close(task, beside, at)

    def _end_all(self, at: float) -> None:
        for task in {task for task, _ in self._open}:
            self._end(task, at)
