"""The interpreter of a program on this machine, if neither the spec nor a host names one.

It is that of the active environment, else that of the script's first line, as if the script was
started by hand; else the one that runs distrun.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

from distrun.spec.model import Interpreter
from distrun.spec.regular_file import beginning

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
_FIRST_LINE = re.compile(
    rb"#!\s*(?:\S*/env\s+(?:-S\s*)?(?:(?:-\S+|\w+=\S*)\s+)*)?(\S*?python[0-9.]*)\s"
)
_LONGEST_LINE = 256


OWN = Interpreter(sys.executable, "the one that runs distrun")


def find(script: str, environ: Mapping[str, str]) -> Interpreter:
    """Return the interpreter for a script; `script` is empty for a module."""
    for name in _ACTIVE:
        folder = environ.get(name, "")
        if folder and os.path.realpath(folder) == os.path.realpath(sys.prefix):
            return OWN
        path = os.path.abspath(os.path.join(folder, "bin", "python"))
        if folder and os.access(path, os.X_OK):
            return Interpreter(path, f"of the active environment ({name})")
    word = _first_line(script) if script and os.access(script, os.X_OK) else ""
    path = shutil.which(word, path=environ.get("PATH")) or "" if word else ""
    return Interpreter(path, "of the script's first line") if path else OWN


def _first_line(script: str) -> str:
    """Return the Python that the first line names; empty: it names none."""
    found = _FIRST_LINE.match(beginning(script, _LONGEST_LINE))
    return os.fsdecode(found[1]) if found else ""
