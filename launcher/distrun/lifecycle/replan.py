"""A plan in place of an earlier one, and jobs that are resumed after their end."""

from __future__ import annotations

from typing import Any

from distrun.agent.protocol.causes import Cause, Code
from distrun.frozen import replace
from distrun.job import events
from distrun.lifecycle import outcomes, restarts, starts
from distrun.lifecycle.state import (
    Budget,
    Interruption,
    JobPhase,
    JobState,
    LastStep,
    TaskPhase,
    TaskState,
)
from distrun.strategies import Role
from distrun.verdict.model import Replacement


def settings(event: events.JobCreated) -> dict[str, Any]:
    """Return the fields of a job's state that its spec and its supervisor determine."""
    found = _same_fields(event)
    return {**found, "policy": event.restart, "role_policies": event.role_restarts}


def _same_fields(event: events.JobCreated | events.JobQueued) -> dict[str, Any]:
    same = vars(event).keys() & JobState.__dataclass_fields__.keys() - {"changes", "down"}
    return {name: getattr(event, name) for name in same}


def resume(state: JobState, event: events.JobResumed) -> restarts.Transition:
    """Return a job as it is before it starts again: in preparation, and its tasks have ended.

    Restarts are counted from 0 again, because a person or `--resume-lost` has decided to continue.
    The numbers of restarts and attempts continue.
    """
    resumed = JobState(
        **settings(event),
        created_at=state.created_at,
        queued_at=state.queued_at,
        batch_id=state.batch_id,
        resumed_at=(*state.resumed_at, event.at),
        changes=(*state.changes, *event.changes),
        down=state.down + event.down,
        repeated_steps=state.repeated_steps,
        interruptions=state.interruptions,
        lost_agents=state.lost_agents,
        former_hosts={**state.former_hosts, **state.hosts},
        dropped=state.dropped,
        replacements=state.replacements,
        last_restart=state.last_restart,
        budgets={name: Budget(total=each.total) for name, each in state.budgets.items()},
    )
    resumed = resumed.with_tasks(
        replace(ended(task, event.at), first_attempt=task.attempt + 1)
        for task in state.tasks.values()
    )
    # While hosts are cleared, their leases limit the time.
    return resumed, [] if resumed.former_hosts else restarts.start_timer(resumed)


def queue(state: JobState, event: events.JobQueued) -> JobState:
    """Return a job that waits in the queue of Slurm, perhaps after it has ended."""
    return replace(
        state,
        **_same_fields(event),
        phase=JobPhase.PENDING,
        created_at=state.created_at or event.at,
        queued_at=event.at,
        outcome=None,
        ended_at=None,
        killing=False,
        finishing=False,
    )


def ended(task: TaskState, at: float) -> TaskState:
    """Return a task whose last attempt has ended, at the latest with its supervisor."""
    if task.phase.is_final:
        return task
    if task.phase is TaskPhase.RESTARTING:
        return replace(task, phase=task.final_phase, restart=None)
    task = replace(task, restart=None)
    if task.phase is not TaskPhase.EXITED:
        only_waited = task.has_only_waited or task.phase is TaskPhase.WAITING
        task = replace(task, stopped_by_us=True, has_only_waited=only_waited)
    return task.ended(at)


def clear_host(state: JobState, event: events.HostCleared) -> restarts.Transition:
    """Note that nothing of the earlier attempts is left on a host."""
    if event.host in state.hosts:
        state = state.with_host(replace(state.hosts[event.host], has_ended=True))
    cleared = state.former_hosts.get(event.host)
    if cleared is not None:
        state = state.without_lost_logs(cleared)
    if cleared is not None and event.cause is not None:
        state = state.with_lost_agent(cleared, event.at, event.cause, event.received)
    left = {host: each for host, each in state.former_hosts.items() if host != event.host}
    is_last = bool(state.former_hosts) and not left
    state = replace(state, former_hosts=left)
    if state.phase.is_final:
        return state, []
    if state.outcome is not None:
        return outcomes.finish_if_ended(state)
    return state, restarts.start_timer(state) if is_last else []


