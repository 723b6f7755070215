"""The transitions of a job: how each event changes its state, and what the supervisor does then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distrun.agent.protocol import Cause, Code, heartbeat_interval
from distrun.errors import InternalError, StartTimeoutError
from distrun.frozen import replace
from distrun.job import events
from distrun.job.events import Event, Outcome, Result, TimerKind
from distrun.lifecycle import outcomes, replacements, replan, restarts, starts
from distrun.lifecycle.restarts import SIGTERM
from distrun.lifecycle.state import SIGKILL, HostState, JobPhase, JobState, TaskPhase

_OF_ATTEMPTS = (
    events.TaskStarted, events.TaskReady, events.TaskNotStarted, events.TaskExited,
    events.TaskEnded,
)  # fmt: skip
_ON_TIMEOUT = {
    TimerKind.RESTART: restarts.on_backoff_over,
    TimerKind.HEALTH: restarts.reset_budget,
    TimerKind.START: outcomes.on_start_timeout,
    TimerKind.RUN: outcomes.on_run_timeout,
    TimerKind.STALL: outcomes.on_stall,
    TimerKind.EVALUATOR: outcomes.on_evaluator_timeout,
    TimerKind.ABORT: outcomes.on_abort_timeout,
}
_MISSED = 2
"""At least this many heartbeats are missing when a link counts as lost because of that."""
_TASKS_MAY_RUN = (Code.AGENT_ABANDONED, Code.PROCESSES_NOT_ENDED)
"""Causes of the loss of a host whose tasks may still run."""


def replay(history: list[Event], state: JobState | None = None) -> JobState:
    """Return the state after a record's events. `state`: before them, if others were before."""
    state = state or JobState()
    for event in history:
        # A damaged record may name tasks whose plan is lost, or timers that there are not. Other
        # errors are defects, by which this state would be another than the supervisor's.
        with suppress(LookupError, ValueError):
            state, _ = step(state, event)
    return state


def step(state: JobState, event: Event) -> restarts.Transition:
    """Return the state after an event, and the actions that follow: none of one for readers alone.

    A final state stays, but hosts that could not be reached may be cleared later.
    """
    if isinstance(event, events.JobResumed):
        return replan.resume(state, event)
    if isinstance(event, events.JobQueued):
        return replan.queue(state, event), []
    stays = state.phase.is_final and not isinstance(event, events.HostCleared)
    transition = _TRANSITIONS.get(type(event))
    if stays or transition is None:
        return state, []
    if isinstance(event, _OF_ATTEMPTS):
        if event.task in state.dropped:
            return state, []
        task = state.tasks[event.task]
        if event.attempt < task.attempt or task.has_ended:
            return state, []  # that attempt has ended already
    state, actions = transition(state, event)
    state, more = outcomes.settle_incidents(state, event.at)
    return state, [*actions, *more]


def _on_preflight_found(state: JobState, event: events.PreflightFound) -> restarts.Transition:
    known = {each.path for each in state.unshared}
    if event.cause.code is not Code.FOLDER_NOT_SHARED or event.cause.path in known:
        return state, []
    return replace(state, unshared=(*state.unshared, event.cause)), []


def _on_job_created(state: JobState, event: events.JobCreated) -> restarts.Transition:
    created = replace(
        state, **replan.settings(event), phase=JobPhase.PREPARING, created_at=event.at
    )
    return created, restarts.start_timer(created)


def _on_logs_received_late(state: JobState, event: events.LogsReceivedLate) -> restarts.Transition:
    left = tuple(each for each in state.lost_agents if each.folder != event.folder)
    return replace(state, lost_agents=left), []


def _on_host_ready(state: JobState, event: events.HostReady) -> restarts.Transition:
    agent = {name: getattr(event, name) for name in events.HostAgent.__dataclass_fields__}
    host = HostState(name=event.host, gpus=len(event.gpus), **agent)
    return replacements.on_host_ready(state.with_host(host))


