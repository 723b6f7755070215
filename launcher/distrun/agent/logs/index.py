"""When each task's log grew: the index that lets logs be merged by time.

Beside a log lies an index of 16-byte records, a Unix time and the log's size at that time
(`<dQ`), appended at most every 100 ms while the log grows. Nothing runs while no log grows.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from typing import Callable, Dict, Optional

from distrun.agent.linux import syscalls
from distrun.agent.linux.syscalls import Inotify

RECORD = struct.Struct("<dQ")
INTERVAL = 0.1
_IDLE_INTERVAL = 1.0
_PROBE = 4096  # bytes: a block
_FULL = (errno.ENOSPC, errno.EDQUOT)


def index_of(path: str) -> str:
    """Where the index of a log is."""
    return os.path.splitext(path)[0] + ".idx"


class _Log:
    def __init__(self, path: str, index: int) -> None:
        self.path = path
        self.index = index
        self.size = os.stat(path).st_size


class LogIndexer:
    """Keeps the indexes of the logs given to :meth:`add`.

    Where inotify is used up, the logs are looked at from time to time instead. `on_growth` is
    called with the path of each log that has grown, once its index says so.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        on_growth: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._on_growth = on_growth
        self._logs: Dict[str, _Log] = {}
        self._inotify: Optional[Inotify] = None
        with contextlib.suppress(OSError):
            self._inotify = Inotify()
        self._is_blind = self._inotify is None
        self._resting_until: Optional[float] = None

    @property
    def descriptor(self) -> Optional[int]:
        """To wait for readability on, where :attr:`next_look` is None."""
        return None if self._inotify is None else self._inotify.fileno()

    @property
    def next_look(self) -> Optional[float]:
        """When :meth:`look` is due; None: when the descriptor becomes readable."""
        return self._resting_until

    def add(self, path: str) -> None:
        """Create the log where there is none, and watch it. Raises OSError where it cannot be."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o600))
        if path in self._logs:
            return
        index = os.open(index_of(path), flags, 0o600)
        _cut_torn_record(index)
        self._logs[path] = _Log(path, index)
        if self._inotify is not None:
            # One that cannot be watched is looked at from time to time, like all then are.
            try:
                self._inotify.watch_growth(path)
            except OSError:
                self._is_blind = True
        if self._is_blind and self._resting_until is None:
            self._resting_until = self._clock() + INTERVAL

    def look(self) -> None:
        """Write down which logs have grown, then rest for INTERVAL."""
        if self._inotify is not None:
            self._inotify.drain()
        grown = [self.record(path) for path in self._logs]
        if any(grown):
            self._resting_until = self._clock() + INTERVAL
        else:
            self._resting_until = self._clock() + _IDLE_INTERVAL if self._is_blind else None

    def record(self, path: str) -> bool:
        """Append one log's size if it has grown; True where it has."""
        log = self._logs[path]
        try:
            size = os.stat(path).st_size
        except OSError:
            return False
        if size == log.size:
            return False
        log.size = size
        # A full disk loses the times of some lines, never the lines: the index is a help only.
        with contextlib.suppress(OSError):
            if os.write(log.index, RECORD.pack(time.time(), size)) < RECORD.size:
                _cut_torn_record(log.index)
        self._on_growth(path)
        return True

    def is_disk_full(self) -> bool:
        """Whether the logs cannot grow any more: what tasks print is being lost.

        Asked of the file system first, which costs next to nothing, and then tried: some say
        that nothing is free while there is.
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
    os.ftruncate(index, os.fstat(index).st_size // RECORD.size * RECORD.size)
