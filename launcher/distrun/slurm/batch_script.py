"""The script that sbatch gets. It runs distrun on the first node of the allocation."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

from distrun.slurm import settings
from distrun.spec.model import Spec, SpecOrigin

_PROGRAM = "import sys; sys.path[:] = {path}; from distrun.__main__ import main; main()"
"""Runs distrun with exactly the modules of the distrun that queued the job."""
_SOURCES = str(Path(__file__).resolve().parents[2])


def write(spec: Spec, home: Path, *, job_id: str | None = None, output: Path | None = None) -> str:
    """Return the batch script of a job.

    `home`: the folder of the records of jobs. `job_id`: the job that it runs; None: it makes a job
    of its own, when sbatch is called by hand. `output`: the file for what it prints.
    """
    origin = spec.origin
    assert origin is not None  # noqa: S101 - the loader sets it
    lines = [
        "#!/bin/bash",
        "# Queue it with: distrun submit. Or with: sbatch FILE",
        *(_directive(name, value) for name, value in settings.options(spec)),
    ]
    if output is not None:
        # A path that no directive can have is opened by the script.
        path = str(output).replace("%", "%%") if _is_plain(str(output)) else os.devnull
        lines.append(_directive("output", path))
    lines += ["", f"cd {_word(origin.cwd)} || exit"]
    if output is not None and not _is_plain(str(output)):
        lines.append(f"exec >> {_word(str(output))} 2>&1")
    if "PYTHONPATH" in os.environ:  # without empty entries: the folder where the script runs
        entries = filter(None, os.environ["PYTHONPATH"].split(os.pathsep))
        python_path = os.pathsep.join(os.path.join(origin.cwd, each) for each in entries)
        lines.append(f"export PYTHONPATH={_word(python_path)}")
    lines.append(f"export DISTRUN_HOME={_word(str(home))}")
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


def _is_plain(text: str) -> bool:
    """Whether a value can be in a directive: sbatch takes a backslash in a path as its own."""
    return text.isascii() and text.isprintable() and "\\" not in text


def _word(text: str) -> str:
    """Return a word that bash reads as `text`, on one line of printable ASCII characters."""
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    shown = (
        chr(each) if 32 <= each < 127 and each not in b"'\\" else f"\\{each:03o}"
        for each in os.fsencode(text)
    )
    return f"$'{''.join(shown)}'"


def _command(origin: SpecOrigin, job_id: str | None) -> str:
    # Isolated: the interpreter imports nothing from the working folder, whatever PYTHONPATH says.
    working = {os.path.realpath(origin.cwd), os.path.realpath("")} - {_SOURCES}
    path = [each for each in sys.path if each and os.path.realpath(each) not in working]
    words = [sys.executable, "-I", "-c", _PROGRAM.format(path=json.dumps(path)), "batch-run"]
    if job_id is not None:
        words += ["--job", job_id]
    else:
        words += [] if origin.name is None else [f"--name={origin.name}"]
        words += [f"--set={override}" for override in origin.overrides]
        words.append(os.path.join(origin.folder, os.path.basename(origin.file)))
        words += ["--", *origin.extra_args] if origin.extra_args else []
    return " ".join(map(_word, words))
