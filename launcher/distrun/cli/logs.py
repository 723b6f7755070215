"""`distrun logs`."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console
from distrun.cli.completion import complete_tasks
from distrun.cli.console import JSON_VERSION, uses_colour
from distrun.cli.options import job_argument
from distrun.errors import UsageError
from distrun.spec.units import parse_duration

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


def moment(value: str) -> float:
    """Convert a duration before now, or a date and time in ISO 8601, to Unix time."""
    from datetime import datetime

    seconds = parse_duration(value)
    if seconds is not None:
        return time.time() - seconds
    try:
        return datetime.fromisoformat(value).timestamp()  # local time, unless it has an offset
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is no time: write 10m for 10 minutes ago, or 2026-01-31T12:00"
        ) from None


@click.command("logs")
@job_argument(many=True)
@click.option("--all-jobs", is_flag=True, help="Show the output of all jobs.")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job ends.")
@click.option(
    "-n",
    "--lines",
    "--tail",
    "last",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show only the last N lines.",
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
@click.option(
    "--since",
    type=moment,
    metavar="D",
    help="Show only the last D, e.g. 10m, or what was written since a time, e.g. 2026-01-31T12:00.",
)
@click.option(
    "--until", type=moment, metavar="D", help="Show only what was written before, as for --since."
)
@click.option("--timestamps", is_flag=True, help="Show when each line was written.")
@click.option("--raw", is_flag=True, help="Print the bytes unchanged and without prefix.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(
    jobs: tuple[str, ...],
    all_jobs: bool,
    follow: bool,
    tasks: tuple[str, ...],
    last: int | None,
    since: float | None,
    until: float | None,
    as_json: bool,
    **style: Any,
) -> int:
    """Show the output of jobs' tasks, merged by time. Default: the newest job.

    With several jobs, the prefix of a line begins with the job's id.

    \b
      distrun logs -f
      distrun logs mnist -n 50 -t worker:1
      distrun logs mnist --grep 'loss|Error' --since 10m
      distrun logs --all-jobs --grep Error
      distrun logs mnist -t chief --raw > chief.log
    """
    from distrun.control import SupervisorWatch
    from distrun.logs import View, merged

    folders = _folders(jobs, all_jobs=all_jobs)
    is_one = len(folders) == 1 and not all_jobs
    if follow and (until is not None or not is_one):
        what = "--until" if is_one else "several jobs"
        raise UsageError(f"-f follows one job, and to its end: it excludes {what}")
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = None
        if follow:
            supervised = stack.enter_context(contextlib.closing(SupervisorWatch(folders[0])))
        planned = {
            folder: planned_tasks(folder, supervised) or _tasks_by_files(folder)
            for folder in folders
        }
        chosen = {each: chosen_tasks(names, tasks) for each, names in planned.items()}
        check_choice(planned, tasks)
        labelled = as_json or not is_one
        logs = [
            log
            for folder, names in chosen.items()
            for log in task_logs(folder, names, labelled=labelled)
        ]
        names = [log.task for log in logs] if labelled else planned[folders[0]]
        colour = uses_colour(sys.stdout) and not as_json
        version = JSON_VERSION if as_json else 0
        view = View(names, colour=colour, json_version=version, **style)
        if supervised is not None:
            _write(followed(logs, view, supervised, last=last, since=since))
        else:
            _write(merged(logs, view, last=last, since=since, until=until))
    return 0


def _folders(jobs: tuple[str, ...], *, all_jobs: bool) -> list[JobFolder]:
    from distrun.jobstore import JobStore

    store = JobStore.default()
    if jobs and all_jobs:
        raise UsageError("name jobs or use --all-jobs, not both")
    if all_jobs:
        return store.folders()
    try:
        found = {folder.job_id: folder for folder in map(store.find, jobs)}
    except UsageError as error:
        names = store.newest().state().tasks if store.folders() else {}
        named = [each for each in jobs if chosen_tasks([*names], (each,))]
        if named and error.hint:
            error.hint = f"to show one task: distrun logs -t {named[0]}"
        raise
    return list(found.values()) or [store.newest()]


def task_logs(folder: JobFolder, tasks: Iterable[str], *, labelled: bool = False) -> list[TaskLog]:
    """The logs of these tasks. `labelled`: with the job's id before each task's name."""
    from distrun.logs import TaskLog

    before = f"{folder.job_id} " if labelled else ""
    return [
        TaskLog(f"{before}{task}", str(folder.log_of(task)), str(folder.index_of(task)))
        for task in tasks
    ]


def followed(
    logs: list[TaskLog],
    view: View,
    supervised: SupervisorWatch,
    *,
    last: int | None,
    since: float | None,
) -> Iterator[bytes]:
    """The output until now, and what follows until the job ends."""
    from distrun.logs import Follower, line_ends, merged

    ends = line_ends(logs)
    with contextlib.closing(Follower(logs, view, starts=ends)) as follower:
        yield from merged(logs, view, last=last, since=since, ends=ends)
        yield from follower.until(supervised.has_ended, supervised.descriptor)


def _write(blocks: Iterable[bytes]) -> None:
    for block in blocks:
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def planned_tasks(folder: JobFolder, supervised: SupervisorWatch | None) -> list[str]:
    """The names of a job's tasks. With a supervisor, it waits until they are planned."""
    while True:
        ended = supervised is None or supervised.has_ended()
        names = list(folder.state().tasks)
        if names or supervised is None or ended:
            return names
        supervised.wait()


def _tasks_by_files(folder: JobFolder) -> list[str]:
    """Return the tasks that have logs, for a record that has lost the plan; say so."""
    stems = sorted(file.stem for file in folder.logs.glob("*-*.log"))
    if stems:
        console.print_message(
            f"the record of job {folder.job_id} is damaged: it does not name the tasks; "
            f"this is the output in {folder.logs}"
        )
    return [":".join(stem.rsplit("-", 1)) for stem in stems]


def chosen_tasks(names: list[str], wanted: tuple[str, ...]) -> list[str]:
    """The tasks with one of these names or roles; all tasks if `wanted` is empty."""
    return [name for name in names if not wanted or {name, name.partition(":")[0]} & {*wanted}]


def check_choice(planned: dict[JobFolder, list[str]], wanted: tuple[str, ...]) -> None:
    """Raise UsageError if a task is wanted that no job has."""
    names = list(dict.fromkeys(name for each in planned.values() for name in each))
    for each in wanted:
        if not chosen_tasks(names, (each,)):
            whose, they = ("the job has", "it has")
            if len(planned) != 1:
                whose, they = ("the jobs have", "they have")
            raise UsageError(f"{whose} no task {each!r}", hint=f"{they}: {', '.join(names)}")
