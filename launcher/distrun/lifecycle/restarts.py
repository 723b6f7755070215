"""What follows from a failure: whether tasks restart, which, and when.

A failure opens an incident. The tasks that restart with it are stopped at once if they still run.
The loss of a host that explains the failure joins the incident. When nothing of their attempts is
left, all links are restored or lost, and the backoff has passed, it is certain why they have
failed, and what that counts against: all of them start together, or the job ends.
"""

from __future__ import annotations

import zlib

from distrun.agent.protocol import KILL_GRACE, Cause, Code, StopTask
from distrun.frozen import Frozen, replace
from distrun.job.events import HostLeftOut, Outcome, RestartPlanned, TimedOut, Timer, TimerKind
from distrun.lifecycle.actions import Action, Announce, MakePlan, SetTimer
from distrun.lifecycle.starts import start
from distrun.lifecycle.state import (
    JOB,
    Budget,
    EarlyFailures,
    Incident,
    JobPhase,
    JobState,
    TaskPhase,
    TaskState,
)
from distrun.spec.restart_spec import RestartSpec
from distrun.strategies import Role, Scope

Transition = tuple[JobState, list[Action]]
SIGABRT, SIGTERM = 6, 15
LOST_GRACE = 0.25
"""Seconds from SIGTERM to SIGKILL for a task whose attempt is lost with its group's."""
MOST_FREE_IN_A_ROW = 20
LIVED_LONG = 60.0
"""Seconds after which a preempted attempt counts as useful even if it reported no step."""
TF_PREEMPTED = 42
"""TensorFlow's exit code for a preemption."""
START, STALL = Timer(TimerKind.START), Timer(TimerKind.STALL)
HOST_CODES = (Code.HOST_LOST, Code.HOST_FAILED, Code.TASK_NOT_STARTED)
"""Causes of restarts that say nothing about how a task exited."""
SLURM_STOPS = (
    *(Code.SLURM_CANCELLED, Code.SLURM_TIME_LIMIT, Code.SLURM_PREEMPTED),
    Code.SLURM_ALLOCATION_ENDS,
)
"""Why Slurm signals all processes of a job at once."""
_HOST_PREEMPTIONS = (Code.POD_PREEMPTED, Code.POD_DELETED, *SLURM_STOPS)
"""Causes of the loss of a host that was taken away, for example preempted."""
_OWN_SIGNALS = (Code.PREEMPTED, Code.EXITED_AFTER_EXCEPTION)
"""With a path: a line of a shell script that sends the signal to the script's own processes."""
_VERDICT_SECONDS = 1.0
"""How long it takes at most to see whether a failure is the same as the one before."""
_JITTER = 0.25
_MOST_DOUBLINGS = 62


def is_preempted(task: TaskState) -> bool:
    """Whether it was preempted: TensorFlow's exit code for that, or the end by a SIGTERM."""
    return task.exit_status in (TF_PREEMPTED, 128 + SIGTERM)


def is_host_preempted(cause: Cause) -> bool:
    """Whether a cause is that somebody took the host away, which preempts its tasks."""
    return cause.code in _HOST_PREEMPTIONS or any(map(is_host_preempted, cause.within))


def grace_after(state: JobState, failed: TaskState, cause: Cause | None = None) -> float:
    """Return the seconds that the other tasks have to end; after a preemption they save as well."""
    return state.timeouts.grace if _was_taken(failed, cause) else KILL_GRACE


def _was_taken(failed: TaskState, cause: Cause | None) -> bool:
    return is_preempted(failed) or (cause is not None and is_host_preempted(cause))


class Decision(Frozen, kw_only=True):
    """What a policy makes of a failure: a restart, or the reason why there is none."""

    failed: TaskState
    cause: Cause
    scope: Scope
    policy: RestartSpec
    budget: str
    """The name of the budget that a restart counts against."""
    before: Budget
    """That budget after all other planned restarts, but for those that this one replaces."""
    is_free: bool
    joined: Incident | None = None
    """The incident that it joins, such as one that the loss of a host explains."""
    is_allowed: bool = False
    why_not: Cause | None = None
    """Why there is no restart. None, too, if nothing of the job restarts."""


