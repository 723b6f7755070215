"""`distrun launch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from distrun.cli.options import (
    WithProgramArguments,
    name_option,
    notify_option,
    overrides_option,
    spec_argument,
    strict_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.spec.model import Spec

_OPTIONS = (
    click.option("-d", "--detach", is_flag=True, help="Print the job's id and leave it running."),
    name_option,
    overrides_option,
    strict_option,
    notify_option,
    click.option("--no-preflight", is_flag=True, help="Do not check the hosts before starting."),
    click.option("--dry-run", is_flag=True, help="Show what would run, like `distrun plan`."),
)


def launch_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that `launch` and `run` share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("launch", cls=WithProgramArguments)
@spec_argument()
@click.argument("args", nargs=-1)
@launch_options
def command(
    spec_path: str,
    args: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
    **how: Any,
) -> int:
    """Run the job that the YAML file SPEC describes.

    In the foreground, each line of output has its task as prefix, and the exit code is the
    job's: 0, or the code of the task that failed first. Ctrl-C stops the job gracefully, a
    second Ctrl-C kills it at once. Everything after `--` is passed to your program.

    \b
      distrun launch job.yaml
      distrun launch job.yaml --set cluster.worker=4 -- --epochs 10
      id=$(distrun launch job.yaml -d) && distrun logs -f "$id"
    """
    from distrun.spec.loader import load

    return launch(load(spec_path, overrides=overrides, extra_args=args, name=name), **how)


def launch(
    spec: Spec,
    *,
    detach: bool,
    strict: bool,
    notify: str | None,
    no_preflight: bool,
    dry_run: bool,
) -> int:
    """Run a job, and return the exit code: the job's, or 0 if it was left running."""
    from distrun.cli.launched_job import LaunchedJob, without_missing_tensorboard
    from distrun.cli.spec_warnings import (
        find_warnings,
        print_warnings,
        require_keras_2,
        with_workers,
    )
    from distrun.cli.transfer_bar import read_files

    spec = with_workers(spec)
    if dry_run:
        from distrun.cli.plan_view import show_plan

        return show_plan(spec, find_warnings(spec, strict=strict), as_json=False)
    if not no_preflight:
        require_keras_2(spec)
    if strict:
        find_warnings(spec, strict=True)
    manifest = read_files(spec)
    spec = without_missing_tensorboard(spec)
    job = LaunchedJob(spec, preflight=not no_preflight, manifest=manifest, detach=detach)
    if not strict:  # the supervisor starts meanwhile
        print_warnings(find_warnings(spec, strict=False))
    try:
        return job.run()
    finally:
        if notify is not None and job.folder.path.exists():
            from distrun.agent.linux.syscalls import signal_name
            from distrun.cli import console, signals
            from distrun.cli.notify import run_notify_command, start_notify_watcher

            run = start_notify_watcher if job.was_left_running else run_notify_command
            try:
                run(notify, job.folder)
            except signals.ENDED as error:  # the exit code stays that of the job
                name = signal_name(signals.signal_of(error) or 0)
                console.print_message(f"{name} ended the command of --notify")
