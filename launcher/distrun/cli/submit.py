"""`distrun submit`."""

from __future__ import annotations

import os
import sys

import click

from distrun.cli import console, options
from distrun.cli.spec_warnings import find_warnings, print_success, print_warnings, refuse_if
from distrun.cli.transfer_bar import read_files
from distrun.errors import HostError
from distrun.frozen import replace
from distrun.job import queued_job
from distrun.job.folder import JobStore
from distrun.slurm import batch_job, batch_script, submission
from distrun.spec.host_spec import HostSpec
from distrun.spec.loader import load
from distrun.spec.model import Spec
from distrun.spec.problems import Mark, Problem, printable
from distrun.spec.yamltext import dump
from distrun.words.events import queue_text
from distrun.words.formats import format_duration


@click.command("submit", cls=options.WithProgramArguments)
@options.spec_argument()
@click.argument("args", nargs=-1)
@options.name_option
@options.overrides_option
@options.strict_option
@options.force_option
@click.option("--dry-run", is_flag=True, help="Print what is submitted; submit nothing.")
def command(
    spec_path: str,
    args: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
    strict: bool,
    force: bool,
    dry_run: bool,
) -> int:
    """Submit the job that SPEC describes to Slurm or Kubernetes, and print its id.

    It first checks SPEC, the program and the requested resources. All other commands accept the id
    at once. Everything after `--` is passed to your program.

    In Slurm, the section `slurm` of SPEC says what to ask for. Other machines that share the home
    folder see the job, too. You can also give the script that --dry-run prints to sbatch yourself.

    With `hosts: kubernetes`, the supervisor runs in a pod (docs/kubernetes.md). The command returns
    when the pod runs; this machine is not needed any more. Other machines see the job with
    --namespace, as in `distrun ps --namespace team`.

    \b
      id=$(distrun submit job.yaml) && distrun logs -f "$id"
      distrun submit job.yaml --set slurm.time=12h -- --epochs 10
      distrun submit job.yaml --dry-run > job.sh
    """
    spec = load(
        spec_path,
        overrides=overrides,
        extra_args=args,
        name=name,
        is_submitted=True,
        is_forced=force,
    )
    print_success(spec)
    has_pods = any(host.pod for host in spec.hosts)
    # The nodes have this machine's files and, without slurm.setup, its variables.
    is_alike = not (has_pods or spec.slurm.setup)
    checked = replace(spec, hosts=(HostSpec(),)) if is_alike else spec
    warnings = (*([] if has_pods else _missing_gpus(spec)), *find_warnings(checked))
    print_warnings(refuse_if(warnings, strict=strict, force=force))
    if has_pods:
        return _submit_to_kubernetes(spec, dry_run=dry_run)
    assert spec.origin is not None  # noqa: S101 - the loader sets it
    # On the nodes, the file is read again: there, its hosts are those of the allocation.
    origin = replace(spec.origin, overrides=(*spec.origin.overrides, "hosts=slurm"))
    spec = replace(spec, origin=origin)
    _require_interpreters(spec)
    store = JobStore.default()
    script = batch_script.write(spec, store.jobs.parent)
    if dry_run:
        if spec_path == "-":
            console.print_message("warning: the script names no file, as SPEC is standard input")
        lines = script.rstrip("\n").split("\n")
        console.print_text("\n".join(map(printable, lines) if sys.stdout.isatty() else lines))
        return 0
    read_files(spec)
    starts_at = batch_job.try_out(script)
    _require_time(spec)
    folder = submission.submit(store, spec)
    console.print_text(folder.job_id)

    found = queued_job.look(folder)
    if {"hold", "dependency"} & spec.slurm.options.keys():  # the estimate is that without them
        starts_at = None
    where = "queued in Slurm" if found.entry is None else queue_text(found.entry, starts_at)
    console.print_message(f"job {folder.job_id} is {where}")
    return 0


def _submit_to_kubernetes(spec: Spec, *, dry_run: bool) -> int:
    from distrun.kubernetes import manifest, submission

    submission.require_submittable(spec)
    if dry_run:
        name = manifest.job_name(spec.name)
        jobs = [manifest.make_supervisor(spec, spec.name, name), *manifest.make(spec, spec.name)]
        console.print_text("---\n".join(map(dump, jobs)).rstrip("\n"))
        return 0
    files = read_files(spec)
    folder = submission.submit(JobStore.default(), spec, files, console.print_message)
    console.print_text(folder.job_id)
    claim = None if spec.kubernetes is None else spec.kubernetes.volume_claim
    where = "in the pod of its supervisor" if claim is None else f"on the volume of {claim}"
    console.print_message(f"job {folder.job_id} is submitted to Kubernetes; its folder is {where}")
    return 0


def _missing_gpus(spec: Spec) -> list[Problem]:
    """Warn of GPUs that nobody asks Slurm for: the job would wait, and then fail."""
    wanted = max(role.gpus or 0 for role in spec.roles)
    options = " ".join(f"{name} {value}" for name, value in spec.slurm.options.items())
    if not wanted or spec.slurm.gpus_per_node or spec.slurm.exclusive or "gpu" in options:
        return []
    text = "tasks have `gpus`, and Slurm is asked for none"
    return [Mark("slurm").problem(text, f"write slurm.gpus_per_node: {wanted}")]


def _require_interpreters(spec: Spec) -> None:
    """Raise HostError if the interpreter of a program is an absolute path that is not here.

    The home folder is shared with the nodes. What only they have is found out in `slurm.setup`.
    """
    programs = [spec.program, *(role.program for role in spec.roles if role.program is not None)]
    for program in programs:
        for path in (program.python, *program.argv[:1]):
            if path is not None and os.path.isabs(path) and not os.access(path, os.X_OK):
                raise HostError(
                    f"{path} is not here, or cannot be executed",
                    hint="correct program.python or program.command; a name without / is looked "
                    "up on the nodes, after slurm.setup",
                )


def _require_time(spec: Spec) -> None:
    """Raise HostError if Slurm would queue the job, and never start it."""
    slurm = spec.slurm
    if slurm.time is None or slurm.qos is not None:  # which may have a limit of its own
        return
    limit = batch_job.longest(slurm.partition)
    if limit is not None and slurm.time > limit:
        where = "the default partition" if slurm.partition is None else slurm.partition
        raise HostError(
            f"slurm.time ({format_duration(slurm.time)}) is more than {where} allows "
            f"({format_duration(limit)}): the job would wait without end",
            hint="ask for less time, or for another partition: `sinfo` lists them",
        )