def decide(
    state: JobState, failed: TaskState, cause: Cause, joined: Incident | None = None
) -> Decision:
    """Decide what restarts after a failure, and what that counts against."""
    is_stall, scope = cause.code is Code.STALLED, scope_of(state, failed)
    replaced = _replaced(_members(state, failed, scope), joined)
    others = {key: each for key, each in state.incidents.items() if key not in replaced}
    budget = JOB if is_stall else state.budget_of(failed)
    before = replace(state, incidents=others).budget(budget)
    was_taken = is_host_preempted(cause) or (joined is not None and joined.is_free)
    last = None if state.verdict is None else state.verdict.cause
    by_itself = last is not None and last.code in _OWN_SIGNALS and last.path != ""
    is_preemption = is_preempted(failed) and not by_itself
    is_free = was_taken or (is_preemption and made_progress(failed))
    decision = Decision(
        failed=failed,
        cause=cause,
        scope=scope,
        policy=state.policy if is_stall else state.policy_of(failed),
        budget=budget,
        before=before,
        is_free=is_free and before.free_in_a_row < MOST_FREE_IN_A_ROW,
        joined=joined,
    )
    why_not = _why_not(state, decision) if state.has_restarts else None
    return replace(decision, is_allowed=state.has_restarts and why_not is None, why_not=why_not)


def _why_not(state: JobState, decision: Decision) -> Cause | None:
    """Return why a policy allows no restart."""
    failed, policy, name = decision.failed, decision.policy, decision.budget
    is_stall = decision.cause.code is Code.STALLED
    status = None if is_stall else failed.exit_status
    if decision.cause.code not in HOST_CODES:
        if status in policy.never_on:
            key = _key(state, name, "never_on")
            return Cause(Code.STATUS_EXCLUDED, name=key, status=status)
        if not policy.includes(status, is_preempted=not is_stall and is_preempted(failed)):
            key, text = _key(state, name, "on"), ", ".join(policy.on)
            return Cause(Code.STATUS_NOT_INCLUDED, name=key, status=status, text=text)
    leader = state.leader
    if decision.scope is Scope.GROUP and leader is not None and state.has_finished(leader):
        return Cause(Code.LEADER_FINISHED, task=leader.name)
    is_used_up = not decision.is_free and decision.before.counted >= policy.max
    if policy.max == 0 or is_used_up:
        return Cause(Code.RESTART_MAX_REACHED, name=_key(state, name, "max"), count=policy.max)
    return None


def _members(state: JobState, failed: TaskState, scope: Scope) -> list[TaskState]:
    if scope is Scope.TASK:
        return [failed]
    tasks, after = state.tasks.values(), _roles_after(state, failed)
    has_group = failed.is_in_group or any(task.is_in_group and task.role in after for task in tasks)

    def restarts_with(task: TaskState) -> bool:
        if task.is_in_group:
            return has_group and not state.has_finished(task)
        is_lost = task.role is failed.role and state.why_unusable(task) is not None
        return (
            is_lost or task.name == failed.name or (task.role in after and not task.phase.is_final)
        )

    found = {task.name: task.restart for task in tasks if restarts_with(task)}
    # Of an incident whose place this one takes, all tasks restart.
    numbers = {*found.values()} - {None}
    return [task for task in tasks if task.name in found or task.restart in numbers]


def _roles_after(state: JobState, failed: TaskState) -> set[Role]:
    """Return the roles that know what changes, as they start after a custom one or the group.

    Addresses of the group change only if it must move; an evaluator does not know them.
    """
    found: set[Role] = set()
    more = {failed.role} if failed.role.is_custom else found
    if failed.is_in_group:
        is_moving = state.why_unusable(failed) is not None
        more = {task.role for task in state.tasks.values() if task.is_in_group and is_moving}
    while more:
        more = {task.role for task in state.tasks.values() if more & {*task.after}} - found
        found |= more
    return found - ({Role.EVALUATOR} if failed.is_in_group else set())


def _replaced(members: list[TaskState], joined: Incident | None) -> set[int | None]:
    """Return the numbers of the incidents whose place a further one takes."""
    return {task.restart for task in members} | {None if joined is None else joined.number}


