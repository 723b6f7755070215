"""What must survive the machine: files that are written to their disk, not only to its cache."""

from __future__ import annotations

import _thread  # not threading, whose threads keep a process from being forked
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def sync_file(path: str) -> None:
    """Write a file, or the names in a folder, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DiskSync:
    """Syncs files in threads: a disk may take seconds, in which hosts must hear of this process."""

    def __init__(self) -> None:
        self._running: list[_thread.LockType] = []
        self._failure: OSError | None = None

    def start(self, paths: Iterable[str]) -> None:
        """Begin to sync files and folders, one after another."""
        done = _thread.allocate_lock()
        done.acquire()
        self._running = [each for each in self._running if each.locked()] + [done]
        try:
            _thread.start_new_thread(self._run, (tuple(paths), done))
        except RuntimeError:  # a limit on processes
            self._run(tuple(paths), done)

    def _run(self, paths: tuple[str, ...], done: _thread.LockType) -> None:
        for path in paths:
            try:
                sync_file(path)
            except FileNotFoundError:
                continue  # not every job has every file
            except OSError as error:
                self._failure = error
        done.release()

    def wait(self, seconds: float) -> None:
        """Wait until everything that was begun is on the disk.

        Raises:
            OSError: some of it could not be written.
            TimeoutError: it takes longer than that.
        """
        deadline = time.monotonic() + seconds
        for done in self._running:
            if not done.acquire(timeout=max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"the disk has not finished within {seconds:g} s")
            done.release()
        if self._failure is not None:
            raise self._failure
