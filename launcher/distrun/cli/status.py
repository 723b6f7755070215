"""`distrun status`."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import job_argument, json_option
from distrun.errors import UsageError

if TYPE_CHECKING:
    from distrun.jobstore import JobFolder

_WATCH_SECONDS = 1.0


@click.command("status", short_help="Show one job's tasks.")
@job_argument()
@json_option
@click.option("-w", "--watch", is_flag=True, help="Redraw every second until the job ends.")
def command(job: str | None, as_json: bool, watch: bool) -> int:
    """Show the state of one job and of each of its tasks; without JOB, of the newest.

    CPU, memory and GPU memory are those of a task's whole process tree.

    \b
      distrun status
      distrun status --watch mnist
      distrun status mnist --json > status.json
    """
    from distrun.cli.job_view import describe
    from distrun.jobstore import JobStore

    if as_json and watch:
        raise UsageError("--json prints once", hint="distrun events -f --json tells what happens")
    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    if as_json:
        console.put_json({"job": describe(folder)})
        return 0
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(folder)
    from distrun.cli.statusview import status_view

    console.put_view(status_view(describe(folder), console.rich_console().width))
    return 0


def _watch(folder: JobFolder) -> None:
    """Draw it again and again until the job ends, on a screen of its own where there is one.

    That screen survives any resizing, and what was above the command stays as it was.
    """
    from rich.live import Live

    from distrun.cli.job_view import describe
    from distrun.cli.statusview import status_view
    from distrun.control import Supervised

    can_redraw = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    with contextlib.closing(Supervised(folder)) as supervised:
        if not can_redraw:
            supervised.wait_for_end()
            return
        screen = console.rich_console()
        with Live(console=screen, auto_refresh=False, screen=True) as live:
            while not supervised.has_ended():
                size = screen.size
                view = status_view(describe(folder), size.width, size.height)
                live.update(view, refresh=True)
                supervised.wait_for_end(_WATCH_SECONDS)