def open_incident(
    state: JobState, decision: Decision, at: float, refusal: Outcome | None = None
) -> Transition:
    """Stop at once the tasks that a failure takes along. They restart once they have ended.

    `refusal`: how the job ends instead, unless the loss of a host explains the failure until then.
    """
    failed, policy, joined = decision.failed, decision.policy, decision.joined
    members = _members(state, failed, decision.scope)
    after = decision.before.after(decision.is_free)
    number = state.last_restart + 1 if joined is None else joined.number
    announced = joined if joined is not None and joined.refusal is None else None
    last = max(state.last_restart, number)
    early = _with_failure(state, failed, decision.cause, last)
    is_again = early.count > 1  # then the verdict may end the restarts
    delay = max(_backoff(state.job_id, policy, after, number), is_again * _VERDICT_SECONDS)
    if refusal is not None:
        # The other processes of a host whose task was killed may be killed at this moment.
        delay = KILL_GRACE if any(each.was_killed for each in members) else 0.0
    elif announced is not None:
        delay = max(0.0, announced.due_at - at)
    replaced = state.incidents.keys() & _replaced(members, joined)
    state, actions = cancel_incidents(state, replaced)
    incident = Incident(
        number=number,
        budget=decision.budget,
        scope=decision.scope,
        failed=failed.name,
        tasks=tuple(task.name for task in members),
        cause=decision.cause,
        due_at=at + delay,
        attempts_left=sum(not task.has_ended for task in members),
        is_free=decision.is_free and refusal is None,
        early=early,
        refusal=refusal,
    )
    if refusal is not None and joined is not None:
        incident = replace(joined, refusal=refusal, is_due=False, due_at=at + delay)
    if incident.scope is Scope.GROUP:
        state = replace(state, phase=JobPhase.RESTARTING)
        if state.timeouts.stall is not None:
            actions.append(SetTimer(STALL, None))
    if refusal is None and decision.before.is_timed:
        actions.append(SetTimer(_health_timer(decision.budget), None))
        untimed = replace(state.budgets[decision.budget], is_timed=False)
        state = replace(state, budgets={**state.budgets, decision.budget: untimed})
    is_stall = decision.cause.code is Code.STALLED  # SIGABRT has Python print its stacks
    is_lost = decision.scope is Scope.GROUP and not is_stall and refusal is None
    is_lost = is_lost and not _was_taken(failed, decision.cause)
    grace = grace_after(state, failed, decision.cause)
    for task in members:
        if not task.has_ended and (joined is None or task.name not in joined.tasks):
            own = LOST_GRACE if is_lost and not task.is_saving else grace
            actions.append(StopTask(task.name, SIGABRT if is_stall else SIGTERM, own))
    actions.append(SetTimer(_backoff_timer(incident), delay))
    state = replace(state.with_incident(incident), last_restart=last)
    state = state.with_tasks(_awaiting_restart(task, number) for task in members)
    if refusal is not None:
        return state, actions
    planned = RestartPlanned(
        at=at,
        number=number,
        tasks=incident.tasks,
        cause=decision.cause,
        delay=delay,
        is_free=decision.is_free
        if announced is None
        else announced.is_free or not is_host_preempted(decision.cause),
        left=policy.max - after.counted,
    )
    return state, [Announce(planned), *actions]


def may_be_explained(state: JobState, failed: TaskState) -> bool:
    """Whether an exit may follow from the loss of a host, which is known once all have stopped."""
    pending = state.incident_of(failed)
    if pending is not None and (pending.scope is not Scope.GROUP or pending.needs_host):
        return False
    hosts = {each.host for each in _members(state, failed, Scope.GROUP)}
    known = [state.hosts[name] for name in hosts if name in state.hosts]
    is_open = failed.is_in_group and state.replaces_hosts
    return is_open and any(host.may_explain(failed) for host in known)


def early_failures(state: JobState) -> EarlyFailures:
    """Return the early failures in a row, with those before planned restarts."""
    for incident in reversed(state.incidents.values()):
        if incident.refusal is None:
            return _later(incident.early, state.early)
    return state.early


def _later(*found: EarlyFailures) -> EarlyFailures:
    return max(found, key=lambda each: each.restart)


def _with_failure(state: JobState, failed: TaskState, cause: Cause, last: int) -> EarlyFailures:
    """Return the early failures in a row, with this one. `last`: the number of the last restart."""
    before, reached = early_failures(state), _reached(failed)
    if lived_long(failed):
        return EarlyFailures(restart=last)
    if is_host_preempted(cause):
        return replace(before, restart=last)
    # The first attempts of several tasks may fail at the same time, and the second ones not.
    is_again = failed.attempt > failed.first_attempt
    count = max(1, before.count + is_again) if reached == before.reached else 1
    return EarlyFailures(count, cause, last, reached)


