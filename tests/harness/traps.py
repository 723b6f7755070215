"""Modules that report when they are imported, with the names of the standard library's."""

from __future__ import annotations

import sys
from pathlib import Path


def write_traps(folder: Path, ran: Path, *spared: str) -> None:
    """Write one module for each name of the standard library into a folder.

    An import of one writes its name to the file `ran`, and does what the real one does not.
    """
    folder.mkdir(exist_ok=True)
    for name in sys.stdlib_module_names - {*sys.builtin_module_names, *spared}:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r} + ' ')\n")