def apply_plan(state: JobState, event: events.JobPlanned) -> restarts.Transition:
    """Give all tasks their places, and start those that the plan does not keep.

    Kept tasks continue; one that is about to restart does so by its own restart. Those that have
    finished are always kept. A further plan begins the restarts of the tasks that it starts. Tasks
    without a record are dropped; none of them may be alive.
    """
    if state.outcome is not None:
        return state, []
    is_first = state.phase is JobPhase.PREPARING
    known = {**state.dropped, **dict(state.tasks.items())}
    placed: list[TaskState] = []
    starting: list[TaskState] = []
    begun: set[int | None] = set()
    for record in event.tasks:
        task = known.get(record.name)
        if task is not None and (record.name in event.kept or state.has_finished(task)):
            placed.append(replace(task, **vars(record)) if task.has_ended else task)
            continue
        fresh = TaskState(**vars(record))
        if task is not None:
            begun.add(task.restart)
            fresh = replace(task, **vars(record)).next_attempt()
        if is_first:
            fresh = replace(fresh, first_attempt=fresh.attempt)
        fresh = replace(fresh, agent=state.agent_of(fresh))
        placed.append(fresh)
        starting.append(fresh)
    beginning = [each for number, each in sorted(state.incidents.items()) if number in begun]
    for each in beginning:
        state = restarts.begin(state, each)
    cause = beginning[0].cause if beginning else None
    workers = sum(task.role is Role.WORKER for task in placed)
    if is_first:
        cause = Cause(Code.JOB_RESUMED) if state.resumed_at else None
        state = replace(state, phase=JobPhase.STARTING, all_workers=workers, waits_for_host=None)
    else:
        replacement = Replacement(
            at=event.at,
            former_hosts=event.former_hosts,
            hosts={task.name: task.host for task in placed if task.name in event.former_hosts},
            workers=workers,
            all_workers=state.all_workers,
            cause=cause,
        )
        state = replace(state, replacements=(*state.replacements, replacement))
    state, actions = starts.start(state.with_plan(placed), starting, cause)
    if any(each.needs_host for each in beginning):
        actions = [*restarts.start_timer(state), *actions]
    return state, actions


def continue_training(state: JobState, event: events.FirstStep) -> JobState:
    """Note what an interruption has cost, by the first step after it. Each is noted once."""
    task = state.tasks[event.task]
    before = task.last_step
    first = LastStep.of(event.values, event.at)
    if before is None or first is None or not task.is_in_group:
        return state
    waiting = (each for each in state.tasks.values() if each.last_step is not None)
    state = state.with_tasks(replace(each, last_step=None) for each in waiting)
    is_known = before.epoch == first.epoch and not event.is_printed
    cost = Interruption(
        at=event.at,
        seconds=round(max(0.0, event.at - before.at), 3),
        repeated_steps=max(0, before.step - max(0, first.step - 1)) if is_known else None,
        is_restart=before.is_restart,
        is_anew=before.began is not None and first[:2] <= before.began[:2] < before[:2],
    )
    state = replace(state, interruptions=(*state.interruptions, cost))
    last = state.replacements[-1] if state.replacements else None
    if cost.is_restart:
        return state
    if last is None or (state.resumed_at and state.resumed_at[-1] > last.at):
        return replace(state, repeated_steps=state.repeated_steps + (cost.repeated_steps or 0))
    measured = replace(last, seconds=cost.seconds, repeated_steps=cost.repeated_steps)
    verdict = state.verdict
    if verdict is not None and verdict.replacement == last:
        verdict = replace(verdict, replacement=measured)
    replacements = (*state.replacements[:-1], measured)
    return replace(state, replacements=replacements, verdict=verdict)