def _on_host_left_out(state: JobState, event: events.HostLeftOut) -> restarts.Transition:
    known = state.hosts.get(event.host)
    host = known or HostState(name=event.host, agent_pid=0, hostname="", spare=True)
    state = state.with_host(replace(host, left_out=event.cause))
    if event.host == state.failing_host:
        state = replace(state, failing_host="", failures_in_a_row=0)
    return state, []


def _on_aborted(state: JobState, event: events.Aborted) -> restarts.Transition:
    state = replace(state, abandons_former_hosts=bool(state.former_hosts))
    outcome = outcomes.job_failure(event.exit_code, event.cause)
    if event.exit_code == InternalError.exit_code and state.outcome is not None:
        # Whatever the result would have been, it is not known whether it is right.
        state = replace(state, outcome=outcome)
    return outcomes.end_job(state, outcome)


def _on_cluster_mismatched(state: JobState, event: events.ClusterMismatched) -> restarts.Transition:
    # It would happen again after a restart.
    exit_code, cause = StartTimeoutError.exit_code, event.cause
    outcome = outcomes.job_failure(exit_code, cause, cause.task)
    return outcomes.end_job(state, outcome)


def _on_task_started(state: JobState, event: events.TaskStarted) -> restarts.Transition:
    task = state.tasks[event.task]
    phase = task.phase if task.phase is TaskPhase.STOPPING else TaskPhase.RUNNING
    started = replace(
        task,
        phase=phase,
        attempt=event.attempt,
        pid=event.pid,
        output_start=event.log_start,
        started_at=event.at,
    )
    state, actions = starts.start_waiting(state.with_tasks([started]), started)
    state, more = outcomes.enter_running(state)
    return state, actions + more


def _on_task_ready(state: JobState, event: events.TaskReady) -> restarts.Transition:
    task = state.tasks[event.task]
    ready = replace(task, is_ready=True)
    return starts.start_waiting(state.with_tasks([ready]), ready)


def _on_task_not_started(state: JobState, event: events.TaskNotStarted) -> restarts.Transition:
    task = state.tasks[event.task]
    failed = replace(task, attempt=event.attempt, exited_at=event.at, reason=event.cause)
    failed = failed.ended(event.at)
    state = state.with_tasks([failed])
    replaced = replacements.on_not_started(state, failed, event.at)
    if replaced is not None:
        return replaced
    # An evaluator that cannot restart has failed like any other; the job continues without it.
    if event.attempt > task.first_attempt and not state.needs(task):
        return (
            outcomes.enter_running(state)
            if state.outcome is None
            else outcomes.finish_if_ended(state)
        )
    cause = Cause(Code.TASK_NOT_STARTED, task=event.task, within=(event.cause,))
    cause = outcomes.without_restart(state, cause)
    return outcomes.end_job(state, outcomes.host_failure(cause, event.task))


def _on_task_exited(state: JobState, event: events.TaskExited) -> restarts.Transition:
    task = state.tasks[event.task]
    exited = replace(
        task,
        phase=TaskPhase.EXITED,
        exited_at=event.at,
        exit=event,
        stopped_by_us=task.phase is TaskPhase.STOPPING and event.was_stopping,
    )
    state = state.with_tasks([exited])
    if state.outcome is not None:
        return state, []
    if exited.restart is not None:
        return outcomes.on_exit_before_restart(state, exited, event.at)
    return outcomes.on_exit(state, exited, event.at)


def _on_task_ended(state: JobState, event: events.TaskEnded) -> restarts.Transition:
    task = state.tasks[event.task]
    ended = replace(task, end=event).ended(event.at, task.used.with_attempt(event))
    state = restarts.on_attempt_ended(state.with_tasks([ended]), ended)
    return outcomes.finish_if_ended(state)


def _on_starts_canceled(state: JobState, event: events.StartsCanceled) -> restarts.Transition:
    canceled = [task for name in event.tasks if not (task := state.tasks[name]).has_ended]
    state = state.with_tasks(replace(task, stopped_by_us=True).ended(event.at) for task in canceled)
    for task in canceled:
        state = restarts.on_attempt_ended(state, task)
    return outcomes.finish_if_ended(state)


