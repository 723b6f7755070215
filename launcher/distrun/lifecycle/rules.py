"""What each event does to a job's state, and what is to be done about it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import singledispatch
from typing import Any

from distrun import events
from distrun.cli.cause_text import cause_text, cause_with_advice
from distrun.errors import HostError, StartTimeoutError
from distrun.events import Event, Outcome
from distrun.lifecycle.actions import Action, SetTimer, StartTask
from distrun.lifecycle.decisions import (
    SIGKILL,
    check_started,
    conclude,
    finish_if_over,
    is_spared,
    judge_exit,
    judge_late_exit,
    lost_host,
    on_stall,
    on_start_timeout,
    revise,
    stop_tasks,
)
from distrun.lifecycle.restarts import (
    HEALTH,
    PROMPT_GRACE,
    RESTART,
    SIGTERM,
    STALL,
    Result,
    drop_restarts,
    final_phase,
    on_attempt_ended,
    on_backoff_over,
    on_health,
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
        stall_timeout=event.stall_timeout,
        link_timeout=event.link_timeout,
        policy=event.restart,
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
        kind=event.kind,
        pid_namespace=event.pid_namespace,
        behind=event.behind,
    )
    return replace(state, hosts={**state.hosts, event.host: host}), []


@_step.register
def _(event: events.JobPlanned, state: JobState) -> Result:
    if state.outcome is not None:
        return state, []
    state = replace(state, phase=JobPhase.STARTING).with_tasks(
        TaskState(
            name=record.name,
            role=Role(record.role),
            index=record.index,
            host=record.host,
            address=record.address,
            proxied=record.proxied,
        )
        for record in event.tasks
    )
    return state, [StartTask(name, 0) for name in state.tasks]


@_step.register
def _(event: events.Aborted, state: JobState) -> Result:
    outcome = Outcome(
        result="failed",
        exit_code=event.exit_code,
        origin="distrun",
        cause=cause_with_advice(event.cause),
    )
    return conclude(state, outcome, event.at)


@_step.register
def _(event: events.TaskStarted, state: JobState) -> Result:
    task = _of_this_attempt(state, event)
    if task is None:
        return state, []
    told = task.phase is TaskPhase.STOPPING
    started = replace(
        task,
        phase=TaskPhase.STOPPING if told else TaskPhase.RUNNING,
        attempt=event.attempt,
        pid=event.pid,
        started_at=event.at,
    )
    return check_started(state.with_tasks([started]))


@_step.register
def _(event: events.TaskNotStarted, state: JobState) -> Result:
    task = _of_this_attempt(state, event)
    if task is None:
        return state, []
    failed = replace(
        task,
        phase=TaskPhase.FAILED,
        attempt=event.attempt,
        exited_at=event.at,
        ended_at=event.at,
        reason=cause_text(event.cause),
    )
    state = state.with_tasks([failed])
    # One that ran before and cannot now is one more way in which an evaluator may fail.
    if event.attempt > 0 and not state.needs(task):
        return check_started(state) if state.outcome is None else finish_if_over(state)
    outcome = Outcome(
        result="failed",
        exit_code=HostError.exit_code,
        origin="distrun",
        cause=f"{event.task} could not be started: {failed.reason}",
        task=event.task,
    )
    return conclude(state, outcome, event.at)


@_step.register
def _(event: events.TaskExited, state: JobState) -> Result:
    task = _of_this_attempt(state, event)
    if task is None:
        return state, []
    exited = replace(
        task,
        phase=TaskPhase.EXITED,
        exited_at=event.at,
        lived=event.lived,
        code=event.code,
        signal=event.signal,
        oom=event.oom,
        was_suspended=event.suspended,
        stopped_by_us=task.phase is TaskPhase.STOPPING and event.was_told,
    )
    state = state.with_tasks([exited])
    if state.outcome is not None:
        return state, []
    if exited.restart is not None:
        return judge_late_exit(state, exited, event.at)
    return judge_exit(state, exited, event.at)


@_step.register
def _(event: events.TaskEnded, state: JobState) -> Result:
    task = _of_this_attempt(state, event)
    if task is None:
        return state, []
    phase = final_phase(task) if task.restart is None else TaskPhase.RESTARTING
    ended = replace(task, phase=phase, ended_at=event.at)
    state, actions = on_attempt_ended(state.with_tasks([ended]), ended)
    state, more = finish_if_over(state)
    return state, actions + more


@_step.register
def _(event: events.TaskReported, state: JobState) -> Result:
    task = state.tasks[event.task]
    return state.with_tasks([replace(task, reported=dict(event.values))]), []


def _of_this_attempt(
    state: JobState,
    event: events.TaskStarted | events.TaskNotStarted | events.TaskExited | events.TaskEnded,
) -> TaskState | None:
    """The task that an event tells of; None where it comes too late: that attempt has ended."""
    task = state.tasks[event.task]
    return None if event.attempt < task.attempt or task.has_ended else task


@_step.register(events.PreflightSkipped)
@_step.register(events.PreflightStarted)
@_step.register(events.PreflightFound)
@_step.register(events.PreflightEnded)
@_step.register(events.LogsIncomplete)
@_step.register(events.SyncStarted)
@_step.register(events.Synced)
@_step.register(events.FilesPreserved)
@_step.register(events.RestartPlanned)
@_step.register(events.TensorBoardStarted)
@_step.register(events.TensorBoardEnded)
def _(event: Event, state: JobState) -> Result:  # noqa: ARG001 - nothing of the job depends on it
    return state, []


@_step.register
def _(event: events.HostLost, state: JobState) -> Result:
    is_needed, unstarted = _is_needed(state, event.host), state.unstarted
    changes = {"lost": cause_text(event.cause), "link_lost": None, "link_lost_at": None}
    state, actions = _give_up_host(state, event.host, **changes)
    state = state.with_tasks(
        _lost_with_its_host(task, event)
        for task in state.tasks.values()
        if task.host == event.host and not task.has_ended
    )
    if is_needed:
        return conclude(
            state, lost_host(f"{event.host} was lost: {cause_text(event.cause)}"), event.at
        )
    if state.unstarted < unstarted:
        state, more = check_started(state)
        actions += more
    return state, actions


def _is_needed(state: JobState, host: str) -> bool:
    """Whether the job cannot go on without a host.

    It can where all that it was to do there is done, or was an evaluator's. What would have to
    start again there later fails the job then.
    """
    if state.outcome is not None or state.phase is JobPhase.PREPARING:
        return True
    return any(
        task.restart is not None or not (task.has_ended or task.has_done_its_part)
        for task in state.tasks.values()
        if task.host == host and state.needs(task)
    )


def _give_up_host(state: JobState, name: str, **changes: Any) -> Result:
    """Nothing starts there any more; a restart that the job needs is left to its end."""
    doomed = {
        task.restart
        for task in state.tasks.values()
        if task.host == name and task.restart is not None and not state.needs(task)
    }
    return drop_restarts(_change_host(state, name, **changes), doomed)


def _lost_with_its_host(task: TaskState, event: events.HostLost) -> TaskState:
    if task.phase is TaskPhase.EXITED:
        return replace(task, phase=final_phase(task), ended_at=event.at)
    return replace(
        task,
        phase=TaskPhase.FAILED,
        exited_at=event.at,
        ended_at=event.at,
        reason=f"lost with its host: {cause_text(event.cause)}",
    )


@_step.register
def _(event: events.LinkLost, state: JobState) -> Result:
    return _change_host(
        state, event.host, link_lost=cause_text(event.cause), link_lost_at=event.at
    ), []


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
    if _is_needed(state, event.host):
        cause = f"{event.host} cannot go on: {cause_text(event.cause)}"
        return conclude(state, lost_host(cause), event.at)
    return _give_up_host(state, event.host, fault=cause_text(event.cause))


@_step.register
def _(event: events.StopRequested, state: JobState) -> Result:
    outcome = Outcome(
        result="stopped",
        exit_code=event.exit_code,
        origin="distrun",
        cause=f"stopped by {cause_text(event.cause)}",
    )
    if state.outcome is None:
        return conclude(state, outcome, event.at, signal=event.signal, grace=event.grace)
    if state.killing:
        return state, []
    # Asked again, or while it is ending anyway: no more waiting.
    return stop_tasks(replace(state, killing=True), SIGKILL, 0.0)


@_step.register
def _(event: events.TimedOut, state: JobState) -> Result:
    # Killed tasks, an evaluator among them, are told nothing gentler.
    if state.killing or (state.outcome is not None and event.timer != "evaluator"):
        return state, []
    if event.timer == "evaluator":
        told = {task.name for task in state.tasks.values() if not is_spared(task)}
        return stop_tasks(state, SIGTERM, PROMPT_GRACE, spare=told)
    if event.timer == "start":
        return on_start_timeout(state, event.at)
    timer, _, which = event.timer.partition(":")
    if timer in (RESTART, HEALTH):
        is_restart = timer == RESTART
        return on_backoff_over(state, int(which)) if is_restart else on_health(state, which)
    if timer == STALL:
        return on_stall(state, event.at)
    outcome = Outcome(
        result="failed",
        exit_code=StartTimeoutError.exit_code,
        origin="distrun",
        cause=f"it ran longer than timeouts.run, {state.run_timeout:g} s",
    )
    return conclude(state, outcome, event.at, grace=state.grace)


@_step.register
def _(event: events.VerdictReached, state: JobState) -> Result:
    return revise(replace(state, verdict=event.verdict), event.verdict), []


@_step.register
def _(event: events.JobEnded, state: JobState) -> Result:
    phase = JobPhase(event.outcome.result)
    return replace(state, phase=phase, outcome=event.outcome, ended_at=event.at), []
