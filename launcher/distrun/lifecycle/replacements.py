"""Restarts on other hosts, after a host was lost, has failed or was left out.

A restart whose tasks need other hosts asks the supervisor for a plan (MakePlan) when it is due and
nothing of the last attempts is left. It begins with the plan. Without a plan it waits until a host
is ready, at most for `timeouts.start`.
"""

from __future__ import annotations

from distrun.agent.protocol import Cause, Code, StopTask
from distrun.frozen import replace
from distrun.job import events
from distrun.job.events import HostLeftOut
from distrun.lifecycle import outcomes, restarts
from distrun.lifecycle.actions import Action, Announce, SetTimer
from distrun.lifecycle.restarts import Transition
from distrun.lifecycle.state import SAME_TIME, Incident, JobPhase, JobState, TaskPhase, TaskState
from distrun.strategies import Scope

_OF_HOST = frozenset(
    {
        *(Code.PROCESS_NOT_MADE, Code.LOG_NOT_OPENED, Code.LOG_NOT_WRITTEN),
        *(Code.WORKDIR_NOT_ENTERED, Code.PROGRAM_NOT_FOUND, Code.INTERPRETER_NOT_FOUND),
        *(Code.PROGRAM_NOT_EXECUTABLE, Code.PROGRAM_NOT_EXECUTED, Code.PROGRAM_FORMAT_UNKNOWN),
    }
)
"""Why a program could not be executed: reasons that another host may not have."""
_EXITS = (Code.TASK_EXITED, Code.TASK_KILLED, Code.TASK_EXITED_EARLY)
"""How tasks exited, as causes of restarts."""


def can_replace(state: JobState, host: str) -> bool:
    is_prepared = state.phase is not JobPhase.PREPARING
    is_open = is_prepared and state.outcome is None
    return is_open and host in state.hosts and state.replaces_hosts


def leave_host(
    state: JobState, name: str, cause: Cause, at: float, *, can_move: bool
) -> Transition:
    """Restart elsewhere what an unusable host ran, or end the job if that is not possible.

    Tasks that the job does not need stay down if they cannot move. `cause`: why it is unusable.
    """
    there = [task for task in state.tasks.values() if task.host == name and _is_missing(task)]
    why = Cause(Code.RESTART_NOT_APPLICABLE)
    if there and not state.has_room_beside(name):
        why = Cause(Code.NO_ROOM, tasks=tuple(task.name for task in there))
    reason = outcomes.with_reason(cause, why if state.has_restarts else None)
    impossible = outcomes.host_failure(reason)
    actions: list[Action] = []
    if state.phase is JobPhase.PREPARING:
        is_spare = name in state.hosts and state.hosts[name].spare
        return (state, actions) if is_spare else outcomes.end_job(state, impossible)
    # A custom role may take the group along, and the group no evaluator.
    for each in sorted(there, key=lambda task: (not task.role.is_custom, not task.is_in_group)):
        task = state.tasks[each.name]
        if not state.needs(task) and not (can_move and state.free_room_beside(name)):
            state, more = restarts.cancel_incidents(state, state.incidents.keys() & {task.restart})
            actions += more
            continue
        if not can_move:
            grace = restarts.grace_after(state, task, cause)
            state, more = outcomes.end_job(state, impossible, grace=grace)
            return state, actions + more
        pending = state.incident_of(task)
        explained = _explained(state, task, at)
        is_planned = pending is not None and pending.scope in (
            Scope.GROUP,
            restarts.scope_of(state, task),
        )
        if is_planned and explained is None:
            continue
        decision = restarts.decide(state, task, cause, explained)
        if decision.is_allowed:
            state, more = restarts.open_incident(state, decision, at)
            actions += more
        elif state.needs(task):
            outcome = outcomes.host_failure(outcomes.with_reason(cause, decision.why_not))
            grace = restarts.grace_after(state, task, cause)
            state, more = outcomes.end_job(state, outcome, grace=grace)
            return state, actions + more
    return state, actions


def _explained(state: JobState, task: TaskState, at: float) -> Incident | None:
    """Return the incident whose exit the loss of a task's host explains, or its fault now."""
    host = state.hosts[task.host]
    has_failed = host.lost is None and task.exit_status is None
    if not (has_failed or host.has_ended_with(task)):
        return None
    for _, incident in sorted(state.incidents.items()):
        failed = state.tasks.get(incident.cause.task)
        if incident.cause.code not in _EXITS or incident.is_settled or failed is None:
            continue
        is_same = failed.name == task.name or (failed.is_in_group and task.is_in_group)
        exited_at = failed.exited_at or 0.0
        is_fault = has_failed and incident.refusal is not None and exited_at >= at - SAME_TIME
        if is_same and (is_fault or host.explains_exit(exited_at)):
            return incident
    return None


