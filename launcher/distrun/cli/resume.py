"""`distrun resume`."""

from __future__ import annotations

from typing import Any

import click

from distrun.cli.options import (
    all_output_option,
    job_argument,
    notify_option,
    overrides_option,
    strict_option,
    task_option,
)


@click.command("resume")
@job_argument()
@click.option("-d", "--detach", is_flag=True, help="Print the job's id and leave it running.")
@task_option
@all_output_option
@overrides_option
@strict_option
@notify_option
@click.option(
    "--assume-dead",
    "assumed_dead",
    multiple=True,
    metavar="HOST",
    help="Start without verifying that nothing of the job runs on HOST. If something does, two "
    "attempts of a task run at once. For a host that is off for good; may be repeated.",
)
@click.option("--no-preflight", is_flag=True, help="Do not check the hosts before starting.")
def command(
    job: str | None, overrides: tuple[str, ...], assumed_dead: tuple[str, ...], **how: Any
) -> int:
    """Continue a job that failed, was killed or was lost. Default: the newest job.

    The job keeps its id, its record and its spec; --set changes the spec. Its files are sent as
    they are now. Before anything starts, distrun makes sure that nothing of the earlier attempts
    is left on any host. Each task then starts its next attempt.

    \b
      distrun resume mnist
      distrun resume mnist --set restart.max=5
      id=$(distrun resume -d mnist) && distrun logs -f "$id"
    """
    from distrun import resumption
    from distrun.cli import console
    from distrun.cli.launch import launch
    from distrun.jobstore import JobStore

    folder = JobStore.default().find(job)
    supervisor = folder.supervisor_pid()
    if supervisor is not None:
        raise resumption.running_error(folder, supervisor)
    state = folder.state()
    resumption.require_resumable(folder, state)
    spec = resumption.spec_of(folder, overrides)
    resumption.require_former_hosts(state, assumed_dead)
    resumed = resumption.Resumption(
        folder=folder, former=state, changes=overrides, assumed_dead=assumed_dead
    )
    for host in assumed_dead:
        console.print_message(f"warning: it is not verified that nothing of the job runs on {host}")
    return launch(spec, dry_run=False, resumed=resumed, **how)
