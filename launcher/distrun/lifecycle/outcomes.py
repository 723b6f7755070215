"""How a job succeeds or fails, and how its remaining tasks are stopped then."""

from __future__ import annotations

from distrun.agent.protocol import KILL_GRACE, Cause, Code, StopTask
from distrun.errors import HostError, InternalError, StartTimeoutError
from distrun.frozen import replace
from distrun.job.events import Origin, Outcome, Result, TimedOut, Timer, TimerKind
from distrun.lifecycle import restarts
from distrun.lifecycle.actions import Action, Finish, SetTimer
from distrun.lifecycle.restarts import SIGABRT, SIGTERM, STALL, START, Decision, Transition
from distrun.lifecycle.starts import unready
from distrun.lifecycle.state import Incident, JobPhase, JobState, TaskPhase, TaskState
from distrun.strategies import Role, Scope
from distrun.verdict.model import Kind, Verdict

_REFUSALS = (Code.STATUS_EXCLUDED, Code.STATUS_NOT_INCLUDED)
"""Why an exit leads to no restart, although the loss of a host at that time would."""
_LIVE_KINDS = (Kind.UNRESPONSIVE, Kind.PROXY)
"""Verdicts on tasks that still ran when distrun stopped them."""
_OF_HOSTS = (Code.TASKS_LOST_WITH_HOST, Code.HOST_LOST, Code.HOST_FAILED)

_MOST_NAMED = 3
EVALUATOR = Timer(TimerKind.EVALUATOR)
_RUN = Timer(TimerKind.RUN)
_ABORT = Timer(TimerKind.ABORT)
_STOPPED_FROM = {
    TaskPhase.WAITING: TaskPhase.STOPPED,
    TaskPhase.STARTING: TaskPhase.STOPPING,
    TaskPhase.RUNNING: TaskPhase.STOPPING,
}
"""The phase after an order to stop."""


def on_exit(state: JobState, task: TaskState, at: float) -> Transition:
    """Handle the exit of a task that distrun did not stop."""
    is_named = state.success.waits_for(task.role, task.index)
    early = state.rule(task).serves and task.code == 0 and not is_named
    if not task.has_failed_exit and not early:
        return _on_exit_0(state, task, at)
    decision = restarts.decide(state, task, exit_cause(state, task))
    if decision.is_allowed:
        return restarts.open_incident(state, decision, at)
    if not state.needs(task):
        return state, []
    return _end_by(state, decision, at, restarts.grace_after(state, task))


def _end_by(state: JobState, decision: Decision, at: float, grace: float) -> Transition:
    """End the job by an exit that leads to no restart, unless the loss of a host may explain it."""
    task, why = decision.failed, decision.why_not
    outcome = _failure(state, task, why)
    is_refused = why is not None and why.code in _REFUSALS
    if not is_refused or not restarts.may_be_explained(state, task):
        return end_job(state, outcome, grace=grace)
    of_group = replace(decision, scope=Scope.GROUP, joined=state.incident_of(task))
    return restarts.open_incident(state, of_group, at, refusal=outcome)


def _on_exit_0(state: JobState, task: TaskState, at: float) -> Transition:
    """Handle an exit 0 that is not a failure: the job has succeeded, or the task starts again."""
    if state.undone and state.repeats(task):
        again = restarts.decide(state, task, Cause(Code.TASK_EXITED, task=task.name, status=0))
        if again.is_allowed:
            return restarts.open_incident(state, again, at)
    return _succeed_if_done(state)


