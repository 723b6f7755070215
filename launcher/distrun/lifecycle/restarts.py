"""Restarts after a failure: whether to restart, which tasks, and when.

A restart is decided when a task has failed. The tasks that it includes are stopped if they still
run. When nothing of their attempts is left and the backoff has passed, all of them start together.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

from distrun.agent.protocol import KILL_GRACE, StopTask
from distrun.agent.protocol.causes import Cause, Code
from distrun.frozen import Frozen
from distrun.job.events import Outcome, RestartPlanned, Timer, TimerKind
from distrun.lifecycle.actions import Action, Announce, CancelTimer, MakePlan, SetTimer
from distrun.lifecycle.starts import start
from distrun.lifecycle.state import (
    JOB,
    Budget,
    JobPhase,
    JobState,
    Restart,
    TaskPhase,
    TaskState,
)
from distrun.spec.model import RestartSpec
from distrun.strategies import Role, Scope

Transition = tuple[JobState, list[Action]]
SIGTERM = 15
LOST_GRACE = 0.25
"""Seconds from SIGTERM to SIGKILL for a task whose attempt is lost with its group's."""
MOST_FREE_IN_A_ROW = 20
LIVED_LONG = 60.0
"""Seconds after which a preempted attempt counts as useful even if it reported no step."""
TF_PREEMPTED = 42
"""TensorFlow's exit code for a preemption."""
START, STALL = Timer(TimerKind.START), Timer(TimerKind.STALL)
_HOST_CODES = (Code.HOST_LOST, Code.HOST_FAILED, Code.TASK_NOT_STARTED)
"""Causes of restarts that say nothing about how a task exited."""
_TAKEN = (Code.POD_PREEMPTED, Code.POD_DELETED)
"""Why hosts are lost that are no failures of anything in them."""
_JITTER = 0.25
_MOST_DOUBLINGS = 62


def is_preempted(task: TaskState) -> bool:
    """Whether it was preempted: TensorFlow's exit code for that, or the end by a SIGTERM."""
    return task.exit_status in (TF_PREEMPTED, 128 + SIGTERM)


def is_taken(cause: Cause) -> bool:
    """Whether a cause is that somebody took the host away: a preemption of what ran there."""
    return cause.code in _TAKEN or any(map(is_taken, cause.within))


def grace_after(state: JobState, failed: TaskState) -> float:
    """Return the seconds that the other tasks have to end; after a preemption they save as well."""
    return state.timeouts.grace if is_preempted(failed) else KILL_GRACE


def _grace_in_group(state: JobState, failed: TaskState, stopped: TaskState) -> float:
    """Return the seconds that a task has to end whose group restarts.

    After a failure nothing of its attempt is of use any more, but for a checkpoint that it is
    just saving.
    """
    is_of_use = is_preempted(failed) or stopped.is_saving
    return grace_after(state, failed) if is_of_use else LOST_GRACE


def plan_restart(
    state: JobState,
    failed: TaskState,
    cause: Cause,
    at: float,
    signal: int = SIGTERM,
    *,
    instead_of: Restart | None = None,
) -> Transition | Cause | None:
    """Restart what the strategy restarts after a failure.

    Returns why there is no restart for it; None if nothing of the job restarts. `instead_of`: a
    planned restart after a failure that `cause` explains. If that was counted, the new one has its
    number and its due time, and is not counted again.
    """
    former = instead_of
    if instead_of is not None and not instead_of.is_counted:
        instead_of = None
    allowed = _allow(state, failed, cause, instead_of)
    if allowed is None or isinstance(allowed, Cause):
        return allowed
    restart, delay = _make_restart(state, failed, allowed, cause, at, instead_of)
    stopped = () if former is None else former.tasks
    is_lost = restart.scope is Scope.GROUP and signal == SIGTERM
    actions: list[Action] = []
    if allowed.before.is_timed:
        actions.append(CancelTimer(_health_timer(allowed.budget)))
    for task in map(state.tasks.__getitem__, restart.tasks):
        if not task.has_ended and task.name not in stopped:
            own = _grace_in_group(state, failed, task) if is_lost else grace_after(state, failed)
            actions.append(StopTask(task.name, signal, own))
    state = replace(
        state,
        budgets={**state.budgets, allowed.budget: allowed.after},
        early_failures=_early_failures(state, failed, cause, former),
        **_failures_of_host(state, failed, cause, instead_of),
    )
    state, actions = _open(state, restart, actions, delay, former)
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


