"""`distrun resume`."""

from __future__ import annotations

import shlex
from typing import Any

import click

from distrun.cli import console, options
from distrun.cli.launch import launch
from distrun.cli.transfer_bar import read_files
from distrun.errors import UsageError
from distrun.job import queued_job, resumption
from distrun.job.folder import JobFolder, JobStore
from distrun.slurm import submission


class _Command(options.WithProgramArguments):
    """What follows `--` is `args`; without `--`, they are None."""

    subject = "JOB"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        if ctx.params["args"]:
            given = f"Got unexpected extra argument ({shlex.join(ctx.params['args'])})."
            raise click.UsageError(f"{given} Arguments of your program follow `--`.", ctx=ctx)
        ctx.params["args"] = tuple(args[at + 1 :]) if at < len(args) else None
        return rest


@click.command("resume", cls=_Command)
@options.job_argument(only="resumable")
@click.argument("args", nargs=-1, metavar="[-- ARGS...]")
@options.detach_option
@options.task_option
@options.all_output_option
@options.overrides_option
@options.strict_option
@click.option(
    "--assume-dead",
    "assumed_dead",
    multiple=True,
    metavar="HOST",
    help="Start without verifying that nothing of the job runs on HOST. If something does, two "
    "attempts of a task run at once. For a host that is off for good. Repeatable.",
)
@options.no_preflight_option
def command(
    job: str | None,
    args: tuple[str, ...] | None,
    overrides: tuple[str, ...],
    assumed_dead: tuple[str, ...],
    **how: Any,
) -> int:
    """Continue a job that failed, was killed or was lost. Default: the newest job.

    A job of `distrun submit` is submitted again.

    The job keeps its id, its record and its spec; --set changes the spec. Everything after `--`
    is passed to your program in place of what followed `--` before. Its files are sent as
    they are now. Before anything starts, distrun makes sure that nothing of the earlier attempts
    is left on any host. Each task then starts its next attempt.

    \b
      distrun resume mnist
      distrun resume mnist --set restart.max=5
      distrun resume mnist -- --epochs 40
      id=$(distrun resume -d mnist) && distrun logs -f "$id"
    """
    store = JobStore.default()
    folder = store.newest() if job is None else store.find(job)
    if folder.supervisor_pid() is not None:
        raise resumption.running_error(folder)
    if folder.batch_job() is not None:
        if assumed_dead or any(value for name, value in how.items() if name != "detach"):
            raise UsageError(
                f"job {folder.job_id} was submitted: distrun submits it again",
                hint="of the options, only --set and --detach can be given",
            )
        return _queue_again(folder, overrides, args)
    state = folder.state()
    resumption.require_resumable(folder, state)
    resumption.require_workdir(folder, overrides)
    spec = resumption.spec_of(folder, overrides, args)
    overrides += () if args is None else (f"-- {shlex.join(args)}",)
    resumption.require_former_hosts(state, assumed_dead)
    resumed = resumption.Resumption(
        folder=folder, former=state, changes=overrides, assumed_dead=assumed_dead
    )
    for host in assumed_dead:
        console.print_message(f"warning: it is not verified that nothing of the job runs on {host}")
    return launch(spec, options.LaunchOptions(resumed=resumed, **how))


def _queue_again(
    folder: JobFolder, overrides: tuple[str, ...], args: tuple[str, ...] | None
) -> int:
    """Submit a job to Slurm or to Kubernetes again."""
    batch = folder.batch_job()
    if batch is not None and not batch.is_own:
        raise UsageError(
            f"job {folder.job_id} was submitted from another machine",
            hint="resume it there, where the program's files are",
        )
    queued_job.refresh(folder)
    resumption.require_resumable(folder, folder.state())
    spec = resumption.spec_of(folder, overrides, args)
    if batch is not None and batch.namespace:
        from distrun.kubernetes.submission import resubmit

        resubmit(folder, spec, read_files(spec), console.print_message)
    else:
        submission.resubmit(folder, spec)
    console.print_text(folder.job_id)
    return 0
