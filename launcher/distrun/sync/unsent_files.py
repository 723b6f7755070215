"""Files that a program names, that exist on this machine, and that its other hosts are not sent."""

from __future__ import annotations

import ast
import os
import re
import warnings
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.spec.regular_file import read_regular_file
from distrun.sync.file_selection import select_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distrun.spec.model import Spec

_READS = re.compile(r"open$|read|load|genfromtxt|TFRecordDataset|TextLineDataset|CsvDataset")
"""The names of functions that read the file that is their first argument."""
_MOST_SCRIPT_BYTES = 1 << 20
_MISSING = re.compile(
    r"No such file or directory: '(?P<python>[^']+)'|name = '(?P<h5py>[^']+)', errno = 2|"
    r"NotFoundError: .*?(?P<tensorflow>[^\s:;]+); No such file or directory"
)
"""How Python, h5py and TensorFlow say which file is missing."""


class UnsentRead(Frozen):
    """Where a script reads a file that is not sent."""

    script: str
    line: int
    column: int
    name: str


def find_unsent_reads(spec: Spec) -> list[UnsentRead]:
    """Return the first place of each file that a script reads by its name and that is not sent."""
    reads = {
        name: UnsentRead(os.path.basename(script), *place, name)
        for script in (spec.scripts if spec.sends_files else ())
        for name, place in _reads(script)
    }
    return [reads[name] for name in _unsent(spec, reads)]


def missing_file(spec: Spec, error: str) -> str:
    """Return the file that is missing on a host by an error, if it exists here; else ''."""
    name = _missing_name(error) if spec.sends_files else ""
    return next(_unsent(spec, [name] if name else ()), "")


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
        if here and not os.path.isabs(name):
            selection = selection or select_files(spec)
            if not any(map(selection.has, here)):
                yield name


def _reads(script: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the names of files that a script only reads, with line and column of each."""
    source = read_regular_file(script, largest=_MOST_SCRIPT_BYTES) or b""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # other checks say so
    found: dict[str, tuple[int, int]] = {}
    others: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        values = [each.value for each in node.args if isinstance(each, ast.Constant)]
        names = [each for each in values if isinstance(each, str)]
        if names and isinstance(node.args[0], ast.Constant) and _only_reads(node):
            found.setdefault(names.pop(0), (node.lineno, node.col_offset + 1))
        others.update(names)
    yield from (each for each in found.items() if each[0] not in others)


def _only_reads(call: ast.Call) -> bool:
    """Whether a call reads the file that its first argument names."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    is_read = all(isinstance(m, ast.Constant) and str(m.value).startswith("r") for m in modes)
    return bool(_READS.search(name)) and (name != "open" or is_read)
