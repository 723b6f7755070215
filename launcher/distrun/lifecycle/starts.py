"""Starts of tasks: at once, or once the tasks of the roles before them are ready."""

from __future__ import annotations

from collections.abc import Iterable

from distrun.agent.protocol.causes import Cause, Code
from distrun.frozen import replace
from distrun.lifecycle.actions import Action, StartAttempt
from distrun.lifecycle.state import JobState, TaskPhase, TaskState
from distrun.spec.model import Ready
from distrun.strategies import Role


def start(
    state: JobState, tasks: Iterable[TaskState], cause: Cause | None = None
) -> tuple[JobState, list[Action]]:
    """Start attempts of tasks, or let them wait. `cause`: why they restart."""
    changed, waiting = list(tasks), []
    state = state.with_tasks(changed)
    unready = _unready_roles(state, changed)
    actions: list[Action] = []
    for task in changed:
        if unready & set(task.after):
            waiting.append(replace(task, phase=TaskPhase.WAITING, restart_cause=cause))
        else:
            actions.append(StartAttempt(task.name, task.attempt, cause))
    return state.with_tasks(waiting), actions


def start_waiting(state: JobState, task: TaskState) -> tuple[JobState, list[Action]]:
    """Start the tasks that have waited only for this one, if it is ready."""
    if not state.waiting or not _is_ready(task):
        return state, []
    waiting = [
        each
        for each in state.tasks.values()
        if each.phase is TaskPhase.WAITING and task.role in each.after
    ]
    unready = _unready_roles(state, waiting)
    released = [each for each in waiting if not unready & set(each.after)]
    state = state.with_tasks(replace(each, phase=TaskPhase.STARTING) for each in released)
    return state, [StartAttempt(each.name, each.attempt, each.restart_cause) for each in released]


def unready(state: JobState) -> tuple[Cause, ...]:
    """Return what the waiting tasks wait for: a cause for each task that is not ready."""
    waiting = [task for task in state.tasks.values() if task.phase is TaskPhase.WAITING]
    roles = _unready_roles(state, waiting)
    return tuple(
        Cause(
            Code.TASK_NOT_READY,
            task=task.name,
            tasks=tuple(each.name for each in waiting if task.role in each.after),
            name=task.address or "" if task.ready is Ready.PORT else "",
            count=int(task.ready is Ready.LINE),
            text=task.ready_line if task.ready is Ready.LINE else "",
        )
        for task in state.tasks.values()
        if task.role in roles and not _is_ready(task)
    )


def _unready_roles(state: JobState, tasks: Iterable[TaskState]) -> set[Role]:
    """The roles before those tasks of which a task is not ready."""
    before = {role for task in tasks for role in task.after}
    if not before:
        return before
    return {
        task.role for task in state.tasks.values() if task.role in before and not _is_ready(task)
    }


def _is_ready(task: TaskState) -> bool:
    is_up = task.phase is TaskPhase.RUNNING or task.has_done_its_part
    return is_up and (task.is_ready or task.ready is Ready.OFF)
