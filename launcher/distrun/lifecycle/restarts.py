"""Starting tasks again after a failure: whether, which, and when.

A restart is decided when a task has failed. What is to start again is stopped if need be; once
nothing of its attempts is left and the backoff has passed, all of it starts together.
"""

from __future__ import annotations

from dataclasses import replace

from distrun.events import RestartPlanned
from distrun.lifecycle.actions import Action, Announce, CancelTimer, SetTimer, StartTask, StopTask
from distrun.lifecycle.state import (
    Account,
    Budget,
    JobPhase,
    JobState,
    Restart,
    TaskPhase,
    TaskState,
)
from distrun.strategies import STRATEGIES, Scope

Result = tuple[JobState, list[Action]]
SIGTERM = 15
PROMPT_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL where nobody asked for a graceful end."""
MOST_FREE_IN_A_ROW = 20
LIVED_LONG = 60.0
"""Seconds after which a preempted attempt was worth its start, whether it tells of steps or not."""
RESTART, HEALTH, STALL = "restart", "health", "stall"
"""Timers; behind the first two and a colon the restart's number, or whose health."""
_TF_PREEMPTED = 42
_JITTER = 0.25
_MOST_DOUBLINGS = 62


def is_preempted(task: TaskState) -> bool:
    """Whether it was told to go from outside: TensorFlow's exit code for that, or SIGTERM's."""
    return task.exit_status in (_TF_PREEMPTED, 128 + SIGTERM)


def grace_after(state: JobState, failed: TaskState) -> float:
    """What the others get: where one has been preempted they are saving too, and get the time."""
    return state.grace if is_preempted(failed) else PROMPT_GRACE


def restart_after(
    state: JobState, failed: TaskState, cause: str, at: float, signal: int = SIGTERM
) -> Result | None:
    """What a failure starts again; None where there is no restart for it."""
    before = state.budgets[failed.account]
    spent = _spent(state, before, failed)
    if spent is None:
        return None
    restart, delay = _decide(state, failed, spent, cause, at)
    stopped = [name for name in restart.tasks if not state.tasks[name].has_ended]
    state, actions = drop_restarts(state, _overtaken(state, restart))
    state = replace(
        state,
        phase=JobPhase.RESTARTING if restart.scope is Scope.GROUP else state.phase,
        budgets={**state.budgets, failed.account: spent},
        restarts={**state.restarts, restart.number: restart},
    ).with_tasks(_claimed(state.tasks[name], restart.number) for name in restart.tasks)
    if before.is_timed:
        actions.append(CancelTimer(f"{HEALTH}:{failed.account.value}"))
    if restart.scope is Scope.GROUP and state.stall_timeout is not None:
        actions.append(CancelTimer(STALL))
    actions += [StopTask(name, signal, grace_after(state, failed)) for name in stopped]
    actions.append(SetTimer(f"{RESTART}:{restart.number}", delay))
    planned = RestartPlanned(
        at=at,
        number=restart.number,
        tasks=restart.tasks,
        cause=restart.cause,
        delay=delay,
        is_free=spent.counted == before.counted,
        left=state.policy.max - spent.counted,
    )
    return state, [Announce(planned), *actions]


def on_backoff_over(state: JobState, number: int) -> Result:
    restart = state.restarts.get(number)
    return (state, []) if restart is None else _begin_if_ready(state, replace(restart, is_due=True))


def on_attempt_ended(state: JobState, task: TaskState) -> Result:
    """Nothing is left of an attempt that is to be followed by another."""
    if task.restart is None:
        return state, []
    restart = state.restarts[task.restart]
    return _begin_if_ready(state, replace(restart, attempts_left=restart.attempts_left - 1))


def drop_restarts(state: JobState, numbers: set[int]) -> Result:
    """Forget restarts that have not begun. Tasks whose attempts have ended stay what they were."""
    dropped = [state.restarts[number] for number in sorted(numbers)]
    left = {number: each for number, each in state.restarts.items() if number not in numbers}
    state = replace(state, restarts=left).with_tasks(
        _let_go(state.tasks[name]) for restart in dropped for name in restart.tasks
    )
    return state, [CancelTimer(f"{RESTART}:{restart.number}") for restart in dropped]


def time_health(state: JobState) -> Result:
    """Begin to wait for a spell of health where all that has been restarted runs again."""
    actions: list[Action] = []
    disturbed = {restart.account for restart in state.restarts.values()}
    spell = state.policy.reset_after
    if spell is None or state.unstarted:
        return state, actions
    for account, budget in state.budgets.items():
        if budget.is_whole or budget.is_timed or account in disturbed:
            continue
        budgets = {**state.budgets, account: replace(budget, is_timed=True)}
        state = replace(state, budgets=budgets)
        actions.append(SetTimer(f"{HEALTH}:{account.value}", spell))
    return state, actions


