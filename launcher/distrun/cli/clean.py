"""`distrun clean`."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import duration
from distrun.cli.text_format import format_count
from distrun.spec.units import format_bytes

if TYPE_CHECKING:
    from distrun.jobstore import JobFolder


@click.command("clean")
@click.option(
    "--older-than", type=duration, metavar="D", help="Only jobs that ended more than D ago."
)
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be removed.")
def command(older_than: float | None, dry_run: bool) -> int:
    """Remove the records and logs of ended jobs. Running jobs are never touched.

    \b
      distrun clean --older-than 7d
      distrun clean --dry-run
    """
    from distrun.jobstore import JobStore

    store = JobStore.default()
    count = size = 0
    for folder in [*store.folders(), *store.unfinished()]:
        if _is_in_use(folder):
            continue
        if older_than is not None and folder.last_change() > time.time() - older_than:
            continue
        with contextlib.suppress(FileNotFoundError):  # another `clean` removed it
            if not folder.is_a_job:
                continue
            size += folder.size()
            if not dry_run:
                folder.remove()
            count += 1
            console.print_text(folder.job_id)
    verb = "would remove" if dry_run else "removed"
    console.print_message(f"{verb} {format_count(count, 'job')}, {format_bytes(size)}")
    return 0


def _is_in_use(folder: JobFolder) -> bool:
    """Whether its supervisor is alive, or has just died and left tasks that are still ending."""
    from distrun import control

    if folder.supervisor_pid() is not None:
        return True
    return not folder.state().phase.is_final and control.has_processes(folder.job_id)
