"""Logs with a limit: their oldest bytes are a hole, which takes no room on the disk."""

from __future__ import annotations

import os
from typing import Optional

from distrun.agent.linux import syscalls

STEP = 64 * 1024
"""The size of a hole is a multiple of so many bytes, and so of all usual sizes of a block."""


def hole_size(size: int, limit: Optional[int]) -> int:
    """How many of the first bytes of a log of `size` bytes are dropped; a limit of None: none."""
    return 0 if limit is None else max(0, size - limit) // STEP * STEP


def check(folder: str) -> None:
    """Raises OSError if the file system of a folder supports no holes (EOPNOTSUPP)."""
    import tempfile  # few jobs have a limit

    with tempfile.TemporaryFile(dir=folder) as file:
        os.ftruncate(file.fileno(), STEP)
        syscalls.punch_start(file.fileno(), STEP)
