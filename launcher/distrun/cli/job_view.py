"""What `ps` and `status` know of a job, as `--json` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distrun import events
from distrun.agent.linux.facts import pid_namespace
from distrun.agent.linux.syscalls import signal_name
from distrun.codec import to_json
from distrun.lifecycle import Account, TaskPhase

if TYPE_CHECKING:
    from distrun.jobstore import JobFolder
    from distrun.lifecycle import JobState, TaskState

LOST = "lost"
"""The state of a job whose record has no end and whose supervisor is gone."""


def summarise(folder: JobFolder) -> dict[str, Any]:
    """One job in a list."""
    return _summary(folder, *_look(folder))


def describe(folder: JobFolder) -> dict[str, Any]:
    """One job with all its tasks, as they are now."""
    from distrun import control
    from distrun.cli import usage

    supervisor, state = _look(folder)
    lost = _is_lost(supervisor, state)
    tasks = list(state.tasks.values())
    visible = _visible_hosts(state)
    pids = [
        task.pid
        for task in tasks
        if task.pid is not None and not task.has_ended and task.host in visible
    ]
    progress = control.progress(folder) if supervisor is not None else {}
    used = usage.measure(pids) if supervisor is not None else {}
    return {
        **_summary(folder, supervisor, state),
        "outcome": to_json(state.outcome) if state.phase.is_final else None,
        "verdict": to_json(state.verdict),
        "supervisor_pid": supervisor,
        "hosts": [to_json(host) for host in state.hosts.values()],
        "tensorboard": None if lost or state.phase.is_final else _tensorboard(folder),
        "task_states": [
            {
                **_describe_task(task, lost=lost and not task.has_ended),
                "restarts_at": None if lost else _restarts_at(state, task),
                "log": str(folder.log_of(task.name)),
                "usage": to_json(used.get(task.pid or 0)) if task.host in visible else None,
                "progress": progress.get(task.name, task.reported),
            }
            for task in tasks
        ],
    }


def _look(folder: JobFolder) -> tuple[int | None, JobState]:
    # In this order: a supervisor that is gone by now has written all it had to say.
    supervisor = folder.supervisor_pid()
    return supervisor, folder.state()


def _is_lost(supervisor: int | None, state: JobState) -> bool:
    return supervisor is None and not state.phase.is_final


def _summary(folder: JobFolder, supervisor: int | None, state: JobState) -> dict[str, Any]:
    lost = _is_lost(supervisor, state)
    running = [task for task in state.tasks.values() if task.phase is TaskPhase.RUNNING]
    outcome = state.outcome if state.phase.is_final else None
    return {
        "job_id": folder.job_id,
        "name": state.name,
        "state": LOST if lost else state.phase.value,
        "running": not lost and not state.phase.is_final,
        "strategy": state.strategy,
        "tasks": len(state.tasks),
        "tasks_running": 0 if lost else len(running),
        "restarts": state.budgets[Account.JOB].total,
        "restarts_left": state.policy.max - state.budgets[Account.JOB].counted,
        "created_at": state.created_at,
        "ended_at": state.ended_at,
        "exit_code": outcome.exit_code if outcome else None,
        "origin": outcome.origin if outcome else None,
        "folder": str(folder.path),
    }


def _tensorboard(folder: JobFolder) -> str | None:
    """Its address, while it runs beside the job."""
    address = None
    for event in events.read(str(folder.events_file)):
        if isinstance(event, events.TensorBoardStarted):
            address = event.address
        elif isinstance(event, events.TensorBoardEnded):
            address = None
    return address


def _visible_hosts(state: JobState) -> set[str]:
    """The hosts whose process ids are those that this process sees."""
    own = pid_namespace()
    return {host.name for host in state.hosts.values() if host.pid_namespace == own}


def _restarts_at(state: JobState, task: TaskState) -> float | None:
    """When at the earliest it starts again (Unix seconds), where nothing of it is left."""
    restart = state.restarts.get(task.restart or 0)
    return restart.due_at if restart is not None and task.has_ended else None


def _describe_task(task: TaskState, *, lost: bool) -> dict[str, Any]:
    return {
        "task": task.name,
        "state": LOST if lost else task.phase.value,
        "last_state": task.phase.value,
        "host": task.host,
        "address": task.address,
        "pid": task.pid,
        "attempt": task.attempt,
        "exit_code": task.code,
        "signal": None if task.signal is None else signal_name(task.signal),
        "reason": task.reason,
        "stopped_by_distrun": task.stopped_by_us,
        "started_at": task.started_at,
        "exited_at": task.exited_at,
        "seconds": task.lived,
    }