def on_exit_before_restart(state: JobState, task: TaskState, at: float) -> Transition:
    """Ignore the exit of a task that is about to restart, unless `restart.never_on` forbids it.

    The task's own failure may be the first cause, and the failure that was noticed first its echo.
    A task that has finished does not restart.
    """
    if state.has_finished(task):
        return _on_finish_before_restart(state, task)
    incident = state.incident_of(task)
    if incident is not None:
        cause = incident.cause
        is_of_host = cause.code in (Code.HOST_LOST, Code.HOST_FAILED) and cause.host != task.host
        if incident.refusal or is_of_host:
            return state, []  # it may have failed only because it lost its peers there
    failed = task.has_failed_exit and not task.stopped_by_us
    if not failed or task.exit_status not in state.policy_of(task).never_on:
        return state, []
    if incident is not None and not state.needs(task):
        return restarts.leave_restart(state, task)
    return _end_by(state, restarts.decide(state, task, exit_cause(state, task)), at, KILL_GRACE)


def _on_finish_before_restart(state: JobState, task: TaskState) -> Transition:
    if not state.undone:
        return _succeed_if_done(state)
    leader = state.leader
    if leader is None or leader.name != task.name:
        return restarts.leave_restart(state, task)
    return end_job(state, _failure_without_leader(state, leader))


def settle_incidents(state: JobState, at: float) -> Transition:
    """Begin the planned restarts whose time has come, or end the job by the failure.

    Nothing is decided before all attempts have ended and all links to their hosts are restored or
    the hosts lost: until then, the loss of a host may explain a failure.
    """
    actions: list[Action] = []
    for incident in list(state.incidents.values()):
        if incident.attempts_left or not incident.is_due or incident.is_settled:
            continue
        waiting = restarts.wait_for_link(state, incident)
        if waiting is not None:
            state, more = waiting
        elif incident.refusal is not None:
            grace = restarts.grace_after(state, state.tasks[incident.refusal.task or ""])
            state, more = end_job(state, incident.refusal, grace=grace)
            return state, actions + more
        elif _has_succeeded(state, incident):
            state, more = restarts.cancel_incidents(state, {incident.number})
            state, ended = _succeed_if_done(state)
            return state, actions + more + ended
        else:
            state, more = restarts.begin_or_plan(state, incident, at)
        actions += more
    return state, actions


def _has_succeeded(state: JobState, incident: Incident) -> bool:
    """Whether the tasks on which success waits came to their end while a restart stopped them."""
    own = [state.tasks[name] for name in incident.tasks]
    awaited = [task for task in own if state.waits_for(task)]
    are_last = 0 < state.undone == len(awaited)
    return are_last and all(task.has_come_to_its_end for task in awaited)


def may_recur(state: JobState) -> bool:
    """Whether so many attempts in a row failed early that one cause may fail them all."""
    return restarts.early_failures(state).count >= (
        state.policy.host_failures + 1 if len(state.hosts) > 1 else 2
    )


def end_recurring(state: JobState, verdict: Verdict) -> Transition:
    """End the job after a failure that has come again, and would come a third time."""
    members = [each for each in state.tasks.values() if each.is_in_group]
    early = restarts.early_failures(state)
    if not may_recur(state) or any(restarts.came_further(each, early.reached) for each in members):
        return state, []
    last = early.last or Cause(Code.TASK_EXITED)
    task = state.tasks.get(last.task)
    status = 128 + last.signal if last.signal else last.status
    if task is None or not status or not state.needs(task):
        return state, []
    why = Cause(Code.FAILURE_RECURS, count=early.count)
    outcome = job_failure(status, with_reason(last, why), task.name, Origin.TASK)
    state, actions = end_job(state, outcome)
    return apply_verdict(state, verdict), actions


def on_start_timeout(state: JobState, event: TimedOut) -> Transition:
    """Fail the job if tasks or hosts are still starting after `timeouts.start`."""
    why = _why_no_host(state, event.within)
    if why is not None:
        return end_job(state, host_failure(why))
    phases = (TaskPhase.STARTING, TaskPhase.WAITING)
    late = tuple(task.name for task in state.tasks.values() if task.phase in phases)
    if state.phase is not JobPhase.PREPARING and not late:
        return state, []
    seconds, within = state.timeouts.start or 0.0, (*unready(state), *event.within)
    cause = Cause(Code.START_TIMED_OUT, seconds=seconds, tasks=late, within=within)
    outcome = job_failure(StartTimeoutError.exit_code, without_restart(state, cause))
    return end_job(state, outcome)


