"""The script that sbatch gets. It runs distrun on the first node of the allocation."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from distrun.slurm import settings

if TYPE_CHECKING:
    from pathlib import Path

    from distrun.spec.model import Spec, SpecOrigin

_VARIABLES = ("PYTHONPATH", "DISTRUN_HOME")
"""What distrun itself needs of the environment, also where sbatch exports none of it."""


def write(spec: Spec, home: Path, *, job_id: str | None = None, output: Path | None = None) -> str:
    """Return the batch script of a job.

    Args:
        spec: the job's.
        home: the folder of the records of jobs.
        job_id: the job that it runs. None: it makes a job of its own, when sbatch is called by
            hand.
        output: what the script prints, in this file. None: where Slurm puts it.
    """
    origin = spec.origin
    assert origin is not None  # noqa: S101 - the loader sets it
    lines = [
        "#!/bin/bash",
        "# Queue it with: distrun submit. Or with: sbatch FILE",
        *(_directive(name, value) for name, value in settings.options(spec)),
    ]
    if output is not None:
        lines.append(_directive("output", str(output).replace("%", "%%")))
    environment = {**os.environ, "DISTRUN_HOME": str(home)}
    lines += ["", f"cd {shlex.quote(origin.cwd)} || exit"]
    for name in _VARIABLES:
        if environment.get(name):
            lines.append(f"export {name}={shlex.quote(environment[name])}")
    if spec.slurm.setup:
        lines += ["", "# slurm.setup", *spec.slurm.setup]
    lines += [
        "",
        "# Slurm's signals reach distrun, because it replaces this shell.",
        f"exec {_command(origin, job_id)}",
    ]
    return "\n".join(lines) + "\n"


def _directive(name: str, value: str | None) -> str:
    return f"#SBATCH --{name}" if value is None else f"#SBATCH --{name}={_quoted(value)}"


def _quoted(value: str) -> str:
    """Return a value as sbatch reads it in a script: its quotes and backslashes are its own."""
    if all(char.isalnum() or char in "-_.,:/@%+=[]&|()*" for char in value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _command(origin: SpecOrigin, job_id: str | None) -> str:
    words = [sys.executable, "-m", "distrun", "batch-run"]
    if job_id is not None:
        return shlex.join([*words, "--job", job_id])
    if origin.name is not None:
        words += ["--name", origin.name]
    for override in origin.overrides:
        words += ["--set", override]
    words.append(os.path.join(origin.folder, os.path.basename(origin.file)))
    return shlex.join([*words, "--", *origin.extra_args] if origin.extra_args else words)
