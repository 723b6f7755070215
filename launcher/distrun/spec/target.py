"""What Python runs: the script or module of a spec's program."""

from __future__ import annotations

import os
import re
import shlex
import sys
from glob import escape, glob

from distrun.frozen import Frozen
from distrun.spec.model import ProgramKind, Spec
from distrun.spec.resources import bundled_jobs

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = re.compile(r"-[uOBEIsSvqdb]+")
"""Options of Python without a value."""


class Target(Frozen, kw_only=True):
    """A script, or (`python -m`) a module of `folder`, where Python looks for modules first."""

    path: str
    folder: str
    module: str = ""
    package: str = ""
    python: str | None

    @property
    def is_installed(self) -> bool:
        """Whether it is a module that is not in the folder: not the user's own program."""
        return bool(self.module) and not os.path.lexists(self.path)

    @property
    def is_bundled(self) -> bool:
        return any(str(each) == self.path for each in bundled_jobs().values())


def find_target(spec: Spec) -> Target | None:
    """Return what the tasks on this machine run; None if it is not Python."""
    program, here = spec.program, spec.local_host
    asked = here.python if here is not None and here.python else program.python
    python = asked or (program.interpreter.path if program.interpreter else None)
    workdir = here.workdir if here is not None and here.workdir else program.workdir
    if program.kind is ProgramKind.SCRIPT:
        return _script(program.target, python)
    if program.kind is ProgramKind.MODULE:
        return _module(program.target, workdir, python)
    python = program.argv[0]
    words = [*program.argv[1:], *program.args]
    while words and _FLAGS.fullmatch(words[0]):
        words.pop(0)
    if not words or not _PYTHON.fullmatch(os.path.basename(python)):
        return None
    if len(words) > 1 and words[0] == "-m":
        return _module(words[1], workdir, python)
    return _script(os.path.join(workdir, words[0]), python) if words[0].endswith(".py") else None


def shown_interpreter(spec: Spec, target: Target) -> str:
    """What runs it on this machine, and why that."""
    here = spec.local_host
    chosen = None if here is None else spec.program.interpreter_on(here)
    return str(chosen or target.python or sys.executable)


def _script(path: str, python: str | None) -> Target:
    # Python looks for modules beside the target of a link.
    return Target(path=path, folder=os.path.dirname(os.path.realpath(path)), python=python)


def _module(name: str, folder: str, python: str | None) -> Target:
    path = os.path.join(folder, *name.split("."))
    package = name.rpartition(".")[0]
    if os.path.isdir(path):
        path, package = os.path.join(path, "__main__"), name
    return Target(path=f"{path}.py", folder=folder, module=name, package=package, python=python)


def folder_above(folder: str, module: str) -> str:
    """Return which of the three folders above, or of `src` below, has a module; empty: none."""
    above = [os.path.abspath(folder)]
    above += (os.path.dirname(above[-1]) for _ in range(3))
    files = (f"{module}.py", f"{module}/*.py")
    folders = (f"{above[0]}/src", *above[1:])
    return next((e for e in folders for file in files if glob(f"{escape(e)}/{file}")), "")


def how_to_run(path: str) -> str:
    """Return what makes a program of a file that is not Python."""
    try:
        with open(path, "rb") as file:
            is_complete = file.read(2) == b"#!"
    except OSError:
        is_complete = False
    first = "" if is_complete else "write a first line like #!/bin/bash, and "
    return f"{first}chmod +x {shlex.quote(shown_path(path))}"


def shown_path(path: str) -> str:
    """A path as messages name it: relative to the current folder, if it is below that."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):  # the current folder is gone
        return path
    return path if inside.split(os.sep)[0] == os.pardir else inside
