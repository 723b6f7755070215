"""Finds out whether this host sees the same files as the launching side: a shared file system.

A supervisor runs this before the agent on hosts that may share its file system. It is sent to no
others.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Sequence

ANSWER = b"distrun-sees:"
"""Begins the line of the answer: a JSON object."""


def fingerprint(base: str, names: Sequence[str]) -> int:
    """A number for the state of files and links below `base`; 0 if one of them is missing.

    It is the same on another host only for the same files, or for copies of a whole disk: it has
    their inode numbers, and the times of their last changes in nanoseconds.
    """
    found = 1
    for name in names:
        try:
            each = os.lstat(os.path.join(os.fsencode(base), os.fsencode(name)))
        except OSError:
            return 0
        state = (each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        found = zlib.crc32(repr(state).encode(), found)
    return found or 1


def announce(base: str, names: Sequence[str], expected: int, python: str) -> None:
    """Print whether the files are the same, and whether the interpreter `python` exists."""
    found = {
        "files": bool(expected) and fingerprint(base, names) == expected,
        "python": os.access(python, os.X_OK),
    }
    os.write(1, b"\n" + ANSWER + json.dumps(found).encode() + b"\n")
