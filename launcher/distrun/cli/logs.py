"""`distrun logs`."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console, streams
from distrun.cli.job_faults import refresh, tell_record_fault
from distrun.cli.options import all_output_option, job_argument, task_option
from distrun.errors import UsageError
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes, parse_duration
from distrun.words.formats import format_count, format_names

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder
    from distrun.logs import StartupFilter


def pattern(values: tuple[str, ...]) -> re.Pattern[bytes] | None:
    """Return what matches any of some regular expressions; None if there are none."""
    if not values:
        return None
    if not all(values):
        raise click.BadParameter("it is empty, and every line matches that")
    value = "|".join(values)
    try:
        return re.compile(value.encode("utf-8", "surrogateescape"))
    except (re.error, RecursionError, OverflowError) as error:
        raise click.BadParameter(f"{value!r} is not a regular expression: {error}") from None


def moment(value: str) -> float:
    """Convert a duration before now, or a date and time in ISO 8601, to Unix time."""
    seconds = parse_duration(value)
    if seconds is not None:
        return time.time() - seconds
    try:
        return datetime.fromisoformat(value).timestamp()  # local time, unless it has an offset
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is not a time: write 10m for 10 minutes ago, or 2026-01-31T12:00"
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
@task_option
@click.option(
    "--grep",
    multiple=True,
    callback=lambda *given: pattern(given[2]),
    metavar="RE",
    help="Show only lines that match RE. Repeatable: one of them is enough.",
)
@click.option(
    "--since",
    type=moment,
    metavar="D",
    help="Show only the last D, e.g. 10m, or what was written since a time, e.g. 2026-01-31T12:00.",
)
@click.option(
    "--until",
    type=moment,
    metavar="D",
    help="Leave out the last D, or what was written since a time.",
)
@all_output_option
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
    **style: Any,
) -> int:
    """Show the output of jobs' tasks, merged by time. Default: the running job, else the newest.

    TensorFlow's harmless start-up lines are left out, but not with --all-output, --grep, --json or
    --raw. A message on stderr counts them.

    With several jobs, the prefix of a line begins with the job's id. -f ends with the job's result
    on stderr.

    \b
      distrun logs -f
      distrun logs mnist -n 50 -t worker:1
      distrun logs mnist --grep 'loss|Error' --since 10m
      distrun logs --all-jobs --grep Error
      distrun logs mnist -t chief --raw > chief.log
    """
    from distrun.codec import JSON_VERSION
    from distrun.job import chosen_logs
    from distrun.job.control import watch
    from distrun.logs import StartupFilter, View, merged

    folders = _folders(jobs, all_jobs=all_jobs)
    for folder in folders:
        tell_record_fault(folder)
    is_one = len(folders) == 1 and not all_jobs
    if follow and (until is not None or not is_one):
        what = "--until" if is_one else "several jobs"
        raise UsageError(f"-f follows one job until it ends: it cannot be used with {what}")
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = None
        if follow:
            streams.end_with_reader()
            supervised = stack.enter_context(contextlib.closing(watch(folders[0])))
        planned = {
            folder: chosen_logs.planned_tasks(folder, supervised) or _tasks_by_files(folder)
            for folder in folders
        }
        chosen = {each: chosen_logs.chosen_tasks(names, tasks) for each, names in planned.items()}
        chosen_logs.check_choice([*planned.values()], tasks)
        as_json, all_output = style.pop("as_json"), style.pop("all_output")
        labelled = as_json or not is_one
        logs = [
            log
            for folder, names in chosen.items()
            for log in chosen_logs.output_logs(folder, names, labelled=labelled)
        ]
        names = [log.task for log in logs] if labelled else planned[folders[0]]
        colour = console.uses_colour(sys.stdout) and not as_json
        version = JSON_VERSION if as_json else 0
        startup = None
        if not (all_output or as_json or style["raw"] or style["grep"] is not None):
            states = [(f"{each.job_id} " if labelled else "", each.state()) for each in chosen]
            startup = StartupFilter(
                [before + name for before, state in states for name in state.gpu_tasks]
            )
        view = View(names, colour=colour, json_version=version, startup=startup, **style)
        reading: dict[str, Any] = {
            "last": last,
            "since": since,
            "on_dropped": DroppedOutput(folders),
        }
        if supervised is not None:
            if startup is not None:
                reading["on_silent"] = partial(_report_left_out, startup, names)
            _write(chosen_logs.followed(folders[0], logs, view, supervised, **reading))
            is_seen = sys.stdout.isatty() and view.grep is None
            _report_end(folders[0], startup, chosen[folders[0]] if is_seen else [])
            return 0
        _write(merged(logs, view, until=until, **reading))
        if startup is not None and startup.count and (startup.silent or last is None):
            _report_left_out(startup, names)
    return 0


def left_out_text(count: int, silent: Sequence[str] = ()) -> str:
    """`12 start-up lines left out (see --all-output)`; empty if there are none.

    `silent`: tasks that are named because they printed nothing else.
    """
    others = f"; {format_names(silent)} printed nothing else" if silent else ""
    lines = format_count(count, "start-up line")
    return f"{lines} left out (see --all-output){others}" if count else ""


def _report_left_out(startup: StartupFilter, tasks: Sequence[str]) -> None:
    silent = startup.silent
    named = [task for task in tasks if task in silent]
    console.print_message(left_out_text(startup.count, named))


def _report_end(folder: JobFolder, startup: StartupFilter | None, shown: Sequence[str]) -> None:
    """Print how a job has ended, as `launch` does. `shown`: the tasks whose end was just shown."""
    from distrun.job.control import wait_for_final_state
    from distrun.job.end_report import closing_lines
    from distrun.job.job import Job

    left_out = "" if startup is None else left_out_text(startup.count, [*startup.silent])
    state = wait_for_final_state(folder)
    console.print_lines(closing_lines(Job(folder, state), shown=shown, left_out=left_out))


def _folders(jobs: tuple[str, ...], *, all_jobs: bool) -> list[JobFolder]:
    from distrun.job import queued_job
    from distrun.job.chosen_logs import chosen_tasks
    from distrun.job.folder import JobStore

    store = JobStore.default()
    if jobs and all_jobs:
        raise UsageError("name jobs or use --all-jobs, not both")
    if all_jobs:
        return store.folders()
    try:
        found = {folder.job_id: folder for folder in map(store.find, jobs)}
    except UsageError as error:
        names = store.newest().state().task_names if store.folders() else []
        named = [each for each in jobs if chosen_tasks([*names], (each,))]
        if named and error.hint:
            others = "".join(f"{quote(each)} " for each in jobs if each not in named)
            error.hint = f"to show one task: distrun logs {printable(others)}-t {quote(named[0])}"
        raise
    folders = list(found.values()) or [queued_job.find(None)]
    for each in folders:
        refresh(each)
    return folders


class DroppedOutput:
    """Says once for each task that output was dropped before it could be shown."""

    def __init__(self, folders: Iterable[JobFolder]) -> None:
        self._folders = {folder.job_id: folder for folder in folders}
        self._said: set[str] = set()

    def __call__(self, task: str, size: int) -> None:
        """Print the message. The task's name may begin with the job's id; `size` is in bytes."""
        if task not in self._said:
            self._said.add(task)
            job_id = task.rpartition(" ")[0] or next(iter(self._folders))
            limit = self._folders[job_id].state().log_max_size
            why = "" if limit is None else f" (logs.max_size: {format_bytes(limit)})"
            first = f"the first {format_bytes(size)} were dropped"
            console.print_message(f"{task}: {first}{why}")


def _write(blocks: Iterable[bytes]) -> None:
    for block in blocks:
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def _tasks_by_files(folder: JobFolder) -> list[str]:
    """Return the tasks that have logs, for a record that has lost the plan; say so."""
    tasks = folder.logged_tasks()
    if tasks:
        console.print_message(
            f"the record of job {folder.job_id} is damaged: it does not name the tasks; "
            f"this is the output in {folder.logs}"
        )
    return tasks
