"""Restarts after a failure: whether to restart, which tasks, and when.

A restart is decided when a task has failed. The tasks that it includes are stopped if they still
run. When nothing of their attempts is left and the backoff has passed, all of them start together.
"""

from __future__ import annotations

from dataclasses import replace

from distrun.agent.protocol import KILL_GRACE
from distrun.agent.protocol.causes import Cause, Code
from distrun.events import RestartPlanned, Timer, TimerKind
from distrun.frozen import Frozen
from distrun.lifecycle.actions import Action, Announce, CancelTimer, SetTimer, StopTask
from distrun.lifecycle.starts import start
from distrun.lifecycle.state import (
    Account,
    Budget,
    JobPhase,
    JobState,
    Restart,
    TaskPhase,
    TaskState,
)
from distrun.spec.model import RestartSpec
from distrun.strategies import Scope

Transition = tuple[JobState, list[Action]]
SIGTERM = 15
MOST_FREE_IN_A_ROW = 20
LIVED_LONG = 60.0
"""Seconds after which a preempted attempt counts as useful even if it reported no step."""
TF_PREEMPTED = 42
"""TensorFlow's exit code for a preemption."""
START, STALL = Timer(TimerKind.START), Timer(TimerKind.STALL)
_JITTER = 0.25
_MOST_DOUBLINGS = 62


def is_preempted(task: TaskState) -> bool:
    """Whether it was preempted: TensorFlow's exit code for that, or the end by a SIGTERM."""
    return task.exit_status in (TF_PREEMPTED, 128 + SIGTERM)


def grace_after(state: JobState, failed: TaskState) -> float:
    """Return the seconds that the other tasks have to end; after a preemption they save as well."""
    return state.timeouts.grace if is_preempted(failed) else KILL_GRACE


def plan_restart(
    state: JobState, failed: TaskState, cause: Cause, at: float, signal: int = SIGTERM
) -> Transition | Cause | None:
    """Restart what the strategy restarts after a failure.

    Returns why there is no restart for it; None if nothing of the job restarts.
    """
    allowed = _allow(state, failed, cause)
    if allowed is None or isinstance(allowed, Cause):
        return allowed
    restart, delay = _make_restart(state, failed, allowed, cause, at)
    running = [name for name in restart.tasks if not state.tasks[name].has_ended]
    superseded = {state.tasks[name].restart for name in restart.tasks}
    state, actions = cancel_restarts(state, state.restarts.keys() & superseded)
    state = replace(
        state,
        phase=JobPhase.RESTARTING if restart.scope is Scope.GROUP else state.phase,
        budgets={**state.budgets, allowed.budget: allowed.after},
        restarts={**state.restarts, restart.number: restart},
    ).with_tasks(_awaiting_restart(state.tasks[name], restart.number) for name in restart.tasks)
    if allowed.before.is_timed:
        actions.append(CancelTimer(_health_timer(allowed.budget)))
    if restart.scope is Scope.GROUP and state.timeouts.stall is not None:
        actions.append(CancelTimer(STALL))
    actions += [StopTask(name, signal, grace_after(state, failed)) for name in running]
    actions.append(SetTimer(_backoff_timer(restart), delay))
    planned = RestartPlanned(
        at=at,
        number=restart.number,
        tasks=restart.tasks,
        cause=restart.cause,
        delay=delay,
        is_free=allowed.after.counted == allowed.before.counted,
        left=allowed.policy.max - allowed.after.counted,
    )
    return state, [Announce(planned), *actions]


def why_not_restarted(state: JobState, failed: TaskState) -> Cause | None:
    """Return why a task that has failed is not restarted; None if nothing of the job restarts."""
    if failed.reason is not None:
        return Cause(Code.RESTART_NOT_APPLICABLE) if state.has_restarts else None
    found = _allow(state, failed, Cause(Code.TASK_EXITED))
    return found if isinstance(found, Cause) else None


def why_excluded(state: JobState, failed: TaskState) -> Cause:
    """Return the reason if `never_on` has the exit code of a task."""
    name = _key(state.budget_of(failed), "never_on")
    return Cause(Code.STATUS_EXCLUDED, name=name, status=failed.exit_status)


