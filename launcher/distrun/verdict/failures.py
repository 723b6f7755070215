"""The failures of a job, collected from its events as they happen, or from its record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from distrun import lifecycle
from distrun.agent.protocol.causes import Code
from distrun.frozen import Frozen
from distrun.job import events
from distrun.job.events import Result
from distrun.lifecycle import HostState, JobState, TaskState
from distrun.strategies import Role

_OF_TASK = (events.TaskExited, events.TaskEnded, events.TaskNotStarted)
_BY_SLURM = (*lifecycle.SLURM_STOPS, Code.SLURM_NODE_FAILED, Code.SLURM_OUT_OF_MEMORY)


class Failure(Frozen, kw_only=True):
    """One failure of a job, with everything that may show its cause.

    Attributes:
        trigger: the event that made the job or a restart fail.
        state: the job as it was in the end.
        members: the names of the tasks that failed together or may have caused it, in the order
            of their exits.
        exits: when tasks exited, by the supervisor's clock (Unix seconds).
        lost_hosts: the hosts that were lost, by their names. They may have returned meanwhile.
        sent: the signals, besides SIGTERM and SIGKILL, that distrun sent to tasks.
    """

    trigger: events.Event
    state: JobState
    members: tuple[str, ...]
    exits: Mapping[str, float]
    lost_hosts: Mapping[str, HostState]
    sent: frozenset[int]

    @property
    def leader(self) -> str | None:
        """The task that runs TensorFlow's coordination service: the first chief or worker."""
        return next((name for name in ("chief:0", "worker:0") if name in self.state.tasks), None)

    @property
    def cluster_size(self) -> int:
        """The number of tasks that connect to that service: all that train."""
        roles = (Role.CHIEF, Role.WORKER)
        return sum(1 for task in self.state.tasks.values() if task.role in roles)


def has_failed(state: JobState) -> bool:
    """Whether a job has failed, or was stopped while its tasks did nothing."""
    result = None if state.outcome is None else state.outcome.result
    was_quiet = state.quiet is not None
    return result is Result.FAILED or (result is Result.STOPPED and was_quiet)


def is_by_slurm(event: events.Event) -> bool:
    """Whether Slurm has ended a node's part of the job."""
    return isinstance(event, events.HostFault) and event.cause.code in _BY_SLURM


