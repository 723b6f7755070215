"""`distrun fetch`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from shlex import quote

import click

from distrun.agent.protocol import Code
from distrun.cli import console, signals
from distrun.cli.job_faults import find_job
from distrun.cli.options import job_argument, json_option
from distrun.cli.transfer_bar import TransferBar
from distrun.errors import HostError, UsageError
from distrun.frozen import replace
from distrun.job import resumption
from distrun.job.folder import JobStore
from distrun.spec.units import format_bytes
from distrun.supervisor.file_fetch import Fetch, Fetched, KeptFetch
from distrun.words.causes import cause_text
from distrun.words.formats import apart_text, format_count

_MOST_NAMED = 10
_POD_CODES = (Code.POD_DELETED, Code.POD_ENDED, Code.POD_PREEMPTED, Code.POD_OUT_OF_MEMORY)
_SLURM_CODES = (
    *(Code.SRUN_FAILED, Code.SLURM_TIME_LIMIT, Code.SLURM_CANCELLED, Code.SLURM_PREEMPTED),
    Code.SLURM_NODE_FAILED,
)
_CONTINUE = "what has come is kept; to continue: the same command"
_NEXT_TIME = "what program.results of the spec names comes by itself before the end"


@click.command("fetch")
@job_argument()
@click.argument("pattern", metavar="[PATTERN]", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The folder to copy to. Default: distrun-JOB; for program.results, the working folder.",
)
@click.option("--force", is_flag=True, help="Replace newer files in DIR, too.")
@json_option
def command(
    job: str | None, pattern: str | None, output: str | None, force: bool, as_json: bool
) -> int:
    """Copy what tasks wrote under their working folders on other hosts to this machine.

    PATTERN is a path below the working folder, and may have * and ?; a folder means all its files.
    Without PATTERN, it copies what program.results of the spec names, else all that tasks wrote
    since the job began. The job may run or have ended. Over ssh, the files stay on the hosts. Nodes
    of a Slurm allocation are reached until it ends, and pods while the job runs.

    Only files that changed are copied, and the next call continues an interrupted copy. A file that
    several hosts have is DIR/NAME if it is the same everywhere, else DIR/HOST/NAME for each of them
    (DIR/HOST-TASK/NAME if tasks of a host have folders of their own). Newer files in DIR are
    replaced only if you say so. Links, named pipes and devices are left out; a message names them.
    The exit code is 69 if a file could not be copied, for example because it changed meanwhile.

    \b
      distrun fetch
      distrun fetch mnist checkpoints -o out
      distrun fetch mnist '*.keras'
    """
    try:
        folder = find_job(job)
    except UsageError as error:
        if pattern is None and JobStore.default().folders() and job:
            newest = JobStore.default().newest().job_id
            error.hint = f"{error.hint}\nPATTERN follows JOB: distrun fetch {newest} {quote(job)}"
        raise
    spec, batch = resumption.recorded_spec(folder), folder.batch_job()
    results = list(spec.program.results) if pattern is None else [pattern]
    is_whole = pattern is None and bool(results) and (batch is None or batch.is_own)
    is_in_pods = batch is not None and bool(batch.namespace)
    if batch is not None and is_in_pods and spec.kubernetes is not None:
        context, namespace = batch.context or None, batch.namespace
        pods = replace(spec.kubernetes, context=context, namespace=namespace)
        spec = replace(spec, kubernetes=pods)
    kind = KeptFetch if is_in_pods and folder.state().phase.is_final else Fetch
    target = output or (spec.program.workdir if is_whole else f"distrun-{folder.job_id}")

    def may_replace(names: Sequence[str]) -> bool:
        if force or not sys.stdin.isatty() or as_json:
            return force
        console.print_lines([f"  {name}" for name in names[:_MOST_NAMED]])
        return console.confirm(f"replace {format_count(len(names), 'newer file')} in {target}?")

    with contextlib.closing(TransferBar()) as bar:
        what = f"fetching into {target}"
        fetch = kind(
            *(folder, spec, results, target, may_replace),
            on_progress=lambda done, total: bar.update(what, done, total),
        )
        try:
            found = fetch.run()
        except OSError as error:
            raise HostError(f"{target} cannot be written: {error.strerror}") from error
        except signals.ENDED:
            bar.close()
            console.print_message(f"interrupted: {_CONTINUE}")
            raise
    if pattern is not None and not (found.files or found.left_out or found.failures):
        hint = "it is a path below the working folder, or has * and ?; without it, all files come"
        raise UsageError(f"no file that a task wrote matches {pattern!r}", hint=hint)
    if as_json:
        console.print_json(_as_json(folder.job_id, found))
    else:
        _print(found)
    return HostError.exit_code if found.lacks_files else 0


def _as_json(job_id: str, found: Fetched) -> dict[str, object]:
    return {
        "job_id": job_id,
        "folder": os.path.abspath(found.folder),
        "files": [
            {
                "host": each.label,
                "path": each.path,
                "target": each.target,
                "size_bytes": each.found.size,
                "fetched": each.target in found.new,
            }
            for each in found.files
        ],
        "left_out": [
            {"host": host, "path": path, "reason": why} for host, path, why in found.left_out
        ],
        "failures": {host: cause_text(cause) for host, cause in found.failures.items()},
    }


def _print(found: Fetched) -> None:
    new = [each for each in found.files if each.target in found.new]
    size = format_bytes(sum(each.found.size for each in new))
    rest = len(found.files) - len(new)
    there = f"; {format_count(rest, 'file')} had not changed" if rest else ""
    there += apart_text(found.apart)
    if found.files or not found.failures:
        count = format_count(len(new), "file")
        console.print_message(f"fetched {count} ({size}) into {found.folder}{there}")
    for reason in found.reasons:
        console.print_message(f"not fetched: {reason}")
    for host, cause in found.failures.items():
        words = cause_text(cause).partition("\n")[0]
        message = f"{host}: {words}; not all of its files are here"
        hint = _CONTINUE
        if cause.code in _POD_CODES:
            hint = f"the files of a pod are gone with it; {_NEXT_TIME}"
        elif cause.code in _SLURM_CODES:
            hint = (
                "if its allocation has ended: on a shared file system, what tasks wrote is still "
                f"there; of files on a node's own disk, {_NEXT_TIME}"
            )
        console.print_error(HostError(message, hint=hint))
