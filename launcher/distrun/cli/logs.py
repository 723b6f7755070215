"""`distrun logs`."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console
from distrun.cli.job_faults import find_job
from distrun.cli.options import all_output_option, job_argument, task_option
from distrun.errors import DistrunError, UsageError
from distrun.spec.units import format_bytes, parse_duration
from distrun.words.formats import format_count

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder
    from distrun.logs import StartupFilter


def pattern(value: str) -> re.Pattern[bytes]:
    if not value:
        raise click.BadParameter("it is empty, and every line matches that")
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
@job_argument()
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
@click.option("--grep", type=pattern, metavar="RE", help="Show only lines that match RE.")
@click.option(
    "--since",
    type=moment,
    metavar="D",
    help="Show only the last D, e.g. 10m, or what was written since a time, e.g. 2026-01-31T12:00.",
)
@all_output_option
@click.option("--timestamps", is_flag=True, help="Show when each line was written.")
@click.option("--raw", is_flag=True, help="Print the bytes unchanged and without prefix.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(
    job: str | None,
    follow: bool,
    tasks: tuple[str, ...],
    last: int | None,
    since: float | None,
    **style: Any,
) -> int:
    """Show the output of a job's tasks, merged by time. Default: the running job.

    TensorFlow's harmless start-up lines are left out, but not with --all-output, --grep, --json or
    --raw. A message on stderr counts them.

    -f ends with the job's result on stderr.

    \b
      distrun logs -f
      distrun logs mnist -n 50 -t worker:1
      distrun logs mnist --grep 'loss|Error' --since 10m
      distrun logs mnist -t chief --raw > chief.log
    """
    from distrun.codec import JSON_VERSION
    from distrun.job import chosen_logs
    from distrun.job.control import SupervisorWatch
    from distrun.logs import StartupFilter, View, merged

    folder = _find(job)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        supervised = None
        if follow:
            supervised = stack.enter_context(contextlib.closing(SupervisorWatch(folder)))
        planned = chosen_logs.planned_tasks(folder, supervised) or _tasks_by_files(folder)
        chosen_logs.check_choice(planned, tasks)
        chosen = chosen_logs.chosen_tasks(planned, tasks)
        as_json, all_output = style.pop("as_json"), style.pop("all_output")
        startup = None
        if not (all_output or as_json or style["raw"] or style["grep"] is not None):
            startup = StartupFilter(folder.state().gpu_tasks)
        colour = console.uses_colour(sys.stdout) and not as_json
        of_json = (JSON_VERSION, folder.job_id) if as_json else None
        view = View(planned, colour=colour, json=of_json, startup=startup, **style)
        reading: dict[str, Any] = {
            "last": last,
            "since": since,
            "on_dropped": DroppedOutput(folder),
        }
        if supervised is not None:
            _write(chosen_logs.followed(folder, chosen, view, supervised, **reading))
            is_seen = sys.stdout.isatty() and view.grep is None
            _report_end(folder, startup, chosen if is_seen else [])
            return 0
        _write(merged(chosen_logs.output_logs(folder, chosen), view, **reading))
        if startup is not None and startup.count and last is None:
            console.print_message(left_out_text(startup.count))
    return 0


def left_out_text(count: int) -> str:
    """`12 start-up lines left out (see --all-output)`; empty if there are none."""
    return f"{format_count(count, 'start-up line')} left out (see --all-output)" if count else ""


def _report_end(folder: JobFolder, startup: StartupFilter | None, shown: Sequence[str]) -> None:
    """Print how a job has ended, as `launch` does. `shown`: the tasks whose end was just shown."""
    from distrun.job.control import wait_for_final_state
    from distrun.job.end_report import closing_lines
    from distrun.job.job import Job

    left_out = "" if startup is None else left_out_text(startup.count)
    try:
        state = wait_for_final_state(folder)
    except DistrunError as error:  # it was lost: its output is complete all the same
        console.print_error(error)
        return
    console.print_lines(closing_lines(Job(folder, state), shown=shown, left_out=left_out))


def _find(job: str | None) -> JobFolder:
    """Find the job. The hint for a name that is a task's says how to show that."""
    from distrun.job.chosen_logs import chosen_tasks
    from distrun.job.folder import JobStore

    store = JobStore.default()
    try:
        return find_job(job)
    except UsageError as error:
        names = store.find(None).state().task_names if store.folders() else []
        if job and error.hint and chosen_tasks([*names], (job,)):
            error.hint = f"to show one task: distrun logs -t {job}"
        raise


class DroppedOutput:
    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._said: set[str] = set()

    def __call__(self, task: str, size: int) -> None:
        """Print the message; `size` is in bytes."""
        if task not in self._said:
            self._said.add(task)
            limit = self._folder.state().log_max_size
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
