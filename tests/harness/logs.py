"""A folder of logs as the agent writes them, and a reader of it."""

import os
import select
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distrun.logs import Follower, TaskLog, View, merged

T0 = 1_700_000_000.0
PLAIN = View(("worker:0", "worker:1", "ps:0"))


def append(log: TaskLog, text: bytes, at: float | None = None) -> None:
    """Write to a log; with a time after `T0`, also to its index."""
    with open(log.path, "ab") as file:
        file.write(text)
        size = file.tell()
    if at is not None:
        with open(log.index_path, "ab") as file:
            file.write(struct.pack("<dQ", T0 + at, size))
        os.utime(log.path, (T0 + at, T0 + at))


class Job:
    def __init__(self, folder: Path, tasks: Sequence[str] = PLAIN.tasks) -> None:
        self.folder = folder
        self.logs = [self._log(task) for task in tasks]

    def _log(self, task: str) -> TaskLog:
        base = str(self.folder / task.replace(":", "-"))
        return TaskLog(task, base + ".log", base + ".idx")

    def write(self, task: str, text: bytes, at: float | None = None) -> None:
        append(self._log(task), text, at)

    def shown(self, view: View = PLAIN, **which: Any) -> bytes:
        return b"".join(merged(self.logs, view, **which))


Follow = Callable[..., Follower]
"""Follows logs with a view; closed at the test's end."""


def readable(follower: Follower, seconds: float = 5) -> bool:
    return bool(select.select([follower], [], [], seconds)[0])


def caught_up(follower: Follower) -> bytes:
    shown = b""
    while follower.wait == 0.0 or readable(follower, 0):
        shown += b"".join(follower.read())
    return shown
