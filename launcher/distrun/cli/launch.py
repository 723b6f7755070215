"""`distrun launch`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from distrun.cli import console, options
from distrun.errors import UsageError

if TYPE_CHECKING:
    from distrun.job.resumption import Resumption
    from distrun.spec.model import Spec

_MAIN = "from distrun.cli.main import main; main()"
_OPTIONS = (
    options.detach_option,
    options.name_option,
    options.task_option,
    options.all_output_option,
    options.overrides_option,
    options.strict_option,
    options.no_preflight_option,
    options.force_option,
    click.option("--dry-run", is_flag=True, help="Show what would run, like `distrun plan`."),
)


def launch_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that `launch` and `run` share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("launch", cls=options.WithProgramArguments)
@options.spec_argument(required=False)
@click.argument("args", nargs=-1)
@launch_options
@click.option(
    "--resume-lost",
    is_flag=True,
    help="Without SPEC: resume all jobs that a reboot of this machine has interrupted, and leave "
    "them running.",
)
def command(
    spec_path: str | None,
    args: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
    resume_lost: bool,
    **how: Any,
) -> int:
    """Run the job that the YAML file SPEC describes.

    In the foreground, each line of output has its task as prefix, and the exit code is the
    job's: 0, or the code of the task that failed first. TensorFlow's harmless start-up lines are
    left out. On a terminal, a line that several workers print at the same time is shown once.
    Ctrl-C stops the job gracefully, a second Ctrl-C kills it at once. Everything after `--` is
    passed to your program.

    \b
      distrun launch job.yaml
      distrun launch job.yaml --set cluster.worker=4 -- --epochs 10
      id=$(distrun launch job.yaml -d) && distrun logs -f "$id"
    """
    if resume_lost:
        if spec_path is not None or any((name, *overrides, *how.values())):
            raise UsageError("--resume-lost takes no SPEC and no other option")
        return _resume_lost()
    if spec_path is None:
        raise click.UsageError("Missing argument 'SPEC'.")
    from distrun.spec.loader import load

    spec = load(spec_path, overrides=overrides, extra_args=args, name=name, is_forced=how["force"])
    return launch(spec, options.LaunchOptions(**how))


def _resume_lost() -> int:
    """Resume all jobs that a reboot has interrupted, each detached.

    Returns 0, or the exit code of the first that could not be resumed.
    """
    import subprocess

    from distrun.job.folder import JobStore
    from distrun.job.resumption import was_interrupted
    from distrun.supervisor.hosts.local import python_with_packages

    lost = [folder for folder in JobStore.default().folders() if was_interrupted(folder)]
    if not lost:
        console.print_message("no job was lost")
    # Their output goes to this command's, line by line; each takes as long as its hosts need.
    children = [
        subprocess.Popen(
            python_with_packages(_MAIN, "resume", "-d", folder.job_id),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        for folder in lost
    ]
    codes = [child.wait() for child in children]
    return next((code for code in codes if code), 0)


def launch(spec: Spec, wanted: options.LaunchOptions) -> int:
    """Run a job, and return the exit code: the job's, or 0 if it was left running."""
    from distrun.cli.program_check import ProgramCheck, require_keras_2
    from distrun.cli.spec_warnings import find_warnings, print_success, refuse_if
    from distrun.cli.transfer_bar import read_files
    from distrun.job.folder import JobStore
    from distrun.job.session import Session
    from distrun.spec.host_spec import HostSpec
    from distrun.spec.target import find_target

    strict = wanted.strict
    print_success(spec)
    names = [f"{each.role.value}:{index}" for each in spec.roles for index in range(each.count)]
    if wanted.tasks:
        from distrun.job.chosen_logs import check_choice

        check_choice([names], wanted.tasks)
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if spec.hosts == (HostSpec(),) and len(names) > 1 and nodes != "1":
        text = f"all tasks run on this machine, and this Slurm allocation has {nodes} nodes"
        console.print_message(f"warning: {text}; to use them: --set hosts=slurm")
    if wanted.dry_run:
        from distrun.cli.guarded_command import run_guarded
        from distrun.cli.plan_view import show_plan

        def show() -> int:
            return show_plan(spec, refuse_if(find_warnings(spec), strict=strict), as_json=False)

        return run_guarded(show)
    if not wanted.no_preflight:
        require_keras_2(spec)
    spec = replace(spec, strict=True) if strict else spec
    is_new = wanted.resumed is None and not wanted.force
    check = None
    with contextlib.ExitStack() as stack:
        if strict or (is_new and find_target(spec) is not None):  # others are hardly checked
            check = stack.enter_context(contextlib.closing(ProgramCheck(spec)))
        manifest = read_files(spec)
        if check is not None:
            from distrun.cli import launched_job  # noqa: F401 - while the program is checked

            check.refuse(strict=strict)
        if spec.tensorboard is not None:
            from distrun.supervisor import tensorboard

            spec = tensorboard.without_missing(spec, console.print_message)
        resumed = wanted.resumed
        folder = JobStore.default().new_folder(spec.name) if resumed is None else resumed.folder
        shown_before = {} if resumed is None else _log_sizes(resumed)
        preflight = not wanted.no_preflight
        session = Session(folder, spec, preflight=preflight, manifest=manifest, resumed=resumed)
        from distrun.cli.launched_job import LaunchedJob  # while the supervisor prepares the job

        job = LaunchedJob(session, spec, wanted, shown_before)
        if not strict:
            job.check_program(check)
        return job.run()


def _log_sizes(resumed: Resumption) -> dict[str, int]:
    """Return the sizes of the logs that a job has before it is resumed, in bytes by task."""
    from distrun.logs import TaskLog

    logs = (TaskLog.of(resumed.folder, task) for task in resumed.former.tasks)
    return {log.task: log.extent().size for log in logs}
