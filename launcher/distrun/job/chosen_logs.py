"""The output of a job's tasks: which logs there are, and what is read from them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from distrun.agent.protocol import INDEX_SUFFIX
from distrun.errors import UsageError
from distrun.logs import Follower, TaskLog, View, line_ends, merged
from distrun.words.formats import format_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from distrun.job.control import SupervisorWatch
    from distrun.job.folder import JobFolder


def planned_tasks(folder: JobFolder, supervised: SupervisorWatch | None) -> list[str]:
    """The names of a job's tasks. With a supervisor, it waits until they are planned."""
    while True:
        ended = supervised is None or supervised.has_ended()
        names = folder.state().task_names
        if names or supervised is None or ended:
            return names
        supervised.wait()


def chosen_tasks(names: list[str], wanted: tuple[str, ...]) -> list[str]:
    """The tasks with one of these names or roles (also as `worker:*`); all if `wanted` is empty."""
    chosen = {each.removesuffix(":*") for each in wanted}
    return [name for name in names if not wanted or {name, name.partition(":")[0]} & chosen]


def check_choice(names: list[str], wanted: tuple[str, ...]) -> None:
    """Raise UsageError if a task is wanted that the job does not have."""
    for each in wanted:
        if not chosen_tasks(names, (each,)):
            hint = f"it has: {format_names(names)}"
            raise UsageError(f"the job has no task {each!r}", hint=hint)


def output_logs(folder: JobFolder, tasks: Iterable[str]) -> list[TaskLog]:
    """The logs of these tasks, each after the files with output that arrived late.

    Such a file has an index, as each log has one: merged by time, its lines are in their place.
    """
    late = folder.late_logs()
    logs = []
    for task in tasks:
        log = folder.log_of(task)
        paths = [*late.get(log, ()), log]
        logs += [TaskLog(task, str(each), str(each.with_suffix(INDEX_SUFFIX))) for each in paths]
    return logs


def followed(
    folder: JobFolder,
    tasks: Sequence[str],
    view: View,
    supervised: SupervisorWatch,
    *,
    last: int | None,
    since: float | None,
    on_dropped: Callable[[str, int], None] | None = None,
) -> Iterator[bytes]:
    """The output until now, and what follows until the job ends. What arrives late is last.

    `on_dropped` is called with a task and the bytes of its output that can no longer be shown.
    """
    logs = output_logs(folder, tasks)
    ends, polls = line_ends(logs), supervised.polls
    with contextlib.closing(Follower(logs, view, starts=ends, polls=polls)) as follower:
        yield from merged(logs, view, last=last, since=since, ends=ends, on_dropped=on_dropped)
        yield from follower.until(supervised.has_ended, supervised.descriptor)
        if on_dropped is not None:
            for task, size in follower.dropped.items():
                on_dropped(task, size)
    late = [log for log in output_logs(folder, tasks) if log not in logs]
    with contextlib.closing(Follower(late, view)) as follower:
        yield from follower.finish()
