"""`distrun logs`."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from distrun.cli.completion import complete_tasks
from distrun.cli.console import uses_colour
from distrun.cli.options import duration, job_argument
from distrun.errors import UsageError

if TYPE_CHECKING:
    from distrun.control import SupervisorWatch
    from distrun.jobstore import JobFolder
    from distrun.logs import TaskLog, View


def pattern(value: str) -> re.Pattern[bytes]:
    """Compile a regular expression for bytes."""
    try:
        return re.compile(value.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}") from None


@click.command("logs")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job ends.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Show only the last N lines."
)
@click.option(
    "-t",
    "--task",
    "tasks",
    multiple=True,
    metavar="TASK",
    shell_complete=complete_tasks,
    help="Show only this task, e.g. worker:0, or this role, e.g. worker. Repeatable.",
)
@click.option("--grep", type=pattern, metavar="RE", help="Show only lines that match RE.")
@click.option("--since", type=duration, metavar="D", help="Show only the last D, e.g. 10m.")
@click.option("--timestamps", is_flag=True, help="Show when each line was written.")
@click.option("--raw", is_flag=True, help="Print the bytes unchanged and without prefix.")
def command(
    job: str | None,
    follow: bool,
    lines: int | None,
    tasks: tuple[str, ...],
    since: float | None,
    **style: Any,
) -> int:
    """Show the output of a job's tasks, merged by time. Default: the newest job.

    \b
      distrun logs -f
      distrun logs mnist -n 50 -t worker:1
      distrun logs mnist --grep 'loss|Error' --since 10m
      distrun logs mnist -t chief --raw > chief.log
    """
    from distrun.control import SupervisorWatch
    from distrun.jobstore import JobStore

    folder = JobStore.default().find(job)
    if since is not None:
        since = time.time() - since
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = (
            stack.enter_context(contextlib.closing(SupervisorWatch(folder))) if follow else None
        )
        _print(folder, tasks, style, supervised, last=lines, since=since)
    return 0


def task_logs(folder: JobFolder, tasks: Iterable[str]) -> list[TaskLog]:
    """The logs of these tasks."""
    from distrun.logs import TaskLog

    return [TaskLog(task, str(folder.log_of(task)), str(folder.index_of(task))) for task in tasks]


def _print(
    folder: JobFolder,
    tasks: tuple[str, ...],
    style: dict[str, Any],
    supervised: SupervisorWatch | None,
    *,
    last: int | None,
    since: float | None,
) -> None:
    from distrun.logs import View

    names = planned_tasks(folder, supervised)
    view = View(names, colour=uses_colour(sys.stdout), **style)
    chosen = chosen_tasks(names, tasks)
    for block in output(folder, chosen, view, supervised, last=last, since=since):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def output(
    folder: JobFolder,
    tasks: Iterable[str],
    view: View,
    supervised: SupervisorWatch | None,
    *,
    last: int | None,
    since: float | None,
) -> Iterator[bytes]:
    """The output until now; with a supervisor, also what follows until the job ends."""
    from distrun.logs import Follower, line_ends, merged

    logs = task_logs(folder, tasks)
    if supervised is None:
        yield from merged(logs, view, last=last, since=since)
        return
    ends = line_ends(logs)
    with contextlib.closing(Follower(logs, view, starts=ends)) as follower:
        yield from merged(logs, view, last=last, since=since, ends=ends)
        yield from follower.until(supervised.has_ended, supervised.descriptor)


def planned_tasks(folder: JobFolder, supervised: SupervisorWatch | None) -> list[str]:
    """The names of a job's tasks. With a supervisor, it waits until they are planned."""
    while True:
        ended = supervised is None or supervised.has_ended()
        names = list(folder.state().tasks)
        if names or supervised is None or ended:
            return names
        supervised.wait()


def chosen_tasks(names: list[str], wanted: tuple[str, ...]) -> list[str]:
    """The tasks with one of these names or roles; all tasks if `wanted` is empty."""
    if not wanted:
        return names
    chosen = set()
    for each in wanted:
        found = [name for name in names if each in (name, name.partition(":")[0])]
        if not found:
            raise UsageError(f"the job has no task {each!r}", hint=f"it has: {', '.join(names)}")
        chosen.update(found)
    return [name for name in names if name in chosen]