def on_backoff_over(state: JobState, number: int) -> Transition:
    """Start a restart's tasks, or wait for the end of their last attempts."""
    restart = state.restarts.get(number)
    return (state, []) if restart is None else _start_if_ready(state, replace(restart, is_due=True))


def on_attempt_ended(state: JobState, task: TaskState) -> Transition:
    """Start the restart that waited for the end of this attempt, if it waited for no other."""
    if task.restart is None:
        return state, []
    restart = state.restarts[task.restart]
    return _start_if_ready(state, replace(restart, attempts_left=restart.attempts_left - 1))


def leave_restart(state: JobState, task: TaskState) -> Transition:
    """Restart the others of its group without a task that has finished meanwhile."""
    assert task.restart is not None  # noqa: S101 - the caller has checked it
    restart = state.restarts[task.restart]
    left = tuple(name for name in restart.tasks if name != task.name)
    state = state.with_tasks([replace(task, restart=None)])
    return _start_if_ready(
        state, replace(restart, tasks=left, attempts_left=restart.attempts_left - 1)
    )


def cancel_restarts(state: JobState, numbers: set[int]) -> Transition:
    """Cancel restarts that have not begun. Tasks that have ended keep the result of that end."""
    canceled = [state.restarts[number] for number in sorted(numbers)]
    left = {number: each for number, each in state.restarts.items() if number not in numbers}
    state = replace(state, restarts=left).with_tasks(
        _without_restart(state.tasks[name]) for restart in canceled for name in restart.tasks
    )
    return state, [CancelTimer(_backoff_timer(restart)) for restart in canceled]


def start_health_timers(state: JobState) -> Transition:
    """Start the timers of `restart.reset_after` once everything that restarted runs again."""
    actions: list[Action] = []
    restarting = {restart.budget for restart in state.restarts.values()}
    if state.unstarted:
        return state, actions
    for name, budget in state.budgets.items():
        seconds = state.role_policies.get(name, state.policy).reset_after
        if seconds is None or budget.is_whole or budget.is_timed or name in restarting:
            continue
        budgets = {**state.budgets, name: replace(budget, is_timed=True)}
        state = replace(state, budgets=budgets)
        actions.append(SetTimer(_health_timer(name), seconds))
    return state, actions


def reset_budget(state: JobState, name: str) -> JobState:
    """Count restarts from 0 again: there was no failure for `restart.reset_after`."""
    healthy = Budget(total=state.budgets[name].total)
    return replace(state, budgets={**state.budgets, name: healthy})


def final_phase(task: TaskState) -> TaskPhase:
    """Return the phase of an exited task once nothing of it is left."""
    if not task.has_failed_exit:
        return TaskPhase.STOPPED if task.code is None else TaskPhase.SUCCEEDED
    return TaskPhase.STOPPED if task.stopped_by_us else TaskPhase.FAILED


def _backoff_timer(restart: Restart) -> Timer:
    return Timer(TimerKind.RESTART, str(restart.number))


def _health_timer(budget: str) -> Timer:
    return Timer(TimerKind.HEALTH, budget)


def _key(budget: str, name: str) -> str:
    """The key of the spec that decides for a budget, as `restart.max`."""
    is_common = budget in {account.value for account in Account}
    return f"restart.{name}" if is_common else f"cluster.{budget}.restart.{name}"


class _Allowance(Frozen, kw_only=True):
    """A restart that a policy allows: the name of its budget, before and after it."""

    policy: RestartSpec
    budget: str
    before: Budget
    after: Budget


def _allow(state: JobState, failed: TaskState, cause: Cause) -> _Allowance | Cause | None:
    """Return what allows a restart, or why there is none; None if nothing of the job restarts."""
    if not state.has_restarts:
        return None
    is_stall = cause.code is Code.STALLED
    name = Account.JOB.value if is_stall else state.budget_of(failed)
    policy = state.policy if is_stall else state.policy_of(failed)
    status = None if is_stall else failed.exit_status
    if status in policy.never_on:
        return why_excluded(state, failed)
    if not policy.includes(status, is_preempted=not is_stall and is_preempted(failed)):
        text = ", ".join(policy.on)
        return Cause(Code.STATUS_NOT_INCLUDED, name=_key(name, "on"), status=status, text=text)
    leader = state.leader
    is_group = state.rule(failed).restarts is Scope.GROUP
    if is_group and leader is not None and state.has_finished(leader):
        return Cause(Code.LEADER_FINISHED, task=leader.name)
    before = state.budgets.get(name, Budget())
    after = _charged(policy, before, failed)
    if after is None:
        return Cause(Code.RESTART_MAX_REACHED, name=_key(name, "max"), count=policy.max)
    return _Allowance(policy=policy, budget=name, before=before, after=after)


