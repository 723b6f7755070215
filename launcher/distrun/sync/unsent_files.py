"""Files that a program names, that exist on this machine, and that its other hosts are not sent."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code
from distrun.spec.model import ProgramKind
from distrun.sync.file_selection import select_files
from distrun.words.causes import cause_advice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distrun.lint.module import Use
    from distrun.lint.program import Program
    from distrun.spec.model import Spec
    from distrun.spec.problems import Problem

_READS = re.compile(r"open$|read|load|genfromtxt|TFRecordDataset|TextLineDataset|CsvDataset")
"""The names of functions that read the file that is their first argument."""
_MISSING = re.compile(
    r"No such file or directory: '(?P<python>[^']+)'|name = '(?P<h5py>[^']+)', errno = 2|"
    r"NotFoundError: .*?(?P<tensorflow>[^\s:;]+); No such file or directory|"
    r"File not found: filepath=(?P<keras>\S+)\. "
)
"""How Python, h5py and TensorFlow say which file is missing."""
_IN_COPY = re.compile(r"/.*/[^/]+-[0-9a-f]{12}/files/")
"""The top of a host's copy of the files, where `__file__` is."""
_MODULE = re.compile(r"No module named '(\w+)")
_OF_MODULE = (".py", "/__init__.py")
_MOST_ABOVE = 3
"""In so many folders above that of the sent files, a module is looked for."""


def unsent_reads(program: Program, spec: Spec) -> Iterator[Problem]:
    """Warn of each file that a script only reads, by its name, and that is not sent."""
    if not spec.sends_files or spec.program.kind is not ProgramKind.SCRIPT:
        return
    first_reads: dict[str, Use] = {}
    others: set[str] = set()
    for use in program.modules["__main__"].uses:
        call = use.node
        if not isinstance(call, ast.Call):
            continue
        values = [each.value for each in call.args if isinstance(each, ast.Constant)]
        names = [each for each in values if isinstance(each, str)]
        if names and isinstance(call.args[0], ast.Constant) and _only_reads(call):
            first_reads.setdefault(names.pop(0), use)
        others.update(names)
    for name in _unsent(spec, {each for each in first_reads if not os.path.isabs(each)} - others):
        message = f"{name} exists here, and the hosts are not sent it"
        advice = cause_advice(Cause(Code.FILE_NOT_SENT)) or ""
        yield first_reads[name].mark.problem(message, advice)


def missing_file(spec: Spec, error: str) -> str:
    """Return the file or module that a host lacks by an error, if it exists here; else ''.

    A module is looked for in the folder that is sent, and in those above it that a script may add
    to `sys.path`.
    """
    if not spec.sends_files:
        return ""
    base, name = Path(spec.program.sync_base), _missing_name(error)
    if module := _MODULE.search(error):
        above = (base, *base.parents[:_MOST_ABOVE])
        names = [str(folder / module[1]) + end for folder in above for end in _OF_MODULE]
    elif inside := _IN_COPY.match(name):
        names = [os.path.normpath(base / name[inside.end() :])]
    else:
        names = [name] if name and not os.path.isabs(name) else []
    return next(_unsent(spec, names), "").removesuffix(_OF_MODULE[1])


def file_beside_script(spec: Spec, error: str) -> str:
    """Return the file that is missing by an error where tasks work, and beside a script exists."""
    name = _missing_name(error)
    for script in spec.scripts if name and not os.path.isabs(name) else ():
        path = os.path.normpath(os.path.join(os.path.dirname(script), name))
        if os.path.exists(path) and not os.path.exists(os.path.join(spec.program.workdir, name)):
            return path
    return ""


def _missing_name(error: str) -> str:
    found = _MISSING.search(error)
    return "" if found is None else next(filter(None, found.groups()), "")


def _unsent(spec: Spec, names: Iterable[str]) -> Iterator[str]:
    selection = None
    # On hosts, tasks run in a copy of one of these.
    folders = (spec.program.workdir, spec.program.sync_base)
    for name in names:
        paths = [os.path.normpath(os.path.join(folder, name)) for folder in folders]
        here = [os.fsencode(each) for each in paths if os.path.isfile(each)]
        if here:
            selection = selection or select_files(spec)
            if not any(map(selection.has, here)):
                yield name


def _only_reads(call: ast.Call) -> bool:
    """Whether a call reads the file that its first argument names."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    is_read = all(isinstance(m, ast.Constant) and str(m.value).startswith("r") for m in modes)
    return bool(_READS.search(name)) and (name != "open" or is_read)