def _why_no_host(state: JobState, within: tuple[Cause, ...] = ()) -> Cause | None:
    """Return the cause if the job waits for a host, without which it cannot start."""
    if state.waits_for_host is not None:
        return state.waits_for_host
    for incident in state.incidents.values():
        if incident.needs_host and state.requires(incident):
            why = incident.waits_for_host or incident.waits_for_link
            why = why or Cause(Code.NO_ROOM, tasks=incident.tasks)
            silent = [each for each in within if each.code is Code.HOST_NOT_PREPARED]
            if incident.is_planning and silent:
                why = silent[0]
            return with_reason(incident.cause, why)
    return None


def on_run_timeout(state: JobState, _: TimedOut) -> Transition:
    """Fail a job that runs longer than `timeouts.run`."""
    cause = Cause(Code.RUN_TIMED_OUT, seconds=state.timeouts.run or 0.0)
    outcome = job_failure(StartTimeoutError.exit_code, without_restart(state, cause))
    return end_job(state, outcome, grace=state.timeouts.grace)


def on_stall(state: JobState, event: TimedOut) -> Transition:
    """Restart everything that trains, or fail the job. SIGABRT has Python print its stacks."""
    if any(each.scope is Scope.GROUP for each in state.incidents.values()):
        return state, []
    cause = Cause(Code.STALLED, seconds=state.timeouts.stall or 0.0)
    training = [task for task in state.tasks.values() if task.is_in_group]
    # One that takes the whole group along, if there is a group.
    training.sort(key=lambda task: state.rule(task).restarts is not Scope.GROUP)
    decision = restarts.decide(state, training[0], cause)
    if decision.is_allowed:
        return restarts.open_incident(state, decision, event.at)
    outcome = job_failure(StartTimeoutError.exit_code, with_reason(cause, decision.why_not))
    return end_job(state, outcome, signal=SIGABRT)


def stop_quiet_job(state: JobState, outcome: Outcome, signal: int, grace: float) -> Transition:
    """Stop a job whose tasks do nothing, so that their logs end with where they were.

    A task that handles the signal has most of the grace time before it gets SIGABRT, too.
    """
    state, actions = end_job(state, outcome, signal, grace)
    actions = [
        each._replace(with_stacks=True) if isinstance(each, StopTask) else each for each in actions
    ]
    if not state.unended:
        return state, actions
    return state, [*actions, SetTimer(_ABORT, grace - min(KILL_GRACE, grace / 2))]


def on_abort_timeout(state: JobState, _: TimedOut) -> Transition:
    """Have tasks that still run print where they are, just before they are killed."""
    return stop_tasks(state, SIGABRT, KILL_GRACE)


def on_evaluator_timeout(state: JobState, _: TimedOut) -> Transition:
    """Stop the evaluator, which had `timeouts.grace` to end after the job's success."""
    excluded = {
        task.name
        for task in state.tasks.values()
        if task.role is not Role.EVALUATOR or task.phase is TaskPhase.STOPPING
    }
    return stop_tasks(state, SIGTERM, KILL_GRACE, excluded)


def job_failure(
    exit_code: int, cause: Cause, task: str | None = None, origin: Origin = Origin.DISTRUN
) -> Outcome:
    """Return the outcome of a failure. `origin`: whose exit code it is."""
    return Outcome(result=Result.FAILED, exit_code=exit_code, origin=origin, cause=cause, task=task)


def host_failure(cause: Cause, task: str | None = None) -> Outcome:
    return job_failure(HostError.exit_code, cause, task)


def without_restart(state: JobState, cause: Cause) -> Cause:
    """Return the cause of a failure that no policy restarts, with that reason if there is one."""
    why = Cause(Code.RESTART_NOT_APPLICABLE) if state.has_restarts else None
    return with_reason(cause, why)