def _on_host_lost(state: JobState, event: events.HostLost) -> restarts.Transition:
    # If nobody knows whether its tasks have ended, none may start elsewhere.
    is_over = event.cause.code not in _TASKS_MAY_RUN
    unstarted, can_move = state.unstarted, is_over and replacements.can_replace(state, event.host)
    host = state.hosts.get(event.host)
    if host is not None:
        state = state.with_lost_agent(host, event.at, event.cause, event.received)
        state = _change_host(
            state,
            event.host,
            lost=event.cause,
            lost_at=event.at,
            link_lost=None,
            link_lost_at=None,
            silent_since=host.silent_since or event.at,
            has_ended=is_over,
        )
    cause = Cause(Code.HOST_LOST, host=event.host, within=(event.cause,))
    state, actions = replacements.leave_host(state, event.host, cause, event.at, can_move=can_move)
    state, actions = replacements.end_attempts(state, event, actions)
    if state.outcome is not None:
        state, more = outcomes.finish_if_ended(state)
    else:
        state, more = outcomes.enter_running(state) if state.unstarted < unstarted else (state, [])
    return state, actions + more


def _on_link_lost(state: JobState, event: events.LinkLost) -> restarts.Transition:
    is_overdue = event.cause.code is Code.HEARTBEAT_MISSING
    silence = _MISSED * heartbeat_interval(state.timeouts.link) if is_overdue else 0.0
    host = state.hosts.get(event.host)
    if host is not None and host.link_lost is not None:  # and now it is known why
        return state.with_host(replace(host, link_lost=event.cause)), []
    changes = {"link_lost": event.cause, "link_lost_at": event.at}
    return _change_host(state, event.host, **changes, silent_since=event.at - silence), []


def _on_link_restored(state: JobState, event: events.LinkRestored) -> restarts.Transition:
    changes = {"link_lost": None, "link_lost_at": None, "silent_since": None}
    state = _change_host(state, event.host, **changes)
    return replacements.on_host_ready(state)


def _change_host(state: JobState, name: str, **changes: Any) -> JobState:
    host = state.hosts.get(name)
    return state if host is None else state.with_host(replace(host, **changes))


def _on_host_fault(state: JobState, event: events.HostFault) -> restarts.Transition:
    cause = Cause(Code.HOST_FAILED, host=event.host, within=(event.cause,))
    # A job that has no other host fails at once if its disk has failed: the next agent would, too.
    is_of_disk = event.cause.is_disk_full or event.cause.code is Code.LOG_DISK_READ_ONLY
    is_useful = not is_of_disk or state.has_room_beside(event.host)
    can_move = is_useful and replacements.can_replace(state, event.host)
    state = _change_host(state, event.host, fault=event.cause)
    return replacements.leave_host(state, event.host, cause, event.at, can_move=can_move)


def _on_stop_requested(state: JobState, event: events.StopRequested) -> restarts.Transition:
    outcome = Outcome.stopped(event.exit_code, event.cause)
    if state.outcome is None:
        is_quiet = state.quiet is not None and event.grace > 0
        stop = outcomes.stop_quiet_job if is_quiet else outcomes.end_job
        return stop(state, outcome, event.signal, event.grace)
    if state.killing:
        return state, []
    if _has_begun(state.outcome, event.cause):
        return replace(state, outcome=outcome), []
    # The second request, or the job is ending already: stop at once.
    return outcomes.stop_tasks(replace(state, killing=True), SIGKILL, 0.0)


def _has_begun(outcome: Outcome, cause: Cause) -> bool:
    """Whether a job failed by what ends it: Slurm's signals may reach tasks before distrun."""
    if outcome.result is not Result.FAILED or cause.code not in restarts.SLURM_STOPS:
        return False
    return any(
        each.code is cause.code or SIGTERM in (each.signal, (each.status or 0) - 128)
        for each in outcome.cause.chain()
    )