def _is_missing(task: TaskState) -> bool:
    """Whether a task that its host cannot run any more must run elsewhere."""
    return (
        task.restart is not None
        or task.phase is TaskPhase.WAITING
        or not (task.has_ended or task.has_done_its_part)
    )


def end_attempts(state: JobState, lost: events.HostLost, actions: list[Action]) -> Transition:
    """Note that nothing of the tasks of a lost host is left; drop orders to stop tasks there."""
    there = [task for task in state.tasks.values() if task.host == lost.host]
    names = {task.name for task in there}
    for task in there:
        if not task.has_ended or task.phase is TaskPhase.WAITING:
            ended = _lost(task, lost.cause, lost.at)
            state = restarts.on_attempt_ended(state.with_tasks([ended]), ended)
    return state, [
        each for each in actions if not (isinstance(each, StopTask) and each.task in names)
    ]


def _lost(task: TaskState, cause: Cause, at: float) -> TaskState:
    if task.phase is not TaskPhase.EXITED:
        reason = Cause(Code.LOST_WITH_HOST, within=(cause,))
        task = replace(task, exited_at=at, reason=reason)
    return task.ended(at)


def on_not_started(state: JobState, task: TaskState, at: float) -> Transition | None:
    """Leave out a host that cannot execute a program, if there is room on others.

    Returns None if the failure is not the host's, or nothing can run elsewhere.
    """
    reason = task.reason
    if reason is None or reason.code not in _OF_HOST or not can_replace(state, task.host):
        return None
    if task.restart is not None:
        return restarts.on_attempt_ended(state, task), []
    if not state.has_room_beside(task.host):
        return None
    cause = Cause(Code.TASK_NOT_STARTED, task=task.name, within=(reason,))
    host = state.hosts[task.host]
    left = state.with_host(replace(host, left_out=cause))
    decision = restarts.decide(left, task, cause)
    if not decision.is_allowed:
        if not state.needs(task):
            return None
        outcome = outcomes.host_failure(outcomes.with_reason(cause, decision.why_not), task.name)
        return outcomes.end_job(state, outcome)
    left_out = Announce(HostLeftOut(at=at, host=host.name, cause=cause))
    state, actions = restarts.open_incident(left, decision, at)
    return state, [left_out, *actions]


def on_plan_failed(state: JobState, event: events.PlanFailed) -> Transition:
    """Wait for a host. An evaluator stays down: it must not delay the job."""
    incident, was_queued = state.incidents.get(event.restart), state.is_queued
    if incident is None and state.phase is not JobPhase.PREPARING:
        return state, []
    if incident is None:
        return _limit_wait(replace(state, waits_for_host=event.cause), was_queued=was_queued)
    if not state.requires(incident):
        state, actions = restarts.cancel_incidents(state, {incident.number})
        state, more = outcomes.enter_running(state)
        return state, actions + more
    incident = replace(incident, is_planning=False, waits_for_host=event.cause)
    if was_queued or event.cause.code is Code.POD_QUEUED:
        return _limit_wait(state.with_incident(incident), was_queued=was_queued)
    failing = [
        each
        for each in state.hosts.values()
        if each.left_out is not None and each.left_out.code is Code.HOST_FAILS_TASKS
    ]
    if failing and event.cause.code is Code.NO_ROOM:  # what was to run the tasks cannot be used
        for host in failing:
            state = state.with_host(replace(host, left_out=None))
        return restarts.request_plan(state, incident)
    state, actions = state.with_incident(incident), list[Action]()
    lost = [each.lost for each in state.hosts.values() if each.lost is not None]
    if lost and all(Code.SLURM_NODE_FAILED in {each.code for each in one.chain()} for one in lost):
        # An allocation gets no other nodes. Its successor may have them, if the job is requeued.
        reason = outcomes.with_reason(incident.cause, event.cause)
        state, actions = outcomes.end_job(state, outcomes.host_failure(reason))
    return state, actions


def _limit_wait(state: JobState, *, was_queued: bool) -> Transition:
    """Wait in a queue as long as it takes; for `timeouts.start` once it has admitted the pods."""
    if state.is_queued:
        return state, [SetTimer(restarts.START, None)]
    return state, restarts.start_timer(state) if was_queued else []


def on_host_ready(state: JobState) -> Transition:
    """Ask for a plan again for the restarts that wait for a host."""
    actions: list[Action] = []
    for incident in list(state.incidents.values()):
        if incident.waits_for_host is not None and not incident.is_planning:
            state, more = restarts.request_plan(state, incident)
            actions += more
    return state, actions
