"""What there is to judge: collected from a job's events, as they happen or from its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrun import events, lifecycle
from distrun.strategies import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distrun.lifecycle import JobState, TaskState


@dataclass(frozen=True, kw_only=True)
class Case:
    """One failure of a job.

    `trigger` is the event that was taken for a failure; `tasks` are all of the job's as they
    were in the end, `members` the names of those that failed together or may have caused it, in
    the order of their exits. `lost_hosts` tells why, by host; `sent` are the signals besides
    SIGTERM and SIGKILL with which distrun ended tasks.
    """

    trigger: events.Event
    tasks: dict[str, TaskState]
    members: tuple[str, ...]
    lost_hosts: dict[str, str]
    sent: frozenset[int] = frozenset()
    start_timeout: float | None = None
    run_timeout: float | None = None
    stall_timeout: float | None = None

    @property
    def leader(self) -> str | None:
        """The task that runs TensorFlow's coordination service: the first chief or worker."""
        return next((name for name in ("chief:0", "worker:0") if name in self.tasks), None)

    @property
    def cluster_size(self) -> int:
        """How many tasks are to connect to that service: all that train."""
        roles = (Role.CHIEF, Role.WORKER)
        return sum(1 for task in self.tasks.values() if task.role in roles)


class FailureTracker:
    """Notes a job's events; says when there is something to judge.

    There is at a restart's beginning, at the end of an evaluator that is not to start again, and
    at a job's end: by then every attempt concerned has ended and has said all it had to say.
    """

    def __init__(self) -> None:
        self._exits: dict[str, float] = {}
        self._aside: dict[str, events.Event] = {}
        self._triggers: dict[int, events.Event] = {}
        self._final: events.Event | None = None
        self._sent: set[int] = set()

    def note(self, before: JobState, event: events.Event, after: JobState) -> Case | None:
        """One event and what it changed. A case where it begins a restart."""
        if isinstance(event, events.TaskExited) and event.task in before.tasks:
            host = before.hosts.get(before.tasks[event.task].host)
            self._exits[event.task] = event.at + (0.0 if host is None else host.behind)
        self._note_signal(event)
        for number in after.restarts.keys() - before.restarts.keys():
            self._triggers[number] = event
        if before.outcome is None and after.outcome is not None:
            self._final = event
        for number in before.restarts.keys() - after.restarts.keys():
            names = before.restarts[number].tasks
            trigger = self._triggers.pop(number, None)
            begun = after.tasks[names[0]].attempt > before.tasks[names[0]].attempt
            if begun and trigger is not None:
                case = self._case(before, trigger, names)
                self._sent.clear()
                return case
        return self._stays_down(before, event, after)

    def _stays_down(self, before: JobState, event: events.Event, after: JobState) -> Case | None:
        """The failure of an evaluator that is not to start again, with which the job goes on."""
        if isinstance(event, events.HostLost):
            return self._lost_aside(event, before, after)
        if not isinstance(event, (events.TaskExited, events.TaskEnded, events.TaskNotStarted)):
            return None
        task = after.tasks.get(event.task)
        if task is None or task.role is not Role.EVALUATOR or after.outcome is not None:
            return None
        if not isinstance(event, events.TaskEnded):
            self._aside[task.name] = event
        trigger = self._aside.get(task.name)
        if task.phase is not lifecycle.TaskPhase.FAILED or trigger is None:
            return None
        return self._case(after, trigger, [task.name])

    def _lost_aside(self, event: events.HostLost, before: JobState, after: JobState) -> Case | None:
        """The same where the host of an evaluator was lost that had not ended for good by then."""
        if after.outcome is not None:
            return None
        for name, task in after.tasks.items():
            is_news = not before.tasks[name].phase.is_final
            if is_news and task.host == event.host and task.phase is lifecycle.TaskPhase.FAILED:
                return self._case(after, event, [name])
        return None

    def _note_signal(self, event: events.Event) -> None:
        if isinstance(event, events.StopRequested):
            self._sent.add(event.signal)
        elif isinstance(event, events.TimedOut) and event.timer == lifecycle.STALL:
            self._sent.add(lifecycle.SIGABRT)

    def last(self, state: JobState) -> Case | None:
        """What ended the job; None where that is no failure."""
        if self._final is None or state.outcome is None or state.outcome.result != "failed":
            return None
        failed = state.outcome.task
        names = [
            task.name
            for task in state.tasks.values()
            if task.role is not Role.EVALUATOR or task.name == failed
        ]
        return self._case(state, self._final, names)

    def _case(self, state: JobState, trigger: events.Event, names: Iterable[str]) -> Case:
        return Case(
            trigger=trigger,
            tasks=state.tasks,
            members=tuple(sorted(names, key=lambda name: self._exits.get(name, float("inf")))),
            lost_hosts={
                host.name: host.lost for host in state.hosts.values() if host.lost is not None
            },
            sent=frozenset(self._sent),
            start_timeout=state.start_timeout,
            run_timeout=state.run_timeout,
            stall_timeout=state.stall_timeout,
        )


def cases(history: Iterable[events.Event]) -> Iterator[Case]:
    """The failures that a record tells of, in their order."""
    docket, state = FailureTracker(), lifecycle.JobState()
    for event in history:
        before = state
        if isinstance(event, events.JobEnded):
            break
        state, _ = lifecycle.step(before, event)
        case = docket.note(before, event, state)
        if case is not None:
            yield case
    final = docket.last(state)
    if final is not None:
        yield final
