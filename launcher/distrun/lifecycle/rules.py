"""What each event does to a job's state, and what is to be done about it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import singledispatch
from typing import Any

from distrun import events
from distrun.errors import HostError, StartTimeoutError
from distrun.events import Event, Outcome
from distrun.lifecycle.actions import Action, CancelTimer, SetTimer, StartTask
from distrun.lifecycle.decisions import (
    PROMPT_GRACE,
    SIGKILL,
    SIGTERM,
    Result,
    change,
    check_success,
    conclude,
    fails_the_job,
    failure,
    final_phase,
    finish_if_over,
    is_preempted,
    is_spared,
    on_start_timeout,
    stop_tasks,
)
from distrun.lifecycle.state import HostState, JobPhase, JobState, TaskPhase, TaskState
from distrun.strategies import Role


def replay(history: list[Event]) -> JobState:
    """The state that a record's events lead to."""
    state = JobState()
    for event in history:
        # A damaged record may tell of tasks whose plan it has lost.
        with suppress(KeyError):
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
    host = HostState(
        name=event.host,
        agent_pid=event.agent_pid,
        hostname=event.hostname,
        is_local=event.is_local,
    )
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
    return conclude(state, outcome, event.at)


@_step.register
def _(event: events.TaskStarted, state: JobState) -> Result:
    told = state.tasks[event.task].phase is TaskPhase.STOPPING
    state = change(
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
    if state.start_timeout is not None:
        timers.append(CancelTimer("start"))
    if state.run_timeout is not None:
        timers.append(SetTimer("run", state.run_timeout))
    return replace(state, phase=JobPhase.RUNNING), timers


@_step.register
def _(event: events.TaskNotStarted, state: JobState) -> Result:
    state = change(
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
    return conclude(state, outcome, event.at)


@_step.register
def _(event: events.TaskExited, state: JobState) -> Result:
    task = state.tasks[event.task]
    stopped = task.phase is TaskPhase.STOPPING
    state = change(
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
    if fails_the_job(state, state.tasks[event.task]):
        failed = state.tasks[event.task]
        # Where one has been preempted the others are saving too: they get the time for it.
        grace = state.grace if is_preempted(failed) else PROMPT_GRACE
        return conclude(state, failure(failed), event.at, grace=grace)
    return check_success(state, event.at)


@_step.register
def _(event: events.TaskEnded, state: JobState) -> Result:
    phase = final_phase(state.tasks[event.task])
    return finish_if_over(change(state, event.task, phase=phase, ended_at=event.at))


@_step.register
def _(event: events.TaskReported, state: JobState) -> Result:
    return change(state, event.task, reported=dict(event.values)), []


@_step.register(events.PreflightSkipped)
@_step.register(events.PreflightFound)
@_step.register(events.PreflightEnded)
@_step.register(events.LogsIncomplete)
@_step.register(events.TensorBoardStarted)
@_step.register(events.TensorBoardEnded)
def _(event: Event, state: JobState) -> Result:  # noqa: ARG001 - nothing of the job depends on it
    return state, []


@_step.register
def _(event: events.HostLost, state: JobState) -> Result:
    state = _change_host(state, event.host, lost=event.reason, link_lost=None, link_lost_at=None)
    for task in state.tasks.values():
        if task.host == event.host and not task.phase.is_final:
            known = task.phase is TaskPhase.EXITED
            state = change(
                state,
                task.name,
                phase=final_phase(task) if known else TaskPhase.FAILED,
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
    return conclude(state, outcome, event.at)


@_step.register
def _(event: events.LinkLost, state: JobState) -> Result:
    return _change_host(state, event.host, link_lost=event.reason, link_lost_at=event.at), []


@_step.register
def _(event: events.LinkRestored, state: JobState) -> Result:
    return _change_host(state, event.host, link_lost=None, link_lost_at=None), []


def _change_host(state: JobState, name: str, **changes: Any) -> JobState:
    host = state.hosts.get(name)
    if host is None:
        return state
    return replace(state, hosts={**state.hosts, name: replace(host, **changes)})


@_step.register
def _(event: events.HostFault, state: JobState) -> Result:
    outcome = Outcome(
        result="failed",
        exit_code=HostError.exit_code,
        origin="distrun",
        cause=f"{event.host} cannot go on: {event.reason}",
    )
    return conclude(state, outcome, event.at)


@_step.register
def _(event: events.StopRequested, state: JobState) -> Result:
    outcome = Outcome(
        result="stopped",
        exit_code=event.exit_code,
        origin="distrun",
        cause=f"stopped by {event.reason}",
    )
    if state.outcome is None:
        return conclude(state, outcome, event.at, signal=event.signal, grace=event.grace)
    if state.killing:
        return state, []
    # Asked again, or while it is ending anyway: no more waiting.
    return stop_tasks(replace(state, killing=True), SIGKILL, 0.0)


@_step.register
def _(event: events.TimedOut, state: JobState) -> Result:
    if event.timer == "evaluator":
        told = {task.name for task in state.tasks.values() if not is_spared(task)}
        return stop_tasks(state, SIGTERM, PROMPT_GRACE, spare=told)
    if state.outcome is not None:
        return state, []
    if event.timer == "start":
        return on_start_timeout(state, event.at)
    outcome = Outcome(
        result="failed",
        exit_code=StartTimeoutError.exit_code,
        origin="distrun",
        cause=f"it ran longer than timeouts.run, {state.run_timeout:g} s",
    )
    return conclude(state, outcome, event.at, grace=state.grace)


@_step.register
def _(event: events.JobEnded, state: JobState) -> Result:
    phase = JobPhase(event.outcome.result)
    return replace(state, phase=phase, outcome=event.outcome, ended_at=event.at), []
