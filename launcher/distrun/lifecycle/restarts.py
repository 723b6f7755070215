"""Restarts after a failure: whether to restart, which tasks, and when.

A restart is planned when a task has failed. The tasks that it includes are stopped if they still
run. When nothing of their attempts is left and the backoff has passed, it is certain why they have
failed, and what that counts against: all of them start together, or the job ends.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from distrun.agent.protocol import KILL_GRACE, StopTask
from distrun.agent.protocol.causes import Cause, Code
from distrun.frozen import Frozen
from distrun.job.events import Outcome, RestartPlanned, Timer, TimerKind
from distrun.lifecycle.actions import Action, Announce, CancelTimer, MakePlan, SetTimer
from distrun.lifecycle.starts import start
from distrun.lifecycle.state import (
    JOB,
    Budget,
    EarlyFailures,
    JobPhase,
    JobState,
    Restart,
    TaskPhase,
    TaskState,
)
from distrun.spec.model import RestartSpec
from distrun.strategies import Role, Scope

if TYPE_CHECKING:
    from collections.abc import Container

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
    explained: Restart | None = None,
) -> Transition | Cause | None:
    """Stop what the strategy restarts after a failure, so that it can restart.

    Returns why there is no restart for it; None if nothing of the job restarts. `explained`: a
    planned restart after a failure that `cause` explains. The new one takes its place.
    """
    scope = _scope(state, failed)
    members = [failed] if scope is Scope.TASK else _group(state)
    former = {task.restart for task in members} | {explained.number if explained else None}
    is_free = is_taken(cause) or (explained is not None and explained.is_free)
    allowed = _allow(state, failed, cause, former, is_free=is_free)
    if allowed is None or isinstance(allowed, Cause):
        return allowed
    number = state.last_restart + 1 if explained is None else explained.number
    told = explained if explained is not None and explained.refusal is None else None
    delay = _backoff(state.job_id, allowed.policy, allowed.after, number)
    if told is not None:
        delay = max(0.0, told.due_at - at)
    restart = _restart(number, allowed.budget, scope, failed, members, cause, at + delay)
    early = _early_failures(state, failed, cause, number, former)
    restart = replace(restart, is_free=allowed.is_free, early=early)
    is_lost = scope is Scope.GROUP and signal == SIGTERM
    actions: list[Action] = []
    if allowed.before.is_timed:
        actions.append(CancelTimer(_health_timer(allowed.budget)))
        untimed = replace(state.budgets[allowed.budget], is_timed=False)
        state = replace(state, budgets={**state.budgets, allowed.budget: untimed})
    for task in members:
        if not task.has_ended and (explained is None or task.name not in explained.tasks):
            own = _grace_in_group(state, failed, task) if is_lost else grace_after(state, failed)
            actions.append(StopTask(task.name, signal, own))
    state, actions = _open(state, restart, actions, delay)
    planned = RestartPlanned(
        at=at,
        number=number,
        tasks=restart.tasks,
        cause=cause,
        delay=delay,
        is_free=allowed.is_free if told is None else told.is_free or not is_taken(cause),
        left=allowed.policy.max - allowed.after.counted,
    )
    return state, [Announce(planned), *actions]


def _group(state: JobState) -> list[TaskState]:
    """Return the tasks that restart with the group."""
    group = (task for task in state.tasks.values() if task.is_in_group)
    return [task for task in group if not state.has_finished(task)]


def _restart(
    number: int,
    budget: str,
    scope: Scope,
    failed: TaskState,
    members: list[TaskState],
    cause: Cause,
    due_at: float,
) -> Restart:
    return Restart(
        number=number,
        budget=budget,
        scope=scope,
        failed=failed.name,
        tasks=tuple(task.name for task in members),
        cause=cause,
        due_at=due_at,
        attempts_left=sum(not task.has_ended for task in members),
    )


def _open(state: JobState, restart: Restart, actions: list[Action], delay: float) -> Transition:
    """Let a restart wait for its time and the end of attempts, in place of its tasks' others."""
    members = [state.tasks[name] for name in restart.tasks]
    former = {task.restart for task in members} | {restart.number}
    state, canceled = cancel_restarts(state, state.restarts.keys() & former)
    if restart.scope is Scope.GROUP:
        state = replace(state, phase=JobPhase.RESTARTING)
        if state.timeouts.stall is not None:
            canceled.append(CancelTimer(STALL))
    restarts = {**state.restarts, restart.number: restart}
    last = max(state.last_restart, restart.number)
    state = replace(state, restarts=restarts, last_restart=last)
    state = state.with_tasks(_awaiting_restart(task, restart.number) for task in members)
    return state, [*canceled, *actions, SetTimer(_backoff_timer(restart), delay)]