def _open(
    state: JobState,
    restart: Restart,
    actions: list[Action],
    delay: float,
    former: Restart | None = None,
) -> Transition:
    """Let a restart wait for its time and the end of attempts, in place of its tasks' others."""
    members = [state.tasks[name] for name in restart.tasks]
    superseded = {task.restart for task in members} | {None if former is None else former.number}
    state, canceled = cancel_restarts(state, state.restarts.keys() & superseded)
    if restart.scope is Scope.GROUP:
        state = replace(state, phase=JobPhase.RESTARTING)
        if state.timeouts.stall is not None:
            canceled.append(CancelTimer(STALL))
    state = replace(state, restarts={**state.restarts, restart.number: restart})
    state = state.with_tasks(_awaiting_restart(task, restart.number) for task in members)
    return state, [*canceled, *actions, SetTimer(_backoff_timer(restart), delay)]


def _early_failures(
    state: JobState, failed: TaskState, cause: Cause, former: Restart | None
) -> tuple[Cause, ...]:
    """Return the early failures in a row, without one that `cause` explains: see `instead_of`."""
    others = state.early_failures if former is None else state.early_failures[:-1]
    if made_progress(failed):
        return ()
    return others if is_taken(cause) else (*others, cause)


def refuse_restart(
    state: JobState, failed: TaskState, cause: Cause, refusal: Outcome, at: float
) -> Transition | None:
    """Stop the group after an exit that ends the job, unless the loss of a host explains the exit.

    That is known once all other hosts have answered the order to stop, or are lost. Returns None if
    no host can explain the exit. `refusal`: how the job ends by it.
    """
    members = [each for each in state.tasks.values() if each.is_in_group]
    members = [each for each in members if not state.has_finished(each)]
    hosts = {each.host: state.hosts.get(each.host) for each in members}
    is_doubtful = any(host is not None and host.may_explain(failed) for host in hosts.values())
    if not (is_doubtful and failed.is_in_group and state.replaces_hosts):
        return None
    # The other processes of a host whose task was killed may be killed at this moment.
    delay = KILL_GRACE if any(each.was_killed for each in members) else 0.0
    pending = None if failed.restart is None else state.restarts[failed.restart]
    if pending is not None and (pending.scope is not Scope.GROUP or pending.needs_host):
        return None
    if pending is not None:
        refused = replace(pending, refusal=refusal, is_due=False, due_at=at + delay)
        state = replace(state, restarts={**state.restarts, pending.number: refused})
        timer = _backoff_timer(pending)
        return state, [CancelTimer(timer), SetTimer(timer, delay)]
    restart = Restart(
        number=0,
        budget=state.budget_of(failed),
        scope=Scope.GROUP,
        tasks=tuple(each.name for each in members),
        cause=cause,
        due_at=at + delay,
        attempts_left=sum(not each.has_ended for each in members),
        refusal=refusal,
    )
    grace = grace_after(state, failed)
    stops: list[Action] = [
        StopTask(each.name, SIGTERM, grace) for each in members if not each.has_ended
    ]
    return _open(state, restart, stops, delay)


def _failures_of_host(
    state: JobState, failed: TaskState, cause: Cause, instead_of: Restart | None
) -> dict[str, Any]:
    """Count the failures in a row of tasks on the same host, without those that are explained."""
    if instead_of is not None:
        first = state.tasks[instead_of.cause.task]
        is_counted = first.host == state.failing_host and not is_preempted(first)
        return {"failures_in_a_row": max(0, state.failures_in_a_row - is_counted)}
    if cause.code in (*_HOST_CODES, Code.STALLED) or is_preempted(failed):
        return {}
    in_a_row = state.failures_in_a_row + 1 if failed.host == state.failing_host else 1
    return {"failing_host": failed.host, "failures_in_a_row": in_a_row}


def why_not_restarted(state: JobState, failed: TaskState) -> Cause | None:
    """Return why a task that has failed is not restarted; None if nothing of the job restarts."""
    if failed.reason is not None:
        return Cause(Code.RESTART_NOT_APPLICABLE) if state.has_restarts else None
    found = _allow(state, failed, Cause(Code.TASK_EXITED))
    return found if isinstance(found, Cause) else None


