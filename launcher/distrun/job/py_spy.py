"""Finds py-spy, the program that reads the stacks of Python programs."""

from __future__ import annotations

import os
import sys

NAME = "py-spy"
MISSING = "py-spy is not installed where the job was submitted"


def find() -> str | None:
    """Return its path: beside this interpreter, or in PATH; None: it is not installed."""
    import shutil

    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    found = beside if os.access(beside, os.X_OK) else shutil.which(NAME)
    return None if found is None else os.path.realpath(found)