def refuse_restart(
    state: JobState, failed: TaskState, cause: Cause, refusal: Outcome, at: float
) -> Transition | None:
    """Stop the group after an exit that ends the job, unless the loss of a host explains the exit.

    That is known once all other hosts have answered the order to stop, or are lost. Returns None if
    no host can explain the exit. `refusal`: how the job ends by it.
    """
    members = _group(state)
    hosts = {each.host: state.hosts.get(each.host) for each in members}
    is_doubtful = any(host is not None and host.may_explain(failed) for host in hosts.values())
    if not (is_doubtful and failed.is_in_group and state.replaces_hosts):
        return None
    pending = None if failed.restart is None else state.restarts[failed.restart]
    if pending is not None and (pending.scope is not Scope.GROUP or pending.needs_host):
        return None
    # The other processes of a host whose task was killed may be killed at this moment.
    delay = KILL_GRACE if any(each.was_killed for each in members) else 0.0
    number, budget = state.last_restart + 1, state.budget_of(failed)
    new = _restart(number, budget, Scope.GROUP, failed, members, cause, at + delay)
    restart = replace(pending or new, refusal=refusal, is_due=False, due_at=at + delay)
    grace, stops = grace_after(state, failed), [] if pending else members
    actions: list[Action] = [
        StopTask(each.name, SIGTERM, grace) for each in stops if not each.has_ended
    ]
    return _open(state, restart, actions, delay)


def early_failures(state: JobState, excluded: Container[int | None] = ()) -> EarlyFailures:
    """Return the early failures in a row, with those before planned restarts."""
    for number, restart in reversed(state.restarts.items()):
        if number not in excluded and restart.refusal is None:
            return _later(restart.early, state.early)
    return state.early


def _later(*found: EarlyFailures) -> EarlyFailures:
    return max(found, key=lambda each: each.restart)


def _early_failures(
    state: JobState, failed: TaskState, cause: Cause, number: int, excluded: Container[int | None]
) -> EarlyFailures:
    """Return the early failures in a row, with this one. `number`: of its restart."""
    last, before = max(state.last_restart, number), early_failures(state, excluded)
    if made_progress(failed):
        return EarlyFailures(restart=last)
    if is_taken(cause):
        return replace(before, restart=last)
    return EarlyFailures(before.count + 1, cause, last)


def _settle(state: JobState, restart: Restart) -> JobState:
    """Count the failure before a restart: no loss of a host can explain it any more."""
    failed, cause = state.tasks[restart.failed], restart.cause
    state = replace(state, early=_later(restart.early, state.early))
    if cause.code in (*_HOST_CODES, Code.STALLED) or is_preempted(failed):
        return state
    in_a_row = state.failures_in_a_row + 1 if failed.host == state.failing_host else 1
    return replace(state, failing_host=failed.host, failures_in_a_row=in_a_row)


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


def on_backoff_over(state: JobState, number: int) -> JobState:
    """Note that a restart's tasks may start as soon as their last attempts have ended."""
    restart = state.restarts.get(number)
    return state if restart is None else _with_restart(state, replace(restart, is_due=True))


def on_attempt_ended(state: JobState, task: TaskState) -> JobState:
    """Note for a task's restart that nothing of its last attempt is left."""
    if task.restart is None:
        return state
    restart = state.restarts[task.restart]
    return _with_restart(state, replace(restart, attempts_left=restart.attempts_left - 1))


def leave_restart(state: JobState, task: TaskState) -> JobState:
    """Have the others of its group restart without a task that has finished meanwhile."""
    state = on_attempt_ended(state, task)
    restart = state.restarts[task.restart or 0]
    left = tuple(name for name in restart.tasks if name != task.name)
    state = state.with_tasks([replace(task, restart=None)])
    return _with_restart(state, replace(restart, tasks=left))


