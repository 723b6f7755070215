"""What follows from a state: whether it fails or succeeds, and who is stopped how."""

from __future__ import annotations

from dataclasses import replace

from distrun.errors import InternalError, StartTimeoutError
from distrun.events import Outcome
from distrun.lifecycle.actions import Action, Finish, SetTimer, StopTask
from distrun.lifecycle.state import JobPhase, JobState, TaskPhase, TaskState
from distrun.strategies import STRATEGIES, Role, Scope, Success

Result = tuple[JobState, list[Action]]
SIGKILL, SIGTERM = 9, 15
PROMPT_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL where nobody asked for a graceful end."""


def fails_the_job(state: JobState, task: TaskState) -> bool:
    rule = STRATEGIES[state.strategy].roles[task.role]
    if rule.failure is Scope.NOTHING and state.success is not Success.ALL:
        return False
    # A restart policy comes in here: a failure within its budget starts tasks again instead.
    early = rule.serves and task.code == 0 and task not in _needed(state)
    return task.has_failed_exit or early


def is_preempted(task: TaskState) -> bool:
    """Whether it was told to go from outside: TensorFlow's exit code for that, or SIGTERM's."""
    return task.code in (42, 128 + SIGTERM) or task.signal == SIGTERM


def failure(task: TaskState) -> Outcome:
    code = task.code if task.signal is None else 128 + task.signal
    if code == 0:
        cause = f"{task.name} exited 0 before the chief had finished"
        return Outcome(result="failed", exit_code=1, origin="distrun", cause=cause, task=task.name)
    how = f"exited {task.code}" if task.signal is None else f"was ended by signal {task.signal}"
    return Outcome(
        result="failed",
        exit_code=InternalError.exit_code if code is None else code,
        origin="task",
        cause=f"{task.name} {how}",
        task=task.name,
    )


def final_phase(task: TaskState) -> TaskPhase:
    """What a task that has exited is once nothing of it is left."""
    if not task.has_failed_exit:
        return TaskPhase.SUCCEEDED
    return TaskPhase.STOPPED if task.stopped_by_us else TaskPhase.FAILED


def _needed(state: JobState) -> list[TaskState]:
    """The tasks whose exit 0 makes the job a success."""
    tasks = list(state.tasks.values())
    if state.success is Success.ALL:
        return tasks
    if state.success is Success.CHIEF:
        return [task for task in tasks if task.role is Role.CHIEF]
    if state.success is Success.WORKER_0:
        return [task for task in tasks if task.role is Role.WORKER and task.index == 0]
    return [task for task in tasks if task.role in (Role.CHIEF, Role.WORKER)]


def check_success(state: JobState, at: float) -> Result:
    done = (TaskPhase.EXITED, TaskPhase.SUCCEEDED)
    if not all(task.phase in done and task.code == 0 for task in _needed(state)):
        return state, []
    outcome = Outcome(result="succeeded", exit_code=0, origin="task", cause="it succeeded")
    return conclude(state, outcome, at)


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
    evaluators = {
        task.name
        for task in state.tasks.values()
        if task.role is Role.EVALUATOR and outcome.result == "succeeded"
    }
    state, actions = stop_tasks(state, signal, grace, spare=evaluators)
    if any(not state.tasks[name].phase.is_final for name in evaluators):
        actions.append(SetTimer("evaluator", state.grace))
    state, more = finish_if_over(state)
    return state, actions + more


def stop_tasks(
    state: JobState, signal: int, grace: float, spare: set[str] | frozenset[str] = frozenset()
) -> Result:
    actions: list[Action] = []
    tasks = dict(state.tasks)
    for task in state.tasks.values():
        if task.phase.is_final or task.name in spare:
            continue
        actions.append(StopTask(task.name, signal, grace))
        if task.phase in (TaskPhase.STARTING, TaskPhase.RUNNING):
            tasks[task.name] = replace(task, phase=TaskPhase.STOPPING)
    return replace(state, tasks=tasks), actions


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


def finish_if_over(state: JobState) -> Result:
    if state.outcome is None or state.finishing:
        return state, []
    if not all(task.phase.is_final for task in state.tasks.values()):
        return state, []
    return replace(state, finishing=True), [Finish(state.outcome)]


def change(state: JobState, name: str, **changes: object) -> JobState:
    task = replace(state.tasks[name], **changes)  # type: ignore[arg-type]
    return replace(state, tasks={**state.tasks, name: task})
