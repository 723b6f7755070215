"""Which of TensorFlow's start-up lines `launch` and `logs` leave out, and the sentence on them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from distrun.words.formats import format_count, format_task_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.lifecycle import JobState, TaskState


def gpu_tasks(state: JobState) -> list[str]:
    """The tasks on hosts with GPUs: there, a line that no GPU was found is shown."""
    return [
        task.name
        for task in state.tasks.values()
        if task.host in state.hosts and state.hosts[task.host].gpus
    ]


def failed_tasks(state: JobState) -> list[str]:
    """The tasks that have failed: their last lines are all shown."""
    return [task.name for task in state.tasks.values() if task.has_ended and has_failed(task)]


def has_failed(task: TaskState) -> bool:
    """Whether a task's last exit was a failure of its own."""
    if task.stopped_by_us:
        return task.signal not in (None, signal.SIGTERM, signal.SIGKILL)
    return bool(task.code or task.signal)


def left_out_text(count: int, silent: Sequence[str] = ()) -> str:
    """`12 start-up lines left out (see --all-output)`; empty if there are none.

    `silent`: tasks that are named because they printed nothing else.
    """
    others = f"; {format_task_names(silent)} printed nothing else" if silent else ""
    lines = format_count(count, "start-up line")
    return f"{lines} left out (see --all-output){others}" if count else ""
