"""The tree of one job's files on a host once it is complete, and what of it is removed again."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Callable, Tuple

from distrun.agent.linux import private_dir

TREE, UNFINISHED = "files", ".files"
MARK = "files.sent"
"""A file beside the tree, whose time is after all that was sent, by the clock of the file system:
tasks wrote what has changed since. Without it, they wrote all that is there."""


def remove_sent(folder: str, send_heartbeat: Callable[[], None]) -> Tuple[int, int]:
    """Remove what has not changed since the mark, Python's caches, empty folders, and the mark.

    `folder`: the agent's. Returns how many files, and bytes, tasks wrote: they remain.
    """
    top, mark = os.fsencode(os.path.join(folder, TREE)), os.path.join(folder, MARK)
    since = 0
    with contextlib.suppress(OSError):
        since = os.stat(mark).st_mtime_ns
    written = 1, 0
    if not os.path.islink(top):
        with contextlib.suppress(RecursionError):  # folders that are so deep are kept as they are
            written = _remove_sent(top, since, send_heartbeat)
    # Last: whoever finds it after this agent's death does the same again.
    with contextlib.suppress(OSError):
        os.unlink(mark)
    return written


def _remove_sent(top: bytes, since: int, send_heartbeat: Callable[[], None]) -> Tuple[int, int]:
    count = size = 0
    for folder, folders, names in os.walk(top, topdown=False):
        send_heartbeat()
        if os.path.basename(folder) == b"__pycache__":
            private_dir.remove_tree(os.fsdecode(folder), ignore_errors=True)
            continue
        if b"/__pycache__/" in folder[len(top) :]:
            continue
        for name in names + folders:
            send_heartbeat()
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISDIR(status.st_mode):
                    continue
                if status.st_ctime_ns < since:
                    os.unlink(path)
                else:
                    size += status.st_size
                    count += 1
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return count, size
