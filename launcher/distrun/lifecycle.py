"""The life of a job: (state, event) -> (state, actions). Pure: no I/O and no clock.

Every event goes into the record first, then through :func:`step`; replaying the record gives the
same state again. The guarantees:

1. A job ends in exactly one final phase, with one outcome, and only when no task is left.
2. The first failure that counts decides the outcome; what follows it never changes that.
3. A task is asked to stop at most once a way: gracefully, then at once.
4. After success, what happens to tasks that are being stopped is no failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import singledispatch

from distrun import events
from distrun.errors import HostError, InternalError, StartTimeoutError
from distrun.events import Event, Outcome
from distrun.strategies import STRATEGIES, Role, Scope, Success

SIGKILL, SIGTERM = 9, 15
PROMPT_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL where nobody asked for a graceful end."""


class TaskPhase(str, Enum):
    """Where a task is. `exited`: its first process is gone, others of it are being ended."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.STOPPED)


class JobPhase(str, Enum):
    """Where a job is. Restarting is a stop whose end is another start, not a failure."""

    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED)


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """One task as the record tells it. Times are Unix seconds."""

    name: str
    role: Role
    index: int
    host: str
    address: str | None = None
    phase: TaskPhase = TaskPhase.WAITING
    attempt: int = 0
    pid: int | None = None
    started_at: float | None = None
    exited_at: float | None = None
    ended_at: float | None = None
    code: int | None = None
    signal: int | None = None
    reason: str | None = None
    """Why it could not be started or was lost, where that is so."""
    stopped_by_us: bool = False
    reported: dict[str, str] = field(default_factory=dict)
    """What it last said of its progress, once it has exited."""

    @property
    def has_failed_exit(self) -> bool:
        return self.signal is not None or bool(self.code) or self.reason is not None


@dataclass(frozen=True, kw_only=True)
class HostState:
    name: str
    agent_pid: int
    hostname: str
    lost: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A job as its record tells it."""

    job_id: str = ""
    name: str = ""
    strategy: str = ""
    success: Success = Success.CHIEF_AND_WORKERS
    spec_file: str = ""
    supervisor_pid: int = 0
    grace: float = 10.0
    start_timeout: float | None = None
    run_timeout: float | None = None
    phase: JobPhase = JobPhase.PREPARING
    created_at: float = 0.0
    ended_at: float | None = None
    hosts: dict[str, HostState] = field(default_factory=dict)
    tasks: dict[str, TaskState] = field(default_factory=dict)
    outcome: Outcome | None = None
    """Decided with the first thing that ends the job; final once `phase` is."""
    decided_at: float | None = None
    killing: bool = False
    finishing: bool = False


# What the supervisor is to do ---------------------------------------------------------------


@dataclass(frozen=True)
class StartTask:
    task: str
    attempt: int


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
class Finish:
    """Let the hosts go; once nothing is left on them, JobEnded has happened."""

    outcome: Outcome


Action = StartTask | StopTask | SetTimer | Finish
Result = tuple[JobState, list[Action]]


def replay(history: list[Event]) -> JobState:
    """The state that a record's events lead to."""
    state = JobState()
    for event in history:
        state, _ = step(state, event)
    return state


def step(state: JobState, event: Event) -> Result:
    """What an event makes of a state, and what is to be done about it."""
    if state.phase.is_final:
        return state, []
    return _step(event, state)


@singledispatch
def _step(event: Event, state: JobState) -> Result:
    raise TypeError(f"no rule for {type(event).__name__} in phase {state.phase.value}")


@_step.register
def _(event: events.JobCreated, state: JobState) -> Result:
    created = replace(
        state,
        job_id=event.job_id,
        name=event.name,
        strategy=event.strategy,
        success=event.success,
        spec_file=event.spec_file,
        supervisor_pid=event.supervisor_pid,
        grace=event.grace,
        start_timeout=event.start_timeout,
        run_timeout=event.run_timeout,
        created_at=event.at,
    )
    timers: list[Action] = []
    if event.start_timeout is not None:
        timers.append(SetTimer("start", event.start_timeout))
    return created, timers


@_step.register
def _(event: events.HostReady, state: JobState) -> Result:
    host = HostState(name=event.host, agent_pid=event.agent_pid, hostname=event.hostname)
    return replace(state, hosts={**state.hosts, event.host: host}), []


@_step.register
def _(event: events.JobPlanned, state: JobState) -> Result:
    if state.outcome is not None:
        return state, []
    tasks = {
        record.name: TaskState(
            name=record.name,
            role=Role(record.role),
            index=record.index,
            host=record.host,
            address=record.address,
            phase=TaskPhase.STARTING,
        )
        for record in event.tasks
    }
    starts: list[Action] = [StartTask(name, 0) for name in tasks]
    return replace(state, phase=JobPhase.STARTING, tasks=tasks), starts


