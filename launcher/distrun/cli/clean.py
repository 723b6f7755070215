"""`distrun clean`."""

from __future__ import annotations

import time

import click

from distrun.cli import console
from distrun.cli.options import Duration


@click.command("clean", short_help="Remove the records of ended jobs.")
@click.option(
    "--older-than", type=Duration(), metavar="D", help="Only of those that ended so long ago."
)
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
def command(older_than: float | None, dry_run: bool) -> int:
    """Remove the records and logs of jobs that have ended. Running jobs are never touched.

    \b
      distrun clean --older-than 7d
      distrun clean --dry-run
    """
    from distrun.jobstore import JobStore

    store = JobStore.default()
    count = size = 0
    for folder in [*store.folders(), *store.unfinished()]:
        if folder.supervisor_pid() is not None:
            continue
        if older_than is not None and folder.last_change() > time.time() - older_than:
            continue
        count += 1
        size += folder.size()
        console.put(folder.job_id)
        if not dry_run:
            folder.remove()
    verb = "would remove" if dry_run else "removed"
    jobs = "1 job" if count == 1 else f"{count} jobs"
    console.say(f"{verb} {jobs}, {console.size(size)}")
    return 0
