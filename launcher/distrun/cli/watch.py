"""`distrun watch`."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from distrun.agent.linux import processes
from distrun.cli import console
from distrun.cli.options import job_argument
from distrun.errors import UsageError

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder


@click.command("watch")
@job_argument(only="running")
def command(job: str | None) -> int:
    """Watch a job on the whole screen. Default: the running job.

    All tasks are shown with their state, step, rate, processor, memory and GPU, and below them the
    log of the chosen one. Keys choose a task, filter them, show its stacks, and stop the job, which
    asks first. The last line lists them. The job does not end when you leave; the exit code is 0.

    It needs textual: pip install textual

    \b
      distrun watch
      distrun watch mnist
    """
    from distrun.job.queued_job import find

    return watch(find(job))


def watch(folder: JobFolder) -> int:
    """Show a job on the whole screen, until the user leaves it; return the exit code.

    Raises:
        HostError: there is no textual.
        UsageError: there is no terminal.
    """
    console.require("watch", "textual")
    if not (sys.stdin.isatty() and all(map(console.can_redraw, (sys.stdout, sys.stderr)))):
        hint = f"without one: distrun status {folder.job_id}"
        raise UsageError("watch needs a terminal", hint=hint)
    from distrun.cli.watch_screen import WatchApp

    # textual would wait forever to write to a terminal that is gone.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    code = WatchApp(folder).run() or 0
    # A scheduler may not answer: what asks it is not waited for, and would stay.
    for each in [*processes.tree(os.getpid())][1:]:
        processes.send(each, signal.SIGKILL)
    return code
