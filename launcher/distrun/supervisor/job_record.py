"""The record that a supervisor writes; what must survive the machine is written to the disk."""

from __future__ import annotations

import _thread  # not threading, whose threads keep a process from being forked
import contextlib
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

from distrun.agent.linux.regular import closing
from distrun.agent.protocol import Cause, Code
from distrun.errors import HostError
from distrun.job import events, record
from distrun.job.folder import JobFolder

_SYNC_SECONDS = 10.0
"""How long the end of a job waits for a slow disk. Nothing of the job runs then."""


def sync_file(path: str) -> None:
    """Write a file, or the names in a folder, to the disk. Raises OSError."""
    with closing(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as descriptor:
        os.fsync(descriptor)


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
        """Wait until all that was begun is on the disk. Raises OSError, also TimeoutError."""
        deadline = time.monotonic() + seconds
        for done in self._running:
            if not done.acquire(timeout=max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"the disk has not finished within {seconds:g} s")
            done.release()
        if self._failure is not None:
            raise self._failure


class JobRecord:
    """The record of one job, perhaps that of an earlier supervisor. Raises OSError."""

    def __init__(self, folder: JobFolder, *, is_resumed: bool) -> None:
        self._folder = folder
        self._log = record.EventLog(str(folder.events_file))
        self._disk = DiskSync()
        self._error: OSError | None = None
        if is_resumed:
            self._log.require_space()
            folder.absorb_unsent_reports(self._log)

    def write(self, event: events.Event) -> dict[str, Any] | None:
        """Append an event, and return it as written.

        None: that failed for the first time, and the event is to follow :attr:`failure`.
        """
        try:
            written = self._log.append(event)
        except OSError as error:
            with contextlib.suppress(OSError):  # its log is on the same disk
                print(f"the record cannot be written: {error}", file=sys.stderr)  # noqa: T201
            if self._error is not None:
                return events.encode(event)
            self._error = error
            return None
        self._sync(event)
        return written

    def write_last(self, event: events.Event) -> None:
        """Append the event with which the job ends after a defect, if that can be done."""
        with contextlib.suppress(Exception):  # the disk may be full, or this what has failed
            self._log.append(event)
            self._sync(event)

    def release_reserve(self) -> None:
        self._log.release_reserve()

    @property
    def failure(self) -> events.Aborted:
        """The job's end because an event could not be written."""
        path = self._folder.shown(self._folder.events_file)
        errno = 0 if self._error is None else self._error.errno or 0
        cause = Cause(Code.RECORD_NOT_WRITTEN, path=path, errno=errno, name="DISTRUN_HOME")
        return events.Aborted(at=time.time(), cause=cause, exit_code=HostError.exit_code)

    def _sync(self, event: events.Event) -> None:
        """Sync the plan, verdicts and the end of the job, before the end is reported."""
        folder = self._folder
        if isinstance(event, events.JobPlanned):
            self._disk.start(folder.lasting_files())
        elif isinstance(event, (events.VerdictReached, events.JobEnded)):
            self._disk.start([str(folder.events_file)])
        if isinstance(event, events.JobEnded):
            try:
                self._disk.wait(_SYNC_SECONDS)
            except OSError as error:
                with contextlib.suppress(OSError):  # its log is on the same disk
                    print(f"the record may not be on disk: {error}", file=sys.stderr)  # noqa: T201
