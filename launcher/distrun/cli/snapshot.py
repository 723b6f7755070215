"""What `ps` and `status` know of a job, as `--json` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distrun.agent.kernel import signal_name
from distrun.codec import to_json
from distrun.lifecycle import TaskPhase

if TYPE_CHECKING:
    from distrun.jobstore import JobFolder
    from distrun.lifecycle import JobState, TaskState

LOST = "lost"
"""The state of a job whose record has no end and whose supervisor is gone."""


def job_state_name(folder: JobFolder, state: JobState) -> str:
    if state.phase.is_final or folder.supervisor_pid() is not None:
        return state.phase.value
    # It may have ended between the two looks.
    now = folder.state()
    return now.phase.value if now.phase.is_final else LOST


def summarise(folder: JobFolder) -> dict[str, Any]:
    """One job in a list."""
    state = folder.state()
    name = job_state_name(folder, state)
    running = [task for task in state.tasks.values() if task.phase is TaskPhase.RUNNING]
    outcome = state.outcome if state.phase.is_final else None
    return {
        "job_id": folder.job_id,
        "name": state.name,
        "state": name,
        "running": name not in (LOST, "succeeded", "failed", "stopped"),
        "strategy": state.strategy,
        "tasks": len(state.tasks),
        "tasks_running": len(running),
        "created_at": state.created_at,
        "ended_at": state.ended_at,
        "exit_code": outcome.exit_code if outcome else None,
        "origin": outcome.origin if outcome else None,
        "folder": str(folder.path),
    }


def describe(folder: JobFolder) -> dict[str, Any]:
    """One job with all its tasks, as they are now."""
    from distrun import control
    from distrun.cli.usage import usages

    state = folder.state()
    supervisor = folder.supervisor_pid()
    progress = control.progress(folder) if supervisor is not None else {}
    tasks = list(state.tasks.values())
    here = [task.pid for task in tasks if task.pid is not None and not task.phase.is_final]
    used = usages(here) if supervisor is not None else {}
    return {
        **summarise(folder),
        "outcome": to_json(state.outcome) if state.phase.is_final else None,
        "supervisor_pid": supervisor,
        "hosts": [to_json(host) for host in state.hosts.values()],
        "task_states": [
            {
                **_describe_task(task, lost=supervisor is None and not task.phase.is_final),
                "log": str(folder.log_of(task.name)),
                "usage": to_json(used.get(task.pid or 0)),
                "progress": progress.get(task.name, task.reported),
            }
            for task in tasks
        ],
    }


def _describe_task(task: TaskState, *, lost: bool) -> dict[str, Any]:
    return {
        "task": task.name,
        "state": LOST if lost else task.phase.value,
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
    }