def why_excluded(state: JobState, failed: TaskState) -> Cause:
    """Return the reason if `never_on` has the exit code of a task."""
    name = _key(state, state.budget_of(failed), "never_on")
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
    state = replace(state, failures_in_a_row=0, failing_host="")
    return replace(state, budgets={**state.budgets, name: healthy})


def _backoff_timer(restart: Restart) -> Timer:
    return Timer(TimerKind.RESTART, str(restart.number))


def _health_timer(budget: str) -> Timer:
    return Timer(TimerKind.HEALTH, budget)


def _key(state: JobState, budget: str, name: str) -> str:
    """The key of the spec that decides for a budget, as `restart.max`."""
    is_own = budget in state.role_policies
    return f"cluster.{budget}.restart.{name}" if is_own else f"restart.{name}"


class _Allowance(Frozen, kw_only=True):
    """A restart that a policy allows: the name of its budget, before and after it."""

    policy: RestartSpec
    budget: str
    before: Budget
    after: Budget


def _allow(
    state: JobState, failed: TaskState, cause: Cause, instead_of: Restart | None = None
) -> _Allowance | Cause | None:
    """Return what allows a restart, or why there is none; None if nothing of the job restarts."""
    if not state.has_restarts:
        return None
    is_stall, is_of_host = cause.code is Code.STALLED, cause.code in _HOST_CODES
    name = JOB if is_stall else state.budget_of(failed)
    policy = state.policy if is_stall else state.policy_of(failed)
    status = None if is_stall else failed.exit_status
    if not is_of_host and status in policy.never_on:
        return why_excluded(state, failed)
    if not is_of_host and not policy.includes(
        status, is_preempted=not is_stall and is_preempted(failed)
    ):
        text = ", ".join(policy.on)
        return Cause(
            Code.STATUS_NOT_INCLUDED, name=_key(state, name, "on"), status=status, text=text
        )
    leader = state.leader
    is_group = _scope(state, failed) is Scope.GROUP
    if is_group and leader is not None and state.has_finished(leader):
        return Cause(Code.LEADER_FINISHED, task=leader.name)
    if instead_of is not None:
        name = instead_of.budget
        policy = state.role_policies.get(name, state.policy)
    before = state.budgets.get(name, Budget())
    after: Budget | None = before
    if instead_of is None:
        after = _charged(policy, before, failed, is_free=is_taken(cause))
    elif is_taken(cause) and before.counted:  # what it explains was no failure
        free = before.free_in_a_row + 1
        after = replace(before, counted=before.counted - 1, free_in_a_row=free)
    if after is None:
        return Cause(Code.RESTART_MAX_REACHED, name=_key(state, name, "max"), count=policy.max)
    return _Allowance(policy=policy, budget=name, before=before, after=after)


def _scope(state: JobState, failed: TaskState) -> Scope:
    """Return what restarts with a task. If it needs another host, its group needs its address."""
    if failed.is_in_group and state.why_unusable(failed) is not None:
        return Scope.GROUP
    return state.rule(failed).restarts


def _charged(
    policy: RestartSpec, budget: Budget, failed: TaskState, *, is_free: bool
) -> Budget | None:
    """Return the budget after one more restart; None if it does not allow one."""
    if policy.max == 0:
        return None
    free = budget.free_in_a_row + 1
    is_free = is_free or (is_preempted(failed) and made_progress(failed))
    if is_free and free <= MOST_FREE_IN_A_ROW:
        return Budget(total=budget.total + 1, counted=budget.counted, free_in_a_row=free)
    if budget.counted < policy.max:
        return Budget(total=budget.total + 1, counted=budget.counted + 1)
    return None


def made_progress(task: TaskState) -> bool:
    """Whether an attempt lived long or reported a step; others could restart without end."""
    return (task.exit.lived or 0.0) >= LIVED_LONG or task.reported.get("STEP", "0") != "0"