def _with_restart(state: JobState, restart: Restart) -> JobState:
    return replace(state, restarts={**state.restarts, restart.number: restart})


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
    """A restart that a policy allows, and the name of its budget."""

    policy: RestartSpec
    budget: str
    before: Budget
    is_free: bool

    @property
    def after(self) -> Budget:
        return self.before.after(self.is_free)


def _allow(
    state: JobState,
    failed: TaskState,
    cause: Cause,
    excluded: Container[int | None] = (),
    *,
    is_free: bool = False,
) -> _Allowance | Cause | None:
    """Return what allows a restart, or why there is none; None if nothing of the job restarts.

    `excluded`: the planned restarts that it replaces.
    """
    if not state.has_restarts:
        return None
    is_stall, is_of_host = cause.code is Code.STALLED, cause.code in _HOST_CODES
    name = JOB if is_stall else state.budget_of(failed)
    policy = state.policy if is_stall else state.policy_of(failed)
    status = None if is_stall else failed.exit_status
    was_preempted = not is_stall and is_preempted(failed)
    if not is_of_host and status in policy.never_on:
        return why_excluded(state, failed)
    if not is_of_host and not policy.includes(status, is_preempted=was_preempted):
        text = ", ".join(policy.on)
        return Cause(
            Code.STATUS_NOT_INCLUDED, name=_key(state, name, "on"), status=status, text=text
        )
    leader = state.leader
    is_group = _scope(state, failed) is Scope.GROUP
    if is_group and leader is not None and state.has_finished(leader):
        return Cause(Code.LEADER_FINISHED, task=leader.name)
    before = state.budget(name, excluded)
    is_free = is_free or (is_preempted(failed) and made_progress(failed))
    is_free = is_free and before.free_in_a_row < MOST_FREE_IN_A_ROW
    if policy.max == 0 or (not is_free and before.counted >= policy.max):
        return Cause(Code.RESTART_MAX_REACHED, name=_key(state, name, "max"), count=policy.max)
    return _Allowance(policy=policy, budget=name, before=before, is_free=is_free)


def _scope(state: JobState, failed: TaskState) -> Scope:
    """Return what restarts with a task. If it needs another host, its group needs its address."""
    if failed.is_in_group and state.why_unusable(failed) is not None:
        return Scope.GROUP
    return state.rule(failed).restarts


def made_progress(task: TaskState) -> bool:
    """Whether an attempt lived long or reported a step; others could restart without end."""
    return (task.exit.lived or 0.0) >= LIVED_LONG or task.reported.get("STEP", "0") != "0"


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


def lost_link(state: JobState, restart: Restart) -> Cause | None:
    """Return why it is not known yet whether a task can start on its host; None if it is."""
    for name in restart.tasks:
        host = state.hosts.get(state.tasks[name].host)
        if host is not None and host.is_usable and host.link_lost is not None:
            return Cause(Code.HOST_NOT_PREPARED, host=host.name, within=(host.link_lost,))
    return None


def wait_for_link(state: JobState, restart: Restart, why: Cause) -> Transition:
    """Start no task on a host that may be gone. It may take `timeouts.start`."""
    state = _with_restart(state, replace(restart, waits_for_link=why))
    is_first = restart.waits_for_link is None
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


def begin_or_plan(state: JobState, restart: Restart) -> Transition:
    """Start a restart's tasks, all of whose last attempts have ended, or find hosts for them."""
    state = _settle(state, restart)
    restart = replace(restart, waits_for_link=None, is_settled=True)
    if _needs_plan(state, restart):
        return request_plan(state, restart)
    fresh = [state.tasks[name].next_attempt() for name in restart.tasks]
    state, starts = start(begin(state, restart), fresh, restart.cause)
    actions: list[Action] = []
    if state.timeouts.start is not None and restart.budget != Role.EVALUATOR.value:
        actions += [CancelTimer(START), SetTimer(START, state.timeouts.start)]
    return state, actions + starts


def begin(state: JobState, restart: Restart) -> JobState:
    """Count a restart that begins, and plan it no more."""
    left = {n: each for n, each in state.restarts.items() if n != restart.number}
    budget = state.budgets.get(restart.budget, Budget()).after(restart.is_free)
    return replace(state, restarts=left, budgets={**state.budgets, restart.budget: budget})
