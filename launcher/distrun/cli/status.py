"""`distrun status`."""

from __future__ import annotations

import click

from distrun.cli import console
from distrun.cli.job_faults import find_job, tell_problem
from distrun.cli.options import job_argument, json_option
from distrun.errors import UsageError


@click.command("status")
@job_argument()
@json_option
@click.option(
    "--timing", is_flag=True, help="Show when each attempt reached each of its phases instead."
)
@click.option("-w", "--watch", is_flag=True, help="Show it on the whole screen, as watch does.")
def command(job: str | None, as_json: bool, timing: bool, watch: bool) -> int:
    """Show the state of a job and of each of its tasks. Default: the running job, else the newest.

    CPU, memory and GPU memory are sums over a task's whole process tree, sampled every 2 s at
    first, and every minute in a job that runs for long. Once a task has ended, they are its
    processor time and the peak of its memory, over all its attempts. SEEN is when the task
    reported its progress, or printed something.

    \b
      distrun status
      distrun status --timing mnist
      distrun status mnist --json > status.json
    """
    if as_json and watch:
        raise UsageError("--json prints once", hint="to follow a job: distrun events -f --json")
    if timing and watch:
        raise UsageError("--timing prints once", hint="leave out --watch")
    from distrun.job.job import Job, read_job

    folder = find_job(job)
    if watch:
        from distrun.cli.watch import watch as watch_job

        return watch_job(folder)
    found = Job(folder) if timing and not as_json else read_job(folder)
    tell_problem([found])
    if as_json:
        console.print_json({"job": found.to_json()})
        return 0
    from distrun.job.status_view import status_view, timing_view

    width = console.rich_console().width
    shown = timing_view(found.timing, width) if timing else status_view(found, width)
    console.print_renderable(shown)
    return 0
