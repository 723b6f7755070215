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


def _sync(paths: Iterable[str], done: _thread.LockType) -> None:
    """Write files, and the names in folders, to the disk, one after another."""
    for path in paths:
        try:
            with closing(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as descriptor:
                os.fsync(descriptor)
        except FileNotFoundError:
            continue  # not every job has every file
        except OSError as error:
            _say(f"the record may not be on disk: {error}")
    done.release()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # its log is on the same disk
        print(text, file=sys.stderr)  # noqa: T201


class JobRecord:
    """The record of one job, perhaps that of an earlier supervisor. Raises OSError."""

    def __init__(self, folder: JobFolder, *, is_resumed: bool) -> None:
        self._folder = folder
        self._log = record.EventLog(str(folder.events_file))
        self._syncing: list[_thread.LockType] = []
        """Of each thread that syncs files, what it releases at its end."""
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
            _say(f"the record cannot be written: {error}")
            if self._error is not None:
                return events.encode(event)
            self._error = error
            return None
        self._sync(event)
        return written

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
        """Sync the plan, verdicts and the end of the job, before the end is reported.

        A disk may take seconds, in which hosts must hear of this process: a thread waits for it.
        """
        is_end = isinstance(event, events.JobEnded)
        if not (is_end or isinstance(event, (events.JobPlanned, events.VerdictReached))):
            return
        is_plan = isinstance(event, events.JobPlanned)
        paths = self._folder.lasting_files() if is_plan else [str(self._folder.events_file)]
        done = _thread.allocate_lock()
        done.acquire()
        try:
            _thread.start_new_thread(_sync, (tuple(paths), done))
        except RuntimeError:  # a limit on processes
            _sync(paths, done)
        self._syncing = [each for each in self._syncing if each.locked()] + [done]
        deadline = time.monotonic() + _SYNC_SECONDS
        for each in self._syncing if is_end else ():
            if not each.acquire(timeout=max(0.0, deadline - time.monotonic())):
                _say(f"the record may not be on disk: it has not finished in {_SYNC_SECONDS:g} s")
                break