class FailureTracker:
    """Follows a job's events and reports each failure as soon as it can be analyzed.

    That is when a restart begins, when an evaluator has failed for good, and when the job ends:
    by then every attempt concerned has ended, and its log is complete. A failure whose restart is
    canceled by the end of the job is reported once its attempts have ended. So is one after which
    there may be no restart, because it has come before.
    """

    def __init__(self) -> None:
        self._exits: dict[str, float] = {}
        self._ends: dict[str, events.Event] = {}
        """By task: how its last attempt exited, or could not be started."""
        self._triggers: dict[int, events.Event] = {}
        self._unreported: list[tuple[events.Event, tuple[str, ...]]] = []
        """Failures before the job's end that led to no restart: the event, and the tasks."""
        self._final: events.Event | None = None
        self._sent: set[int] = set()
        self._lost_hosts: dict[str, HostState] = {}

    def on_event(self, before: JobState, event: events.Event, after: JobState) -> Failure | None:
        """Note an event. Returns the failure that can be analyzed now, if there is one."""
        self._note(before, event, after)
        for number in after.incidents.keys() - before.incidents.keys():
            self._triggers[number] = event
        if before.outcome is None and after.outcome is not None:
            refusals = [each.refusal.task for each in before.incidents.values() if each.refusal]
            name = after.outcome.task or ""
            self._final = self._ends[name] if name in refusals else event
            is_start = isinstance(event, events.TimedOut) and event.timer == lifecycle.START
            if is_start and before.awaited:  # that is why the time was not enough
                self._final = events.Aborted(at=event.at, cause=before.awaited[0], exit_code=0)
            self._unreported += self._without_restart(before, after)
        elif isinstance(self._final, events.TaskExited) and is_by_slurm(event):
            self._final = event  # Slurm signals a node's tasks before, or after, its agent
        for number in before.incidents.keys() - after.incidents.keys():
            names = before.incidents[number].tasks
            trigger = self._triggers.pop(number, None)
            has_begun = any(
                name in after.tasks and after.tasks[name].attempt > before.tasks[name].attempt
                for name in names
            )
            # An evaluator stays down if it has no host.
            has_begun = has_begun or isinstance(event, events.PlanFailed)
            if has_begun and trigger is not None and not _is_success(before.incidents[number]):
                failure = self._failure(before, trigger, names)
                self._sent.clear()
                return failure
        return self._early_failure(after) or self._evaluator_failure(before, event, after)

    def _early_failure(self, state: JobState) -> Failure | None:
        """Return a failure whose attempts have ended, and after which no restart may begin."""
        for number, incident in state.incidents.items() if lifecycle.may_recur(state) else ():
            if not incident.attempts_left:
                trigger = self._triggers.pop(number, None)
                if trigger is not None and not _is_success(incident):
                    self._sent.clear()
                    return self._failure(state, trigger, incident.tasks)
        for each in self._unreported:
            if all(state.tasks[name].phase.is_final for name in each[1]):
                self._unreported.remove(each)
                return self._failure(state, *each)
        return None

    def _note(self, before: JobState, event: events.Event, after: JobState) -> None:
        if isinstance(event, (events.TaskExited, events.TaskNotStarted)):
            self._ends[event.task] = event
        if isinstance(event, events.TaskExited) and event.task in before.tasks:
            self._exits[event.task] = event.at
        elif isinstance(event, events.HostLost) and event.host in after.hosts:
            self._lost_hosts[event.host] = after.hosts[event.host]
        elif isinstance(event, events.StopRequested):
            self._sent.add(event.signal)
        elif isinstance(event, events.TimedOut) and event.timer == lifecycle.STALL:
            self._sent.add(lifecycle.SIGABRT)

    def _without_restart(
        self, before: JobState, after: JobState
    ) -> Iterator[tuple[events.Event, tuple[str, ...]]]:
        """Find the failures for which the job's end leaves no time for a restart.

        If the job fails, the verdict on that covers all tasks except evaluators.
        """
        has_failed = after.outcome is not None and after.outcome.result is Result.FAILED
        for number, incident in before.incidents.items():
            if _is_success(incident) or number not in self._triggers:  # it was reported early
                continue
            if incident.budget == Role.EVALUATOR.value or not has_failed:
                yield self._triggers[number], incident.tasks
        for task in before.tasks.values():
            is_ending = task.phase is lifecycle.TaskPhase.EXITED and task.restart is None
            if is_ending and task.has_failed_exit and task.role is Role.EVALUATOR:
                yield self._ends[task.name], (task.name,)

    def final_failure(self, state: JobState) -> Failure | None:
        """Return the failure that ended the job; None if it did not fail.

        A job that was stopped while its tasks did nothing has failed in that.
        """
        outcome = state.outcome
        if self._final is None or outcome is None or not has_failed(state):
            return None
        names = [
            task.name
            for task in state.tasks.values()
            if task.role is not Role.EVALUATOR or task.name == outcome.task
        ]
        return self._failure(state, self._final, names)

    def _evaluator_failure(
        self, before: JobState, event: events.Event, after: JobState
    ) -> Failure | None:
        """Return the failure of an evaluator that will not restart; the job continues."""
        found: list[tuple[TaskState, events.Event | None]] = []
        if after.outcome is None and isinstance(event, events.HostLost):
            found = [
                (task, event)
                for task in after.tasks.values()
                if task.host == event.host and not before.tasks[task.name].phase.is_final
            ]
        elif after.outcome is None and isinstance(event, _OF_TASK):
            task = after.tasks.get(event.task)
            if task is not None and task.role is Role.EVALUATOR:
                found = [(task, self._ends.get(task.name))]
        for task, trigger in found:
            if task.phase is lifecycle.TaskPhase.FAILED and trigger is not None:
                return self._failure(after, trigger, [task.name])
        return None

    def _failure(self, state: JobState, trigger: events.Event, names: Iterable[str]) -> Failure:
        # What tasks did before the job was resumed is no cause of what happens since.
        tasks = [state.tasks[name] for name in names]
        own = [task.name for task in tasks if task.attempt >= task.first_attempt]
        return Failure(
            trigger=trigger,
            state=state,
            members=tuple(sorted(own, key=lambda name: self._exits.get(name, float("inf")))),
            exits=dict(self._exits),
            lost_hosts=dict(self._lost_hosts),
            sent=frozenset(self._sent),
        )


def _is_success(incident: lifecycle.Incident) -> bool:
    return incident.cause.code is Code.TASK_EXITED and incident.cause.status == 0
