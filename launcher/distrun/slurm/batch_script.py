"""What a job asks Slurm for: its nodes, and the script that sbatch gets.

The script runs distrun on the first node of the allocation.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from distrun.spec.model import RoleSpec, Spec, SpecOrigin
from distrun.spec.schedulers import SlurmSpec
from distrun.strategies import Role

_PROGRAM = "import sys; sys.path[:] = {path}; from distrun.__main__ import main; main()"
"""Runs distrun with exactly the modules of the distrun that queued the job."""
_SOURCES = str(Path(__file__).resolve().parents[2])
_OWN_NODE = (Role.CHIEF, Role.WORKER)
"""Roles whose tasks get a node each, unless GPUs decide. The others run beside them."""
_MIB = 1 << 20


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
        *(_directive(name, value) for name, value in _options(spec)),
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


def nodes(roles: Iterable[RoleSpec], slurm: SlurmSpec, spares: int) -> int:
    if slurm.nodes is not None:
        return slurm.nodes
    roles = tuple(roles)
    with_gpus = math.ceil(sum(_share(role, slurm) for role in roles if role.gpus))
    alone = sum(each.count for each in roles if each.role in _OWN_NODE and not each.gpus)
    return max(1, with_gpus + alone) + spares


def _share(role: RoleSpec, slurm: SlurmSpec) -> float:
    given = (slurm.gpus_per_node or "").rpartition(":")[2]
    room = int(given or 0) // (role.gpus or 1)
    return role.count / room if room else role.count


def _options(spec: Spec) -> Iterator[tuple[str, str | None]]:
    """Yield the options of sbatch with their values; None: it has no value."""
    slurm, spares = spec.slurm, len(spec.spares)
    count = nodes(spec.roles, slurm, spares)
    tasks = sum(role.count for role in spec.roles)
    yield "job-name", spec.name
    yield "nodes", str(count)
    # `cpus_per_task` is for each of them.
    yield "ntasks-per-node", str(max(1, math.ceil(tasks / max(1, count - spares))))
    wanted = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time": None if slurm.time is None else math.ceil(slurm.time / 60),  # minutes
        "gpus-per-node": slurm.gpus_per_node,
        "cpus-per-task": slurm.cpus_per_task,
        "mem": None if slurm.mem_per_node is None else f"{-(-slurm.mem_per_node // _MIB)}M",
        "constraint": slurm.constraint,
    }
    for name, value in wanted.items():
        if value is not None:
            yield name, str(value)
    if slurm.exclusive:
        yield "exclusive", None
    # Only the batch script is told: distrun then stops the tasks in their order.
    yield "signal", f"B:TERM@{math.ceil(slurm.signal_before_end)}"
    yield ("requeue" if slurm.requeue else "no-requeue"), None
    if spec.restart.max > 0:
        yield "no-kill", None  # a lost node is replaced, and does not end the job
    yield "open-mode", "append"
    for name, value in slurm.options.items():
        yield name, None if value in ("", "true") else value