def exit_cause(state: JobState, task: TaskState) -> Cause:
    """Return how a task exited, as the cause of a restart or of the job's end."""
    if task.signal is not None:
        return Cause(Code.TASK_KILLED, task=task.name, signal=task.signal)
    if task.code == 0:
        others = tuple(each.name for each in state.tasks.values() if state.waits_for(each))
        return Cause(Code.TASK_EXITED_EARLY, task=task.name, tasks=others[:_MOST_NAMED])
    return Cause(Code.TASK_EXITED, task=task.name, status=task.code)


def apply_verdict(state: JobState, verdict: Verdict) -> JobState:
    """Add the verdict to the outcome, and change the exit code to that of the first cause.

    Tasks that had failed by themselves before distrun's stop reached them were not stopped by it.
    The exit code stays if the first cause has none: if that task exited 0, or was stopped before
    it could crash. If a host was lost, the exit code is the one for lost hosts. The failure of an
    evaluator is another one than the job's, unless the job needs the evaluator. A warning
    about a success makes it a failure if the spec says so.
    """
    outcome = state.outcome
    if verdict.kind is Kind.QUALIFIED:
        return _qualify(state, verdict)
    if outcome is not None and outcome.result is Result.STOPPED:
        return replace(state, outcome=replace(outcome, verdict=verdict))
    if outcome is None or outcome.result is not Result.FAILED:
        return state
    names = {*verdict.alike, *verdict.echoes}
    was_live = verdict.kind in _LIVE_KINDS or verdict.cause.code is outcome.cause.code
    if verdict.task is not None and not was_live:
        names.add(verdict.task)
    stopped = (task for task in state.tasks.values() if task.name in names and task.stopped_by_us)
    state = state.with_tasks(
        replace(task, stopped_by_us=False, phase=TaskPhase.FAILED) for task in stopped if task.code
    )
    task = state.tasks.get(verdict.task or "")
    if task is not None and task.name != outcome.task and not state.needs(task):
        return state
    is_tasks = outcome.origin is Origin.TASK
    is_final = outcome.cause.code is Code.NOT_RESTARTED
    why = next(iter(outcome.cause.within[1:]), None) if is_final else None
    if verdict.cause.code in _OF_HOSTS and (is_tasks or verdict.cause.hosts):
        outcome = host_failure(with_reason(verdict.cause, why), verdict.task)
    elif is_tasks and task is not None and task.name != outcome.task:
        crashed = verdict.kind is Kind.CRASH
        own = task.exit_status if crashed or not task.stopped_by_us else None
        if own:
            cause = with_reason(exit_cause(state, task), why)
            outcome = replace(outcome, exit_code=own, task=task.name, cause=cause)
    return replace(state, outcome=replace(outcome, verdict=verdict))


def _qualify(state: JobState, verdict: Verdict) -> JobState:
    outcome = state.outcome
    if outcome is None or outcome.result is not Result.SUCCEEDED:
        return state
    if state.strict:
        outcome = job_failure(StartTimeoutError.exit_code, verdict.cause)
    return replace(state, outcome=replace(outcome, verdict=verdict))


def enter_running(state: JobState) -> Transition:
    """Mark the job as running once no task is starting any more, and set its timers."""
    # The time for a start also limits the wait for a host.
    if state.unstarted or state.outcome is not None or _why_no_host(state) is not None:
        return state, []
    actions: list[Action] = []
    if state.timeouts.start is not None:
        actions.append(SetTimer(START, None))
    state, health = restarts.start_health_timers(state)
    if any(each.scope is Scope.GROUP for each in state.incidents.values()):
        return state, actions + health
    if state.timeouts.stall is not None and state.phase is not JobPhase.RUNNING:
        actions.append(SetTimer(STALL, state.timeouts.stall))
    if state.timeouts.run is not None and not state.has_run:
        actions.append(SetTimer(_RUN, state.timeouts.run))
    return replace(state, phase=JobPhase.RUNNING, has_run=True), actions + health


