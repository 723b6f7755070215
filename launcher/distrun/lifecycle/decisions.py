"""What follows from a state: whether it fails or succeeds, and who is stopped how."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distrun.agent.linux.syscalls import signal_name
from distrun.errors import HostError, InternalError, StartTimeoutError
from distrun.events import Outcome
from distrun.lifecycle.actions import Action, CancelTimer, Finish, SetTimer, StopTask
from distrun.lifecycle.restarts import (
    PROMPT_GRACE,
    SIGTERM,
    STALL,
    Result,
    drop_restarts,
    grace_after,
    restart_after,
    time_health,
)
from distrun.lifecycle.state import Account, JobPhase, JobState, TaskPhase, TaskState
from distrun.strategies import STRATEGIES, Role, Scope
from distrun.verdict.model import Kind

if TYPE_CHECKING:
    from distrun.verdict.model import Verdict

SIGABRT, SIGKILL = 6, 9


def judge_exit(state: JobState, task: TaskState, at: float) -> Result:
    """What the exit of a task that nobody has stopped means to the job."""
    rule = STRATEGIES[state.strategy].roles[task.role]
    early = rule.serves and task.code == 0 and not state.success.waits_for(task.role, task.index)
    if not task.has_failed_exit and not early:
        return check_success(state, at)
    restarted = _restart(state, task, how_it_ended(task), at)
    if restarted is not None:
        return restarted
    if state.needs(task):
        return conclude(state, _failure(state, task), at, grace=grace_after(state, task))
    return state, []


def judge_late_exit(state: JobState, task: TaskState, at: float) -> Result:
    """What the exit of a task means that is to start again: nothing, where that may be.

    What it fails of may be the first cause, of which the failure that was seen before it came.
    """
    by_itself = task.has_failed_exit and not task.stopped_by_us
    if by_itself and task.exit_status in state.policy.never_on:
        return conclude(state, _failure(state, task), at)
    return state, []


def _restart(
    state: JobState, failed: TaskState, cause: str, at: float, signal: int = SIGTERM
) -> Result | None:
    """What a failure starts again, or the job's end where that cannot be on a host that is gone."""
    restarted = restart_after(state, failed, cause, at, signal)
    if restarted is None:
        return None
    for task in restarted[0].tasks.values():
        why = None if task.restart is None else state.why_unusable(task)
        if why is not None:
            if not state.needs(task):
                return None
            cause = f"{why}; {task.name} cannot start again there, as it should after {cause}"
            return conclude(state, lost_host(cause), at, signal, grace_after(state, failed))
    return restarted


def lost_host(cause: str) -> Outcome:
    """What comes of a host on which something was needed."""
    return Outcome(result="failed", exit_code=HostError.exit_code, origin="distrun", cause=cause)


def how_it_ended(task: TaskState) -> str:
    """Words for the cause of what follows: `worker:1 exited 3`."""
    if task.signal is not None:
        return f"{task.name} was killed by {signal_name(task.signal)}"
    early = " before the chief had finished" if task.code == 0 else ""
    return f"{task.name} exited {task.code}{early}"


def _failure(state: JobState, task: TaskState) -> Outcome:
    cause = how_it_ended(task)
    restarts = state.budgets[task.account].total
    if state.policy.max > 0 and task.exit_status in state.policy.never_on:
        cause += ", after which restart.never_on wants no restart"
    elif restarts:
        cause += ", after " + ("1 restart" if restarts == 1 else f"{restarts} restarts")
    status = task.exit_status
    if status == 0:
        return Outcome(result="failed", exit_code=1, origin="distrun", cause=cause, task=task.name)
    return Outcome(
        result="failed",
        exit_code=InternalError.exit_code if status is None else status,
        origin="task",
        cause=cause,
        task=task.name,
    )