def on_health(state: JobState, whose: str) -> Result:
    """It has lasted long enough: restarts are counted from 0 again."""
    account = Account(whose)
    healthy = Budget(total=state.budgets[account].total)
    return replace(state, budgets={**state.budgets, account: healthy}), []


def final_phase(task: TaskState) -> TaskPhase:
    """What a task that has exited is once nothing of it is left."""
    if not task.has_failed_exit:
        return TaskPhase.SUCCEEDED
    return TaskPhase.STOPPED if task.stopped_by_us else TaskPhase.FAILED


def _spent(state: JobState, budget: Budget, failed: TaskState) -> Budget | None:
    """The budget less a restart after that failure; None where it has none for it."""
    policy = state.policy
    if policy.max == 0 or failed.exit_status in policy.never_on:
        return None
    free = budget.free_in_a_row + 1
    if is_preempted(failed) and _was_worth_it(failed) and free <= MOST_FREE_IN_A_ROW:
        return Budget(total=budget.total + 1, counted=budget.counted, free_in_a_row=free)
    if budget.counted < policy.max:
        return Budget(total=budget.total + 1, counted=budget.counted + 1)
    return None


def _was_worth_it(task: TaskState) -> bool:
    """Whether an attempt lived long or came to a step; one that does neither may go on for ever."""
    return (task.lived or 0.0) >= LIVED_LONG or "STEP" in task.reported


def _decide(
    state: JobState, failed: TaskState, spent: Budget, cause: str, at: float
) -> tuple[Restart, float]:
    """The restart, and how long it has to wait at least, in seconds."""
    number = sum(each.total for each in state.budgets.values()) + 1
    scope = STRATEGIES[state.strategy].roles[failed.role].restarts
    members = [failed] if scope is Scope.TASK else _group(state, failed.account)
    delay = _backoff(state, spent, number)
    restart = Restart(
        number=number,
        account=failed.account,
        scope=scope,
        tasks=tuple(task.name for task in members),
        cause=cause,
        due_at=at + delay,
        attempts_left=sum(not task.has_ended for task in members),
    )
    return restart, delay


def _group(state: JobState, account: Account) -> list[TaskState]:
    return [task for task in state.tasks.values() if task.account is account]


def _overtaken(state: JobState, restart: Restart) -> set[int]:
    """Restarts to come whose tasks start again with that one instead."""
    numbers = (state.tasks[name].restart for name in restart.tasks)
    return {number for number in numbers if number is not None}


def _backoff(state: JobState, budget: Budget, number: int) -> float:
    """Seconds: doubled with each restart that counts, less up to a quarter.

    The part is drawn by the job's id and the restart's number: the same in every replay, and
    another for each of many jobs that failed together.
    """
    import hashlib  # takes longer to import than all else here, and few jobs come to this

    doublings = min(max(budget.counted - 1, 0), _MOST_DOUBLINGS)
    longest = min(state.policy.backoff * 2.0**doublings, state.policy.backoff_max)
    drawn = hashlib.blake2b(f"{state.job_id}/{number}".encode(), digest_size=4).digest()
    return longest * (1 - _JITTER * int.from_bytes(drawn, "big") / 2**32)


def _claimed(task: TaskState, number: int) -> TaskState:
    """A task that is to start again: what runs of it is stopped."""
    phase = task.phase
    if task.has_ended:
        phase = TaskPhase.RESTARTING
    elif phase is not TaskPhase.EXITED:
        phase = TaskPhase.STOPPING
    return replace(task, restart=number, phase=phase)


def _let_go(task: TaskState) -> TaskState:
    """A task that is not to start again after all."""
    ended = task.phase is TaskPhase.RESTARTING
    return replace(task, restart=None, phase=final_phase(task) if ended else task.phase)


def _begin_if_ready(state: JobState, restart: Restart) -> Result:
    if restart.attempts_left or not restart.is_due:
        return replace(state, restarts={**state.restarts, restart.number: restart}), []
    left = {n: each for n, each in state.restarts.items() if n != restart.number}
    fresh = [state.tasks[name].next_attempt() for name in restart.tasks]
    state = replace(state, restarts=left).with_tasks(fresh)
    actions: list[Action] = []
    if state.start_timeout is not None and restart.account is Account.JOB:
        actions += [CancelTimer("start"), SetTimer("start", state.start_timeout)]
    actions += [StartTask(task.name, task.attempt, restart.cause) for task in fresh]
    return state, actions
