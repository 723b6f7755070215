"""The output of a job's tasks: which logs there are, and what is read from them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from distrun.errors import UsageError
from distrun.job.control import JobWatch
from distrun.job.folder import JobFolder
from distrun.logs import Follower, JoinedLog, LatePart, TaskLog, View, line_ends, merged
from distrun.words.formats import format_names


def planned_tasks(folder: JobFolder, supervised: JobWatch | None) -> list[str]:
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


def check_choice(planned: list[list[str]], wanted: tuple[str, ...]) -> None:
    """Raise UsageError if a task is wanted that no job has. `planned`: each job's tasks."""
    names = list(dict.fromkeys(name for each in planned for name in each))
    for each in wanted:
        if not chosen_tasks(names, (each,)):
            whose, they = ("the job has", "it has")
            if len(planned) != 1:
                whose, they = ("the jobs have", "they have")
            hint = f"{they}: {format_names(names) or 'none, as none was planned'}"
            raise UsageError(f"{whose} no task {each!r}", hint=hint)


def joined_logs(folder: JobFolder, logs: Iterable[TaskLog]) -> list[TaskLog]:
    """Return a job's logs with the output that arrived late, from hosts that had been lost."""
    late = folder.late_logs()
    joined: list[TaskLog] = []
    for log in logs:
        parts = []
        for offset, path, index in late.get(folder.log_of(log.task.rpartition(" ")[2]), ()):
            part = TaskLog(log.task, str(path), str(index))
            parts.append(LatePart(offset, part, part.extent().size))
        joined.append(JoinedLog(log.task, log.path, log.index_path, tuple(parts)) if parts else log)
    return joined


def output_logs(folder: JobFolder, tasks: Iterable[str], *, labelled: bool) -> list[TaskLog]:
    """The whole logs of these tasks. `labelled`: with the job's id before each task's name."""
    return joined_logs(folder, (TaskLog.of(folder, task, labelled=labelled) for task in tasks))


def followed(
    folder: JobFolder,
    logs: list[TaskLog],
    view: View,
    supervised: JobWatch,
    *,
    last: int | None,
    since: float | None,
    on_dropped: Callable[[str, int], None] | None = None,
    on_silent: Callable[[], None] = lambda: None,
) -> Iterator[bytes]:
    """The output until now, and what follows until the job ends. What arrives late is last.

    `on_dropped` is called with a task and the bytes of its output that can no longer be shown;
    `on_silent` once a task has printed nothing but start-up lines.
    """
    ends = line_ends(logs)
    shown = {part.log.path: part.size for log in logs for part in _parts(log)}
    own = [log.own if isinstance(log, JoinedLog) else log for log in logs]
    starts = [
        log.own_offset(end) if isinstance(log, JoinedLog) else end
        for log, end in zip(logs, ends, strict=True)
    ]
    startup = view.startup

    def has_ended() -> bool:
        nonlocal startup
        if startup is not None and startup.silent:
            startup = None
            on_silent()
        return supervised.has_ended()

    polls = supervised.polls
    with contextlib.closing(Follower(own, view, starts=starts, polls=polls)) as follower:
        yield from merged(logs, view, last=last, since=since, ends=ends, on_dropped=on_dropped)
        yield from follower.until(has_ended, supervised.descriptor)
        if on_dropped is not None:
            for task, size in follower.dropped.items():
                on_dropped(task, size)
    late = [part.log for log in joined_logs(folder, own) for part in _parts(log)]
    starts = [shown.get(log.path, 0) for log in late]
    with contextlib.closing(Follower(late, view, starts=starts)) as follower:
        yield from follower.finish()


def _parts(log: TaskLog) -> Sequence[LatePart]:
    return log.parts if isinstance(log, JoinedLog) else ()