def _settle(state: JobState, incident: Incident) -> JobState:
    """Count the failure before a restart: no loss of a host can explain it any more."""
    failed, cause = state.tasks[incident.failed], incident.cause
    state = replace(state, early=_later(incident.early, state.early))
    is_of_no_host = cause.code in (*HOST_CODES, Code.STALLED) or is_preempted(failed)
    if is_of_no_host or not state.needs(failed):
        return state
    in_a_row = state.failures_in_a_row + 1 if failed.host == state.failing_host else 1
    state = replace(state, failing_budget=incident.budget, failures_in_a_row=in_a_row)
    return replace(state, failing_host=failed.host)


def why_not_restarted(state: JobState, failed: TaskState) -> Cause | None:
    """Return why a task that has failed is not restarted; None if nothing of the job restarts."""
    if failed.reason is not None:
        return Cause(Code.RESTART_NOT_APPLICABLE) if state.has_restarts else None
    return decide(state, failed, Cause(Code.TASK_EXITED)).why_not


def on_backoff_over(state: JobState, event: TimedOut) -> Transition:
    """Note that a restart's tasks may start as soon as their last attempts have ended."""
    incident = state.incidents.get(int(event.timer.key))
    return state if incident is None else state.with_incident(replace(incident, is_due=True)), []


def on_attempt_ended(state: JobState, task: TaskState) -> JobState:
    """Note for a task's restart that nothing of its last attempt is left."""
    if task.restart is None:
        return state
    incident = state.incidents[task.restart]
    return state.with_incident(replace(incident, attempts_left=incident.attempts_left - 1))


def leave_restart(state: JobState, task: TaskState) -> Transition:
    """Have the others of its group, if there are any, restart without this task."""
    state = on_attempt_ended(state, task)
    incident = state.incidents[task.restart or 0]
    left = tuple(name for name in incident.tasks if name != task.name)
    if not left:
        return cancel_incidents(state, {incident.number})
    state = state.with_tasks([replace(task, restart=None)])
    return state.with_incident(replace(incident, tasks=left)), []


def cancel_incidents(state: JobState, numbers: set[int]) -> Transition:
    """Cancel restarts that have not begun. Tasks that have ended keep the result of that end."""
    canceled = [state.incidents[number] for number in sorted(numbers)]
    left = {number: each for number, each in state.incidents.items() if number not in numbers}
    state = replace(state, incidents=left).with_tasks(
        _without_restart(state.tasks[name]) for incident in canceled for name in incident.tasks
    )
    return state, [SetTimer(_backoff_timer(incident), None) for incident in canceled]


def start_health_timers(state: JobState) -> Transition:
    """Start the timers of `restart.reset_after` once everything that restarted runs again."""
    actions: list[Action] = []
    restarting = {incident.budget for incident in state.incidents.values()}
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


def reset_budget(state: JobState, event: TimedOut) -> Transition:
    """Count restarts from 0 again: there was no failure for `restart.reset_after`."""
    name = event.timer.key
    healthy = Budget(total=state.budgets[name].total)
    if name == state.failing_budget:
        state = replace(state, failures_in_a_row=0, failing_host="")
    return replace(state, budgets={**state.budgets, name: healthy}), []


def _backoff_timer(incident: Incident) -> Timer:
    return Timer(TimerKind.RESTART, str(incident.number))


def _health_timer(budget: str) -> Timer:
    return Timer(TimerKind.HEALTH, budget)


def _key(state: JobState, budget: str, name: str) -> str:
    """The key of the spec that decides for a budget, as `restart.max`."""
    is_own = budget in state.role_policies
    return f"cluster.{budget}.restart.{name}" if is_own else f"restart.{name}"


def scope_of(state: JobState, failed: TaskState) -> Scope:
    """Return what restarts with a task. If it needs another host, others need its address."""
    is_known = failed.is_in_group or bool(_roles_after(state, failed))
    if is_known and state.why_unusable(failed) is not None:
        return Scope.GROUP
    return state.rule(failed).restarts


def made_progress(task: TaskState) -> bool:
    """Whether an attempt lived long or reported a step, or an epoch and what came of it."""
    values = task.reported
    has_epoch = "EPOCH" in values and bool(values.keys() - {"EPOCH", "EPOCHS", "ETA", "SAVING"})
    has_moved = values.get("STEP", "0") != "0" or ("STEP" not in values and has_epoch)
    return has_moved or lived_long(task)


def lived_long(task: TaskState) -> bool:
    return (task.exit.lived or 0.0) >= LIVED_LONG


