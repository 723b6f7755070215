"""The interpreter that runs the program on this machine: what it has, and what it can parse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from distrun.frozen import Frozen, field
from distrun.lint import probe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECONDS = 5.0
"""How long an interpreter may take. A launch waits for it."""


class Answer(Frozen, kw_only=True):
    """What an interpreter says.

    Attributes:
        version: e.g. `3.12`.
        missing: the modules that it does not have.
        keras: the first number of the version of tf.keras; None if that is not known.
        tensorflow: the first two numbers of TensorFlow's version, e.g. `2.21`; empty if that is
            not known.
        errors: line, column and message of the first syntax error of each file.
    """

    version: str
    missing: frozenset[str] = frozenset()
    keras: int | None = None
    tensorflow: str = ""
    errors: dict[str, tuple[int, int, str]] | None = field(default=None)


def ask(
    python: str | None,
    names: Sequence[str],
    files: Sequence[str],
    *,
    folder: str,
    workdir: str,
    env: Mapping[str, str],
) -> Answer | None:
    """Ask an interpreter; None if it does not answer.

    Args:
        python: a name or a path; None: this interpreter. That is not started again: `errors` is
            None then, and nothing of `files` is read.
        names: modules to look for, by their first names.
        files: the files to parse, if it is another interpreter.
        folder: where it looks for modules first.
        workdir: where it runs.
        env: the variables that the spec sets.
    """
    changes_path = any(name.startswith("PYTHON") for name in env)
    if not changes_path and (python is None or _is_this_interpreter(python)):
        found = probe.answer(names)
        return Answer(
            version=own_version(),
            missing=frozenset(found["missing"]),
            keras=found["keras"],
            tensorflow=found["tensorflow"],
        )
    asked = json.dumps({"names": list(names), "files": list(files), "folder": folder})
    try:
        done = subprocess.run(
            [python or sys.executable, probe.__file__],
            input=asked.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=workdir,
            env={**os.environ, **env},
            timeout=_SECONDS,
            check=True,
        )
        answer = json.loads(done.stdout)
        return Answer(
            version=str(answer["version"]),
            missing=frozenset(answer["missing"]),
            keras=answer["keras"],
            tensorflow=str(answer.get("tensorflow", "")),
            errors={file: (line, column or 1, str(text))
                    for file, (line, column, text) in answer["errors"].items()},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None


def own_version() -> str:
    """The version of this interpreter, e.g. `3.12`."""
    return "{}.{}".format(*sys.version_info)


def _is_this_interpreter(python: str) -> bool:
    """Whether a name or path is that of this interpreter, in the same virtual environment."""
    found = shutil.which(python)
    if found is None or not sys.executable:
        return False
    folders = (os.path.dirname(os.path.abspath(each)) for each in (found, sys.executable))
    return len({os.path.realpath(each) for each in folders}) == 1 and os.path.samefile(
        found, sys.executable
    )