def _on_timed_out(state: JobState, event: events.TimedOut) -> restarts.Transition:
    is_of_end = event.timer.kind in (TimerKind.EVALUATOR, TimerKind.ABORT)
    # After SIGKILL no task, not even an evaluator, gets a gentler signal.
    if state.killing or (state.outcome is not None and not is_of_end):
        return state, []
    return _ON_TIMEOUT[event.timer.kind](state, event)


def _on_verdict_reached(state: JobState, event: events.VerdictReached) -> restarts.Transition:
    before, last = state.verdict, state.last_restart
    state = replace(state, verdict=event.verdict, judged_restart=last)
    if not event.before_restart:
        return outcomes.apply_verdict(state, event.verdict), []
    if before is not None and before.recurs_in(event.verdict):
        return outcomes.end_recurring(state, event.verdict)
    return state, []


def _on_job_ended(state: JobState, event: events.JobEnded) -> restarts.Transition:
    phase = JobPhase(event.outcome.result.value)
    # Hosts that were released at the end are not recorded as lost.
    hosts = {
        name: replace(host, has_ended=host.has_ended or host.lost is None)
        for name, host in state.hosts.items()
    }
    # After the death of a supervisor, nobody has recorded how its tasks ended.
    state = replace(state, incidents={})
    state = state.with_tasks(
        replan.ended(task, event.at) for task in state.tasks.values() if not task.phase.is_final
    )
    return replace(state, phase=phase, outcome=event.outcome, ended_at=event.at, hosts=hosts), []


def _change_task(state: JobState, task: str, **changes: Any) -> restarts.Transition:
    """Change what the counts of tasks do not depend on."""
    tasks = state.tasks.updated({task: replace(state.tasks[task], **changes)})
    return replace(state, tasks=tasks), []


def _on_first_step(state: JobState, event: events.FirstStep) -> restarts.Transition:
    state = replan.continue_training(state, event)
    return _change_task(state, event.task, first_step_at=event.at, first_step=event.values)


def _on_saving_ended(state: JobState, event: events.SavingEnded) -> restarts.Transition:
    saves = state.tasks[event.task].saves + 1
    return _change_task(state, event.task, is_saving=False, saves=saves)


_TRANSITIONS: dict[type[Event], Callable[[JobState, Any], restarts.Transition]] = {
    events.JobCreated: _on_job_created,
    events.HostCleared: replan.clear_host,
    events.HostReady: _on_host_ready,
    events.HostLost: _on_host_lost,
    events.HostLeftOut: _on_host_left_out,
    events.LinkLost: _on_link_lost,
    events.LinkRestored: _on_link_restored,
    events.LogsReceivedLate: _on_logs_received_late,
    events.ResultsFetched: lambda state, event: (replace(state, result_faults=event.causes), []),
    events.HostFault: _on_host_fault,
    events.JobPlanned: replan.apply_plan,
    events.PlanFailed: replacements.on_plan_failed,
    events.PreflightFound: _on_preflight_found,
    events.Aborted: _on_aborted,
    events.TaskReady: _on_task_ready,
    events.ClusterMismatched: _on_cluster_mismatched,
    events.ChildrenFail: lambda state, event: _change_task(state, event.task, failing=event.cause),
    events.TasksQuiet: lambda state, event: (replace(state, quiet=event), []),
    events.TasksActive: lambda state, _: (replace(state, quiet=None), []),
    events.StartsCanceled: _on_starts_canceled,
    events.FirstStep: _on_first_step,
    events.SavingStarted: lambda state, event: _change_task(state, event.task, is_saving=True),
    events.SavingEnded: _on_saving_ended,
    events.TaskReported: lambda state, event: _change_task(
        state, event.task, reported=event.values, step_at=event.step_at
    ),
    events.StopRequested: _on_stop_requested,
    events.TimedOut: _on_timed_out,
    events.VerdictReached: _on_verdict_reached,
    events.JobEnded: _on_job_ended,
    events.TaskStarted: _on_task_started,
    events.TaskNotStarted: _on_task_not_started,
    events.TaskExited: _on_task_exited,
    events.TaskEnded: _on_task_ended,
}