def came_further(task: TaskState, place: tuple[float, float]) -> bool:
    """Whether an attempt lived long or came further than to this epoch and step."""
    return lived_long(task) or _reached(task) > place


def _reached(task: TaskState) -> tuple[float, float]:
    """Return the last epoch and step that an attempt reported; zeros if it made no progress."""
    try:
        epoch, step = (float(task.reported.get(key, 0)) for key in ("EPOCH", "STEP"))
    except ValueError:
        epoch, step = 0.0, 0.0
    return (epoch, step) if made_progress(task) else (0.0, 0.0)


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
    ended = task.phase is TaskPhase.RESTARTING
    return replace(task, restart=None, phase=task.final_phase if ended else task.phase)


def start_timer(state: JobState) -> list[Action]:
    """Return the timer of `timeouts.start`, if that is set: it starts, perhaps again."""
    seconds = state.timeouts.start
    return [] if seconds is None else [SetTimer(START, seconds)]


def request_plan(state: JobState, incident: Incident) -> Transition:
    """Have the supervisor find hosts. It may take `timeouts.start`, with waiting for a host."""
    is_first = incident.waits_for_host is None or state.is_queued
    actions = start_timer(state) if is_first and state.requires(incident) else []
    actions.append(MakePlan(restart=incident.number, tasks=incident.tasks))
    return state.with_incident(replace(incident, is_planning=True)), actions


def wait_for_link(state: JobState, incident: Incident) -> Transition | None:
    """Start no task on a host that may be gone. It may take `timeouts.start`; None: none may be."""
    for name in incident.tasks:
        host = state.hosts.get(state.tasks[name].host)
        if host is not None and host.is_usable and host.link_lost is not None:
            why = Cause(Code.HOST_NOT_PREPARED, host=host.name, within=(host.link_lost,))
            is_first = incident.waits_for_link is None
            actions = start_timer(state) if is_first and state.requires(incident) else []
            return state.with_incident(replace(incident, waits_for_link=why)), actions
    return None


def _needs_plan(state: JobState, incident: Incident) -> bool:
    """Whether a restart's tasks need other hosts, or there may be more workers again."""
    if not state.replaces_hosts:
        return False
    tasks = [state.tasks[name] for name in incident.tasks]
    is_group = incident.scope is Scope.GROUP
    return any(
        state.why_unusable(task) is not None or state.has_new_agent(task) for task in tasks
    ) or (is_group and state.worker_count < state.all_workers)


def _leave_out(state: JobState, incident: Incident, cause: Cause, at: float) -> Transition:
    """Leave out a host on which tasks fail; those that know addresses there restart, too."""
    left = state.with_host(replace(state.hosts[cause.host], left_out=cause))
    actions: list[Action] = [Announce(HostLeftOut(at=at, host=cause.host, cause=cause))]
    failed = left.tasks[incident.failed]
    decision = decide(left, failed, incident.cause, incident)
    members = _members(left, failed, decision.scope)
    if decision.is_allowed and any(task.name not in incident.tasks for task in members):
        state, more = open_incident(left, decision, at)
    else:
        state, more = request_plan(_settle(left, incident), incident)
    return state, actions + more


def begin_or_plan(state: JobState, incident: Incident, at: float) -> Transition:
    """Start a restart's tasks, all of whose last attempts have ended, or find hosts for them."""
    incident = replace(incident, waits_for_link=None)
    before, state = state, _settle(state, incident)
    host = state.host_to_avoid
    is_there = any(state.tasks[name].host == host for name in incident.tasks)
    if host is not None and is_there and state.has_room_beside(host):
        cause = Cause(Code.HOST_FAILS_TASKS, host=host, count=state.failures_in_a_row)
        return _leave_out(before, incident, cause, at)
    if _needs_plan(state, incident):
        return request_plan(state, incident)
    fresh = [state.tasks[name].next_attempt(is_restart=True) for name in incident.tasks]
    state, starts = start(begin(state, incident), fresh, incident.cause)
    is_of_evaluator = incident.budget == Role.EVALUATOR.value
    return state, starts if is_of_evaluator else [*start_timer(state), *starts]


def begin(state: JobState, incident: Incident) -> JobState:
    """Count a restart that begins, and plan it no more."""
    left = {n: each for n, each in state.incidents.items() if n != incident.number}
    budget = state.budgets.get(incident.budget, Budget()).after(incident.is_free)
    return replace(state, incidents=left, budgets={**state.budgets, incident.budget: budget})
