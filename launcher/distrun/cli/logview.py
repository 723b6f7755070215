"""How tasks' output is shown by `launch` and `logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distrun.cli.console import uses_colour
from distrun.logs import TaskLog, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.jobstore import JobFolder


def task_logs(folder: JobFolder, tasks: Sequence[str]) -> list[TaskLog]:
    return [TaskLog(task, str(folder.log_of(task)), str(folder.index_of(task))) for task in tasks]


def view(tasks: Sequence[str], stream: Any, **options: Any) -> View:
    """The view of all a job's tasks, coloured where `stream` is a terminal."""
    return View(tasks, colour=uses_colour(stream), **options)
