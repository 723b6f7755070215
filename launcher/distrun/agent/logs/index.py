"""The index of a log: when it grew, so that logs can be merged by time.

Beside each log is an index of records (INDEX_RECORD). A record is appended at most every 100 ms,
while the log grows. Nothing runs while no log grows.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import Callable, Dict, Optional

from distrun.agent.linux import syscalls
from distrun.agent.linux.syscalls import Inotify
from distrun.agent.protocol import INDEX_RECORD, INDEX_SUFFIX

INTERVAL = 0.1
_IDLE_INTERVAL = 1.0
_PROBE = 4096  # bytes: a block
_FULL = (errno.ENOSPC, errno.EDQUOT)


def index_of(path: str) -> str:
    """The path of a log's index."""
    return os.path.splitext(path)[0] + INDEX_SUFFIX


class _Log:
    def __init__(self, path: str, index: int) -> None:
        self.path = path
        self.index = index
        self.size = os.stat(path).st_size


class LogIndexer:
    """Writes the indexes of the logs given to :meth:`add`.

    If the user's inotify instances or watches are used up, the logs are polled instead.
    `on_growth` is called with the path of each log that has grown, after its index was written.
    """

    def __init__(self, on_growth: Callable[[str], None]) -> None:
        self._on_growth = on_growth
        self._logs: Dict[str, _Log] = {}
        self._inotify: Optional[Inotify] = None
        with contextlib.suppress(OSError):
            self._inotify = Inotify()
        self._must_poll = self._inotify is None
        self.next_due: Optional[float] = None
        """When :meth:`update` is due; None: when :attr:`descriptor` becomes readable."""

    @property
    def descriptor(self) -> Optional[int]:
        """The descriptor to wait for while :attr:`next_due` is None."""
        return None if self._inotify is None else self._inotify.fileno()

    def add(self, path: str) -> None:
        """Create a log if it does not exist, and watch it. Raises OSError if that fails."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o600))
        if path in self._logs:
            return
        index = os.open(index_of(path), flags, 0o600)
        _cut_torn_record(index)
        self._logs[path] = _Log(path, index)
        if self._inotify is not None:
            # If one log cannot be watched, all are polled.
            try:
                self._inotify.watch_growth(path)
            except OSError:
                self._must_poll = True
        if self._must_poll and self.next_due is None:
            self.next_due = time.monotonic() + INTERVAL

    def update(self) -> None:
        """Index the logs that have grown; the next update is due after INTERVAL."""
        if self._inotify is not None:
            self._inotify.drain()
        grown = [self.record(path) for path in self._logs]
        if any(grown):
            self.next_due = time.monotonic() + INTERVAL
        else:
            self.next_due = time.monotonic() + _IDLE_INTERVAL if self._must_poll else None

    def record(self, path: str) -> bool:
        """Append one log's size to its index if it has grown. True if it has."""
        log = self._logs[path]
        try:
            size = os.stat(path).st_size
        except OSError:
            return False
        if size == log.size:
            return False
        log.size = size
        # A full disk loses the times of some lines, never the lines.
        with contextlib.suppress(OSError):
            if os.write(log.index, INDEX_RECORD.pack(time.time(), size)) < INDEX_RECORD.size:
                _cut_torn_record(log.index)
        self._on_growth(path)
        return True

    def is_disk_full(self) -> bool:
        """Whether the logs cannot grow any more, so that the tasks' output is being lost.

        This asks the file system first, which is cheap, and then tries: some file systems claim
        that nothing is free although there is room.
        """
        for log in self._logs.values():
            try:
                found = os.fstatvfs(log.index)
                free = found.f_bfree if os.geteuid() == 0 else found.f_bavail
                if free == 0 and found.f_blocks > 0:
                    syscalls.reserve(log.index, os.fstat(log.index).st_size, _PROBE)
                    _cut_torn_record(log.index)
            except OSError as error:
                return error.errno in _FULL
            break  # they are all in one folder
        return False


def _cut_torn_record(index: int) -> None:
    """Keep the records aligned after a write that the disk had no room for."""
    os.ftruncate(index, os.fstat(index).st_size // INDEX_RECORD.size * INDEX_RECORD.size)