@_step.register
def _(event: events.Aborted, state: JobState) -> Result:
    outcome = Outcome(
        result="failed", exit_code=event.exit_code, origin="distrun", cause=event.reason
    )
    return _conclude(state, outcome, event.at)


@_step.register
def _(event: events.TaskStarted, state: JobState) -> Result:
    told = state.tasks[event.task].phase is TaskPhase.STOPPING
    state = _change(
        state,
        event.task,
        phase=TaskPhase.STOPPING if told else TaskPhase.RUNNING,
        attempt=event.attempt,
        pid=event.pid,
        started_at=event.at,
    )
    waiting = any(task.phase is TaskPhase.STARTING for task in state.tasks.values())
    if state.phase is not JobPhase.STARTING or waiting:
        return state, []
    timers: list[Action] = []
    if state.run_timeout is not None:
        timers.append(SetTimer("run", state.run_timeout))
    return replace(state, phase=JobPhase.RUNNING), timers


@_step.register
def _(event: events.TaskNotStarted, state: JobState) -> Result:
    state = _change(
        state,
        event.task,
        phase=TaskPhase.FAILED,
        attempt=event.attempt,
        exited_at=event.at,
        ended_at=event.at,
        reason=event.reason,
    )
    outcome = Outcome(
        result="failed",
        exit_code=HostError.exit_code,
        origin="distrun",
        cause=f"{event.task} could not be started: {event.reason}",
        task=event.task,
    )
    return _conclude(state, outcome, event.at)


@_step.register
def _(event: events.TaskExited, state: JobState) -> Result:
    task = state.tasks[event.task]
    stopped = task.phase is TaskPhase.STOPPING
    state = _change(
        state,
        event.task,
        phase=TaskPhase.EXITED,
        exited_at=event.at,
        code=event.code,
        signal=event.signal,
        stopped_by_us=stopped,
    )
    if state.outcome is not None:
        return state, []
    if _fails_the_job(state, state.tasks[event.task]):
        return _conclude(state, _failure(state.tasks[event.task]), event.at)
    return _check_success(state, event.at)


@_step.register
def _(event: events.TaskEnded, state: JobState) -> Result:
    phase = _final_phase(state.tasks[event.task])
    return _finish_if_over(_change(state, event.task, phase=phase, ended_at=event.at))


@_step.register
def _(event: events.TaskReported, state: JobState) -> Result:
    return _change(state, event.task, reported=dict(event.values)), []


@_step.register(events.TensorBoardStarted)
@_step.register(events.TensorBoardEnded)
def _(event: Event, state: JobState) -> Result:  # noqa: ARG001 - nothing of the job depends on it
    return state, []


@_step.register
def _(event: events.HostLost, state: JobState) -> Result:
    host = state.hosts.get(event.host)
    if host is not None:
        lost = replace(host, lost=event.reason)
        state = replace(state, hosts={**state.hosts, event.host: lost})
    for task in state.tasks.values():
        if task.host == event.host and not task.phase.is_final:
            known = task.phase is TaskPhase.EXITED
            state = _change(
                state,
                task.name,
                phase=_final_phase(task) if known else TaskPhase.FAILED,
                ended_at=event.at,
                exited_at=task.exited_at if known else event.at,
                reason=None if known else f"lost with its host: {event.reason}",
            )
    outcome = Outcome(
        result="failed",
        exit_code=HostError.exit_code,
        origin="distrun",
        cause=f"{event.host} was lost: {event.reason}",
    )
    return _conclude(state, outcome, event.at)


@_step.register
def _(event: events.HostFault, state: JobState) -> Result:
    outcome = Outcome(
        result="failed",
        exit_code=HostError.exit_code,
        origin="distrun",
        cause=f"{event.host} cannot go on: {event.reason}",
    )
    return _conclude(state, outcome, event.at)


@_step.register
def _(event: events.StopRequested, state: JobState) -> Result:
    outcome = Outcome(
        result="stopped",
        exit_code=event.exit_code,
        origin="distrun",
        cause=f"stopped by {event.reason}",
    )
    if state.outcome is None:
        return _conclude(state, outcome, event.at, signal=event.signal, grace=event.grace)
    if state.killing:
        return state, []
    # Asked again, or while it is ending anyway: no more waiting.
    return _stop_tasks(replace(state, killing=True), SIGKILL, 0.0)


@_step.register
def _(event: events.TimedOut, state: JobState) -> Result:
    if event.timer == "evaluator":
        told = {task.name for task in state.tasks.values() if not _is_spared(task)}
        return _stop_tasks(state, SIGTERM, PROMPT_GRACE, spare=told)
    if state.outcome is not None:
        return state, []
    if event.timer == "start":
        return _on_start_timeout(state, event.at)
    outcome = Outcome(
        result="failed",
        exit_code=StartTimeoutError.exit_code,
        origin="distrun",
        cause=f"it ran longer than timeouts.run, {state.run_timeout:g} s",
    )
    return _conclude(state, outcome, event.at, grace=state.grace)


