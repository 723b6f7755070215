"""`distrun bundle`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import IO

import click

from distrun.bundle.archive import make_redactor, write_bundle
from distrun.cli import console
from distrun.cli.job_faults import find_job, tell_problem
from distrun.cli.options import job_argument, output_option
from distrun.cli.output_file import write_file
from distrun.job.folder import LOG_SUFFIX, JobFolder
from distrun.job.job import read_job
from distrun.spec.units import format_bytes
from distrun.words.formats import format_count
from distrun.words.verdicts import labelled


@click.command("bundle")
@job_argument()
@output_option("The archive to write; - is stdout. Default: distrun-JOB.tar.gz.", dash=True)
@click.option("--keep-names", is_flag=True, help="Keep the names of users and hosts.")
def command(job: str | None, output: str | None, keep_names: bool) -> int:
    """Pack a job into one archive, for a bug report. Default: the running job, else the newest.

    The archive has the record, the plan, the spec, the ends of the logs, what the tasks used, and
    the versions; `distrun report` makes its page. Secrets, your name, and the names and addresses
    of the job's hosts are replaced: a name by the same word everywhere. What is a secret can only
    be guessed: look through the archive before you send it.

    \b
      distrun bundle mnist
      distrun bundle mnist --keep-names -o mnist.tar.gz
    """
    folder = find_job(job)
    path = Path(output or f"distrun-{folder.job_id}.tar.gz")
    if output == "-":
        written = io.BytesIO()
        lines = _write(folder, written, keep_names=keep_names)
        sys.stdout.buffer.write(written.getvalue())
        console.print_lines(lines)
        return 0
    with write_file(path) as file:
        lines = _write(folder, file, keep_names=keep_names)
    console.print_message(f"wrote {path}")
    unpack = f"tar -xzf {quote(str(path))}"
    console.print_lines([*lines, f"  look through it before you send it: {unpack}"])
    return 0


def _write(folder: JobFolder, file: IO[bytes], *, keep_names: bool) -> list[str]:
    job = read_job(folder)
    tell_problem([job])
    redactor = make_redactor(job, keep_names=keep_names)
    parts = write_bundle(file, job, redactor)
    lines = [labelled(name, text) for name, text in _listed(parts)]
    names = format_count(len(set(redactor.names.values())), "name")
    secrets = format_count(len(redactor.secrets), "secret")
    lines.append(labelled("replaced", f"{names}, {secrets}"))
    return lines


def _listed(parts: Iterable[tuple[str, int, int]]) -> list[tuple[str, str]]:
    """Return the parts in lines, those of tasks together."""
    groups: dict[str, list[tuple[str, int, int]]] = {}
    for part in parts:
        place, slash, _ = part[0].rpartition("/")
        groups.setdefault(place if slash else part[0], []).append(part)
    lines = []
    for name, found in groups.items():
        names, sizes, cuts = zip(*found, strict=True)
        text = format_bytes(sum(sizes))
        if len(found) > 1 or "/" in names[0]:
            text = f"{format_count(len(found), 'file')}, {text}"
        where = "before" if name == "logs" or name.endswith(LOG_SUFFIX) else "after"
        cut = f"; {format_bytes(sum(cuts))} {where} are left out" if any(cuts) else ""
        lines.append((name, text + cut))
    return lines