def end_job(
    state: JobState, outcome: Outcome, signal: int = SIGTERM, grace: float = KILL_GRACE
) -> Transition:
    """Set the outcome, if it is not set yet, and stop the remaining tasks."""
    if state.outcome is not None:
        return finish_if_ended(state)
    state = replace(state, outcome=outcome, phase=JobPhase.STOPPING)
    state, canceled = restarts.cancel_incidents(state, set(state.incidents))
    if state.timeouts.stall is not None:
        canceled.append(SetTimer(STALL, None))
    evaluators = {
        task.name
        for task in state.tasks.values()
        if task.role is Role.EVALUATOR and outcome.result is Result.SUCCEEDED
    }
    state, actions = stop_tasks(state, signal, grace, excluded=evaluators)
    if any(not state.tasks[name].phase.is_final for name in evaluators):
        actions.append(SetTimer(EVALUATOR, state.timeouts.grace))
    state, finish = finish_if_ended(state)
    return state, canceled + actions + finish


def stop_tasks(
    state: JobState, signal: int, grace: float, excluded: set[str] | frozenset[str] = frozenset()
) -> Transition:
    """Stop all tasks that have not ended, except those named in `excluded`."""
    stopped = [
        task
        for task in state.tasks.values()
        if not task.phase.is_final and task.name not in excluded
    ]
    state = state.with_tasks(
        replace(task, phase=_STOPPED_FROM[task.phase])
        for task in stopped
        if task.phase in _STOPPED_FROM
    )
    waiting = TaskPhase.WAITING
    return state, [StopTask(t.name, signal, grace) for t in stopped if t.phase is not waiting]


def finish_if_ended(state: JobState) -> Transition:
    """Release the hosts if the outcome is set and every task has ended, also earlier attempts."""
    if state.outcome is None or state.finishing or state.unended:
        return state, []
    if state.former_hosts and not state.abandons_former_hosts:
        return state, []
    return replace(state, finishing=True), [Finish()]


def _succeed_if_done(state: JobState) -> Transition:
    if state.undone:
        return state, []
    cause = Cause(Code.JOB_SUCCEEDED)
    outcome = Outcome(result=Result.SUCCEEDED, exit_code=0, origin=Origin.TASK, cause=cause)
    return end_job(state, outcome)


def _failure_without_leader(state: JobState, leader: TaskState) -> Outcome:
    """Return the outcome if the leader finishes while its group is about to restart."""
    cause = state.incidents[leader.restart or 0].cause
    why = Cause(Code.LEADER_FINISHED, task=leader.name)
    if cause.code in restarts.HOST_CODES:
        return host_failure(with_reason(cause, why), cause.task or None)
    if cause.code is Code.STALLED:
        return job_failure(StartTimeoutError.exit_code, with_reason(cause, why))
    return _failure(state, state.tasks[cause.task], why)


def with_reason(cause: Cause, why: Cause | None) -> Cause:
    """Return the cause of a failure with the reason why nothing was restarted."""
    return cause if why is None else Cause(Code.NOT_RESTARTED, within=(cause, why))


def _failure(state: JobState, task: TaskState, why: Cause | None = None) -> Outcome:
    """Return the outcome of a job that fails by a task's exit. `why`: nothing restarts after it."""
    cause = exit_cause(state, task)
    budget = state.budgets.get(state.budget_of(task))
    if budget is not None and budget.total:
        cause = Cause(Code.RESTARTS_USED_UP, count=budget.total, within=(cause,))
    cause = with_reason(cause, why)
    status = task.exit_status
    if status == 0:
        return job_failure(1, cause, task.name)
    exit_code = InternalError.exit_code if status is None else status
    return job_failure(exit_code, cause, task.name, Origin.TASK)
