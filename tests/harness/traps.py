"""Modules that report when they are imported, with the names of the standard library's."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

STDLIB = sys.stdlib_module_names - set(sys.builtin_module_names)


def write_traps(folder: Path, ran: Path, names: Iterable[str] = STDLIB) -> None:
    """Write one module for each of these names of the standard library into a folder.

    An import of one writes its name to the file `ran`, and does what the real one does not.
    """
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r} + ' ')\n")
