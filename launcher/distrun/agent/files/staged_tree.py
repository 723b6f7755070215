"""The tree of one job's files on a host once it is complete, and how it is removed again."""

from __future__ import annotations

import contextlib
import os
from typing import Callable, Dict, Sequence, Tuple

from distrun.agent.linux import private_dir

UNFINISHED = ".files"
LIST = "files.json"
"""What was sent. It outlives an agent that is killed, and stands beside the tree."""


def remove_sent(
    top: bytes,
    files: Dict[bytes, Tuple[int, int]],
    links: Sequence[Tuple[bytes, bytes]],
    send_heartbeat: Callable[[], None],
) -> Tuple[int, int]:
    """Remove these files, with size and time each, and links from a tree unless tasks changed them.

    A link in place of a folder is not followed. Returns how many files, and bytes, remain.
    """
    if os.path.islink(top):
        return 1, 0
    real = os.path.realpath(top)

    def is_inside(path: bytes) -> bool:
        folder = os.path.dirname(os.path.join(real, path))
        return os.path.realpath(folder) == os.path.normpath(folder)

    for path, target in links:
        send_heartbeat()
        with contextlib.suppress(OSError):
            if os.readlink(os.path.join(top, path)) == target and is_inside(path):
                os.unlink(os.path.join(top, path))
    for path, written in files.items():
        send_heartbeat()
        absolute = os.path.join(top, path)
        with contextlib.suppress(OSError):
            status = os.lstat(absolute)
            if (status.st_size, status.st_mtime_ns) == written and is_inside(path):
                os.unlink(absolute)
    return count_written(top, send_heartbeat)


def count_written(top: bytes, send_heartbeat: Callable[[], None]) -> Tuple[int, int]:
    """Remove empty folders and Python's caches; returns the number and size of other files."""
    try:
        return _count_written(top, send_heartbeat)
    except RecursionError:
        return 1, 0  # folders that are so deep are kept as they are


def _count_written(top: bytes, send_heartbeat: Callable[[], None]) -> Tuple[int, int]:
    count = size = 0
    for folder, _, names in os.walk(top, topdown=False):
        send_heartbeat()
        if os.path.basename(folder) == b"__pycache__":
            private_dir.remove_tree(os.fsdecode(folder), ignore_errors=True)
            continue
        if b"/__pycache__/" in folder[len(top) :]:
            continue
        for name in names:
            send_heartbeat()
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
                count += 1
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return count, size
