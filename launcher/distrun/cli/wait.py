"""`distrun wait`."""

from __future__ import annotations

import time

import click

from distrun.cli import console
from distrun.cli.options import duration, job_argument
from distrun.errors import DistrunError, HostError, WaitTimeoutError


@click.command("wait")
@job_argument(many=True, only="running")
@click.option(
    "--timeout", type=duration, metavar="D", help="Stop waiting after D and exit with 124."
)
def command(jobs: tuple[str, ...], timeout: float | None) -> int:
    """Wait until jobs end, and exit with their result. Default: the running job, else the newest.

    For each job, one line on stderr says how it ended. With several jobs, the exit code is that of
    the first one in the list that did not succeed.

    \b
      distrun wait mnist && echo trained
      distrun wait --timeout 2h mnist
    """
    from distrun.job import control, leftovers
    from distrun.job.end_report import end_line, exit_line
    from distrun.job.job import Job
    from distrun.job.queued_job import find

    folders = [find(job) for job in jobs or (None,)]
    deadline = None if timeout is None else time.monotonic() + timeout
    failed = []
    is_verified = True
    for folder in folders:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            state = control.wait_for_final_state(folder, left)
        except WaitTimeoutError:
            raise
        except DistrunError as error:  # it is lost; others may still run
            console.print_error(error)
            failed.append((error.exit_code, f"distrun: exit code {error.exit_code}, distrun's"))
            continue
        if (outcome := state.outcome) is not None and outcome.exit_code:
            failed.append((outcome.exit_code, exit_line(outcome)))
        console.print_lines([end_line(Job(folder, state))])
        if (unended := leftovers.unended_error(folder, state)) is not None:
            console.print_error(unended)
            is_verified = False
        # It may still run on a host that could not be reached.
        if not folder.is_elsewhere and (hosts := leftovers.unverified_hosts(state)):
            console.print_error(leftovers.unreached_error(folder, hosts))
            is_verified = False
    if not failed:
        return 0 if is_verified else HostError.exit_code
    code, line = failed[0]
    if len(folders) > 1:
        console.print_lines([line])
    return code
