"""`distrun wait`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import duration, job_argument
from distrun.errors import HostError

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder
    from distrun.lifecycle import JobState


@click.command("wait")
@job_argument(many=True, running=True)
@click.option(
    "--timeout", type=duration, metavar="D", help="Stop waiting after D and exit with 124."
)
def command(jobs: tuple[str, ...], timeout: float | None) -> int:
    """Wait until jobs have ended, and exit with their result. Default: the running job.

    For each job, one line on stderr says how it ended.

    With several jobs, the exit code is that of the first one in the list that did not succeed.

    \b
      distrun wait mnist && echo trained
      distrun wait --timeout 2h mnist
    """
    from distrun.job.end_report import exit_line
    from distrun.job.folder import JobStore

    store = JobStore.default()
    folders = [store.find(job) for job in jobs] or [store.find(None)]
    deadline = None if timeout is None else time.monotonic() + timeout
    outcomes = []
    unverified: list[JobFolder] = []
    for folder in folders:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        outcomes.append(_wait(folder, left, unverified).outcome)
    failed = [outcome for outcome in outcomes if outcome is not None and outcome.exit_code]
    if not failed:
        return HostError.exit_code if unverified else 0
    if len(folders) > 1:
        console.print_lines([exit_line(failed[0])])
    return failed[0].exit_code


def _wait(folder: JobFolder, timeout: float | None, unverified: list[JobFolder]) -> JobState:
    """Wait for the end of a job, whatever it is.

    A job that may still run on a host that could not be reached is added to `unverified`.
    """
    from distrun.job import control, leftovers
    from distrun.job.end_report import end_line
    from distrun.job.job import Job

    state = control.wait_for_final_state(folder, timeout)
    console.print_lines([end_line(Job(folder, state))])
    if not folder.is_elsewhere and (hosts := leftovers.unverified_hosts(state)):
        console.print_error(leftovers.unreached_error(folder, hosts))
        unverified.append(folder)
    return state
