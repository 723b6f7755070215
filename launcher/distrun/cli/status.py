"""`distrun status`."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import job_argument, json_option
from distrun.errors import UsageError

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder

_WATCH_SECONDS = 1.0


@click.command("status")
@job_argument()
@json_option
@click.option(
    "--timing", is_flag=True, help="Show when each attempt reached each of its phases instead."
)
@click.option("-w", "--watch", is_flag=True, help="Redraw every second until the job ends.")
def command(job: str | None, as_json: bool, timing: bool, watch: bool) -> int:
    """Show the state of a job and of each of its tasks. Default: the running job.

    CPU, memory and GPU memory are sums over a task's whole process tree. Once a task has ended,
    they are its processor time and the peak of its memory, over all its attempts. SEEN is when the
    task reported its progress, or printed something.

    \b
      distrun status
      distrun status --watch mnist
      distrun status --timing mnist
      distrun status mnist --json > status.json
    """
    if as_json and watch:
        raise UsageError("--json prints once", hint="to follow a job: distrun events -f --json")
    if timing and watch:
        raise UsageError("--timing prints once", hint="leave out --watch")
    from distrun.cli.job_faults import find_job, tell_problem
    from distrun.cli.timing_view import timing_view
    from distrun.job.control import removed_error
    from distrun.job.job import Job, read_job

    folder = find_job(job)
    if as_json:
        found = read_job(folder)
        tell_problem([found])
        console.print_json({"job": found.to_json()})
        return 0
    if timing:
        shown = timing_view(Job(folder).timing, console.rich_console().width)
        console.print_renderable(shown)
        return 0
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(folder)
        if not folder.path.exists():
            raise removed_error(folder)
    from distrun.cli.status_view import status_view

    found = read_job(folder)
    tell_problem([found])
    view = status_view(found, console.rich_console().width)
    console.print_renderable(view)
    return 0


def _watch(folder: JobFolder) -> None:
    """Redraw the status until the job ends, on the terminal's alternate screen.

    That screen can be resized, and the text above the command stays unchanged. Without a terminal,
    only wait for the end.
    """
    from rich.live import Live

    from distrun.cli.status_view import status_view
    from distrun.job.control import SupervisorWatch
    from distrun.job.job import read_job

    with contextlib.closing(SupervisorWatch(folder)) as supervised:
        if not console.can_redraw(sys.stdout):
            supervised.wait_for_end()
            return
        screen = console.rich_console()
        with Live(console=screen, auto_refresh=False, screen=True) as live:
            while not supervised.has_ended():
                size = screen.size
                view = status_view(read_job(folder), size.width, size.height)
                live.update(view, refresh=True)
                supervised.wait_for_end(_WATCH_SECONDS)