def revise(state: JobState, verdict: Verdict) -> JobState:
    """The outcome, with what was found out since: the exit code is the first cause's own.

    Where that has none of its own, having exited 0 or been stopped before it could crash, it stays
    what it was; where it is a host that was lost, the code is that of a lost host.
    """
    outcome = state.outcome
    if outcome is None or outcome.result != "failed":
        return state
    task = state.tasks.get(verdict.task or "")
    if verdict.kind is Kind.HOST_LOST and outcome.origin == "task":
        outcome = replace(
            outcome,
            exit_code=HostError.exit_code,
            origin="distrun",
            task=verdict.task,
            cause=verdict.cause,
        )
    elif outcome.origin == "task" and task is not None and task.name != outcome.task:
        crashed = verdict.kind is Kind.CRASH
        own = task.exit_status if crashed or not task.stopped_by_us else None
        if own:
            outcome = replace(outcome, exit_code=own, task=task.name, cause=how_it_ended(task))
    return replace(state, outcome=replace(outcome, verdict=verdict))


def check_success(state: JobState, at: float) -> Result:
    if state.undone:
        return state, []
    outcome = Outcome(result="succeeded", exit_code=0, origin="task", cause="it succeeded")
    return conclude(state, outcome, at)


def check_started(state: JobState) -> Result:
    """What follows once no task is starting any more."""
    if state.unstarted or state.outcome is not None:
        return state, []
    actions: list[Action] = []
    if state.start_timeout is not None:
        actions.append(CancelTimer("start"))
    state, health = time_health(state)
    if any(restart.scope is Scope.GROUP for restart in state.restarts.values()):
        return state, actions + health
    if state.stall_timeout is not None and state.phase is not JobPhase.RUNNING:
        actions += [CancelTimer(STALL), SetTimer(STALL, state.stall_timeout)]
    if state.run_timeout is not None and not state.has_run:
        actions.append(SetTimer("run", state.run_timeout))
    return replace(state, phase=JobPhase.RUNNING, has_run=True), actions + health


def conclude(
    state: JobState,
    outcome: Outcome,
    at: float,
    signal: int = SIGTERM,
    grace: float = PROMPT_GRACE,
) -> Result:
    """Decide the outcome, unless it is decided, and stop what is left."""
    if state.outcome is not None:
        return finish_if_over(state)
    state = replace(state, outcome=outcome, decided_at=at, phase=JobPhase.STOPPING)
    state, dropped = drop_restarts(state, set(state.restarts))
    if state.stall_timeout is not None:
        dropped.append(CancelTimer(STALL))
    evaluators = {
        task.name
        for task in state.tasks.values()
        if task.role is Role.EVALUATOR and outcome.result == "succeeded"
    }
    state, actions = stop_tasks(state, signal, grace, spare=evaluators)
    if any(not state.tasks[name].phase.is_final for name in evaluators):
        actions.append(SetTimer("evaluator", state.grace))
    state, more = finish_if_over(state)
    return state, dropped + actions + more


def stop_tasks(
    state: JobState, signal: int, grace: float, spare: set[str] | frozenset[str] = frozenset()
) -> Result:
    told = [
        task for task in state.tasks.values() if not task.phase.is_final and task.name not in spare
    ]
    state = state.with_tasks(
        replace(task, phase=TaskPhase.STOPPING)
        for task in told
        if task.phase in (TaskPhase.STARTING, TaskPhase.RUNNING)
    )
    return state, [StopTask(task.name, signal, grace) for task in told]


def is_spared(task: TaskState) -> bool:
    """An evaluator that nobody has told to end since the job succeeded."""
    return task.role is Role.EVALUATOR and task.phase is not TaskPhase.STOPPING


def on_start_timeout(state: JobState, at: float) -> Result:
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
    return conclude(state, outcome, at)


def on_stall(state: JobState, at: float) -> Result:
    """Nothing has come of the job for too long: all that trains starts again, or the job fails.

    By SIGABRT, at which Python prints into the log where each thread is.
    """
    if any(restart.scope is Scope.GROUP for restart in state.restarts.values()):
        return state, []
    cause = f"no progress within timeouts.stall, {state.stall_timeout:g} s"
    leader = next(task for task in state.tasks.values() if task.account is Account.JOB)
    restarted = _restart(state, leader, cause, at, SIGABRT)
    if restarted is not None:
        return restarted
    outcome = Outcome(
        result="failed", exit_code=StartTimeoutError.exit_code, origin="distrun", cause=cause
    )
    return conclude(state, outcome, at, signal=SIGABRT)


def finish_if_over(state: JobState) -> Result:
    if state.outcome is None or state.finishing or state.unended:
        return state, []
    return replace(state, finishing=True), [Finish(state.outcome)]