def _make_restart(
    state: JobState,
    failed: TaskState,
    allowed: _Allowance,
    cause: Cause,
    at: float,
    instead_of: Restart | None,
) -> tuple[Restart, float]:
    """Return the restart, and its backoff in seconds."""
    scope = _scope(state, failed)
    members = [failed]
    if scope is not Scope.TASK:
        members = [
            task
            for task in state.tasks.values()
            if task.is_in_group and not state.has_finished(task)
        ]
    if instead_of is None:
        number = sum(each.total for each in state.budgets.values()) + 1
        delay = _backoff(state.job_id, allowed.policy, allowed.after, number)
    else:
        number, delay = instead_of.number, max(0.0, instead_of.due_at - at)
    restart = Restart(
        number=number,
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
    doublings = min(max(budget.counted - 1, 0), _MOST_DOUBLINGS)
    longest = min(policy.backoff * 2.0**doublings, policy.backoff_max)
    drawn = zlib.crc32(f"{job_id}/{number}".encode("utf-8", "surrogateescape"))
    return longest * (1 - _JITTER * drawn / 2**32)


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
    return replace(task, restart=None, phase=task.final_phase if ended else task.phase)


def request_plan(state: JobState, restart: Restart) -> Transition:
    """Have the supervisor find hosts. It may take `timeouts.start`, with waiting for a host."""
    actions: list[Action] = []
    is_first = restart.waits_for_host is None
    if is_first and state.timeouts.start is not None and state.requires(restart):
        actions += [CancelTimer(START), SetTimer(START, state.timeouts.start)]
    avoid = state.host_to_avoid
    avoided = () if avoid is None else (avoid,)
    actions.append(MakePlan(restart=restart.number, tasks=restart.tasks, avoid=avoided))
    restart = replace(restart, is_planning=True)
    return replace(state, restarts={**state.restarts, restart.number: restart}), actions


def on_link_settled(state: JobState) -> Transition:
    """Begin the restarts that waited for links which are restored, or whose hosts are lost."""
    actions: list[Action] = []
    for number, restart in list(state.restarts.items()):
        if restart.waits_for_link is not None and number in state.restarts:
            state, more = _start_if_ready(state, restart)
            actions += more
    return state, actions


def _lost_link(state: JobState, restart: Restart) -> Cause | None:
    """Return why it is not known yet whether a task can start on its host; None if it is."""
    for name in restart.tasks:
        host = state.hosts.get(state.tasks[name].host)
        if host is not None and host.is_usable and host.link_lost is not None:
            return Cause(Code.HOST_NOT_PREPARED, host=host.name, within=(host.link_lost,))
    return None


def _wait_for_link(state: JobState, restart: Restart, why: Cause) -> Transition:
    """Start no task on a host that may be gone. It may take `timeouts.start`."""
    is_first = restart.waits_for_link is None
    waiting = replace(restart, waits_for_link=why)
    state = replace(state, restarts={**state.restarts, restart.number: waiting})
    if not is_first or state.timeouts.start is None or not state.requires(restart):
        return state, []
    return state, [CancelTimer(START), SetTimer(START, state.timeouts.start)]


def _needs_plan(state: JobState, restart: Restart) -> bool:
    """Whether a restart's tasks need other hosts, or there may be more workers again."""
    if not state.replaces_hosts:
        return False
    tasks = [state.tasks[name] for name in restart.tasks]
    is_group = restart.scope is Scope.GROUP
    return (
        any(state.why_unusable(task) is not None or state.has_new_agent(task) for task in tasks)
        or any(task.host == state.host_to_avoid for task in tasks)
        or (is_group and state.worker_count < state.all_workers)
    )


def _start_if_ready(state: JobState, restart: Restart) -> Transition:
    if restart.attempts_left or not restart.is_due:
        return replace(state, restarts={**state.restarts, restart.number: restart}), []
    why = _lost_link(state, restart)
    if why is not None:
        return _wait_for_link(state, restart, why)
    restart = replace(restart, waits_for_link=None)
    if restart.refusal is not None:
        return replace(state, restarts={**state.restarts, restart.number: restart}), []
    if _needs_plan(state, restart):
        return request_plan(state, restart)
    left = {n: each for n, each in state.restarts.items() if n != restart.number}
    fresh = [state.tasks[name].next_attempt() for name in restart.tasks]
    state, starts = start(replace(state, restarts=left), fresh, restart.cause)
    actions: list[Action] = []
    if state.timeouts.start is not None and restart.budget != Role.EVALUATOR.value:
        actions += [CancelTimer(START), SetTimer(START, state.timeouts.start)]
    return state, actions + starts