def _charged(policy: RestartSpec, budget: Budget, failed: TaskState) -> Budget | None:
    """Return the budget after one more restart; None if it does not allow one."""
    if policy.max == 0:
        return None
    free = budget.free_in_a_row + 1
    if is_preempted(failed) and _made_progress(failed) and free <= MOST_FREE_IN_A_ROW:
        return Budget(total=budget.total + 1, counted=budget.counted, free_in_a_row=free)
    if budget.counted < policy.max:
        return Budget(total=budget.total + 1, counted=budget.counted + 1)
    return None


def _made_progress(task: TaskState) -> bool:
    """Whether an attempt lived long or reported a step; others could restart without end."""
    return (task.lived or 0.0) >= LIVED_LONG or "STEP" in task.reported


def _make_restart(
    state: JobState,
    failed: TaskState,
    allowed: _Allowance,
    cause: Cause,
    at: float,
) -> tuple[Restart, float]:
    """Return the restart, and its backoff in seconds."""
    number = sum(each.total for each in state.budgets.values()) + 1
    scope = state.rule(failed).restarts
    members = [failed]
    if scope is not Scope.TASK:
        members = [
            task
            for task in state.tasks.values()
            if task.is_in_group and not state.has_finished(task)
        ]
    delay = _backoff(state.job_id, allowed.policy, allowed.after, number)
    restart = Restart(
        number=number,
        account=failed.account,
        budget=allowed.budget,
        scope=scope,
        tasks=tuple(task.name for task in members),
        cause=cause,
        due_at=at + delay,
        attempts_left=sum(not task.has_ended for task in members),
    )
    return restart, delay


def _backoff(job_id: str, policy: RestartSpec, budget: Budget, number: int) -> float:
    """Return seconds: doubled with each restart that counts, less a random part of up to 25%.

    The random part depends on the job's id and the restart's number only. So it is the same in
    every replay, and differs between jobs that failed together.
    """
    import hashlib  # its import is slow, and most jobs have no restart

    doublings = min(max(budget.counted - 1, 0), _MOST_DOUBLINGS)
    longest = min(policy.backoff * 2.0**doublings, policy.backoff_max)
    drawn = hashlib.blake2b(f"{job_id}/{number}".encode(), digest_size=4).digest()
    return longest * (1 - _JITTER * int.from_bytes(drawn, "big") / 2**32)


def _awaiting_restart(task: TaskState, number: int) -> TaskState:
    """Return a task that will restart; its present attempt is being stopped."""
    phase = task.phase
    if task.has_ended:
        phase = TaskPhase.RESTARTING
    elif phase is not TaskPhase.EXITED:
        phase = TaskPhase.STOPPING
    has_only_waited = task.phase is TaskPhase.WAITING or (
        task.has_only_waited and task.phase is TaskPhase.RESTARTING
    )
    return replace(task, restart=number, phase=phase, has_only_waited=has_only_waited)


def _without_restart(task: TaskState) -> TaskState:
    """Return a task whose restart was canceled."""
    ended = task.phase is TaskPhase.RESTARTING
    return replace(task, restart=None, phase=final_phase(task) if ended else task.phase)


def _start_if_ready(state: JobState, restart: Restart) -> Transition:
    if restart.attempts_left or not restart.is_due:
        return replace(state, restarts={**state.restarts, restart.number: restart}), []
    left = {n: each for n, each in state.restarts.items() if n != restart.number}
    fresh = [state.tasks[name].next_attempt() for name in restart.tasks]
    state, starts = start(replace(state, restarts=left), fresh, restart.cause)
    actions: list[Action] = []
    if state.timeouts.start is not None and restart.account is Account.JOB:
        actions += [CancelTimer(START), SetTimer(START, state.timeouts.start)]
    return state, actions + starts