@_step.register
def _(event: events.JobEnded, state: JobState) -> Result:
    phase = JobPhase(event.outcome.result)
    return replace(state, phase=phase, outcome=event.outcome, ended_at=event.at), []


# Decisions ----------------------------------------------------------------------------------


def _fails_the_job(state: JobState, task: TaskState) -> bool:
    rule = STRATEGIES[state.strategy].roles[task.role]
    if rule.failure is Scope.NOTHING and state.success is not Success.ALL:
        return False
    # A restart policy comes in here: a failure within its budget starts tasks again instead.
    early = rule.serves and task.code == 0 and task not in _needed(state)
    return task.has_failed_exit or early


def _failure(task: TaskState) -> Outcome:
    code = task.code if task.signal is None else 128 + task.signal
    if code == 0:
        cause = f"{task.name} exited 0 before the chief had finished"
        return Outcome(result="failed", exit_code=1, origin="distrun", cause=cause, task=task.name)
    how = f"exited {task.code}" if task.signal is None else f"was ended by signal {task.signal}"
    return Outcome(
        result="failed",
        exit_code=InternalError.exit_code if code is None else code,
        origin="task",
        cause=f"{task.name} {how}",
        task=task.name,
    )


def _final_phase(task: TaskState) -> TaskPhase:
    """What a task that has exited is once nothing of it is left."""
    if not task.has_failed_exit:
        return TaskPhase.SUCCEEDED
    return TaskPhase.STOPPED if task.stopped_by_us else TaskPhase.FAILED


def _needed(state: JobState) -> list[TaskState]:
    """The tasks whose exit 0 makes the job a success."""
    tasks = list(state.tasks.values())
    if state.success is Success.ALL:
        return tasks
    if state.success is Success.CHIEF:
        return [task for task in tasks if task.role is Role.CHIEF]
    if state.success is Success.WORKER_0:
        return [task for task in tasks if task.role is Role.WORKER and task.index == 0]
    return [task for task in tasks if task.role in (Role.CHIEF, Role.WORKER)]


def _check_success(state: JobState, at: float) -> Result:
    done = (TaskPhase.EXITED, TaskPhase.SUCCEEDED)
    if not all(task.phase in done and task.code == 0 for task in _needed(state)):
        return state, []
    outcome = Outcome(result="succeeded", exit_code=0, origin="task", cause="it succeeded")
    return _conclude(state, outcome, at)


def _conclude(
    state: JobState,
    outcome: Outcome,
    at: float,
    signal: int = SIGTERM,
    grace: float = PROMPT_GRACE,
) -> Result:
    """Decide the outcome, unless it is decided, and stop what is left."""
    if state.outcome is not None:
        return _finish_if_over(state)
    state = replace(state, outcome=outcome, decided_at=at, phase=JobPhase.STOPPING)
    evaluators = {
        task.name
        for task in state.tasks.values()
        if task.role is Role.EVALUATOR and outcome.result == "succeeded"
    }
    state, actions = _stop_tasks(state, signal, grace, spare=evaluators)
    if any(not state.tasks[name].phase.is_final for name in evaluators):
        actions.append(SetTimer("evaluator", state.grace))
    state, more = _finish_if_over(state)
    return state, actions + more


def _stop_tasks(
    state: JobState, signal: int, grace: float, spare: set[str] | frozenset[str] = frozenset()
) -> Result:
    actions: list[Action] = []
    for task in state.tasks.values():
        if task.phase.is_final or task.name in spare:
            continue
        actions.append(StopTask(task.name, signal, grace))
        if task.phase in (TaskPhase.STARTING, TaskPhase.RUNNING):
            state = _change(state, task.name, phase=TaskPhase.STOPPING)
    return state, actions


def _is_spared(task: TaskState) -> bool:
    """An evaluator that nobody has told to end since the job succeeded."""
    return task.role is Role.EVALUATOR and task.phase is not TaskPhase.STOPPING


def _on_start_timeout(state: JobState, at: float) -> Result:
    late = [task.name for task in state.tasks.values() if task.phase is TaskPhase.STARTING]
    if state.phase is not JobPhase.PREPARING and not late:
        return state, []
    who = ", ".join(late[:8]) if late else "its hosts"
    outcome = Outcome(
        result="failed",
        exit_code=StartTimeoutError.exit_code,
        origin="distrun",
        cause=f"not started within timeouts.start, {state.start_timeout:g} s: {who}",
    )
    return _conclude(state, outcome, at)


def _finish_if_over(state: JobState) -> Result:
    if state.outcome is None or state.finishing:
        return state, []
    if not all(task.phase.is_final for task in state.tasks.values()):
        return state, []
    return replace(state, finishing=True), [Finish(state.outcome)]


def _change(state: JobState, name: str, **changes: object) -> JobState:
    task = replace(state.tasks[name], **changes)  # type: ignore[arg-type]
    return replace(state, tasks={**state.tasks, name: task})
