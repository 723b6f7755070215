"""The logs of this host's tasks: when each grew, so that they can be merged by time; their limit.

Beside each log is an index of records (INDEX_RECORD). A record is appended at most every 100 ms,
while the log grows. Nothing runs while no log grows: inotify reports when one does. It is asked for
the next growth alone, of a log that has not grown for a moment: a watch makes every write slower,
and a process that ends soon after its last watch has to wait 15 ms for the kernel.

If logs have a limit, the oldest bytes of a log that has grown beyond it become a hole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import TYPE_CHECKING, BinaryIO, Dict, List, Optional

from distrun.agent.linux import syscalls
from distrun.agent.linux.regular import open_to_append
from distrun.agent.linux.syscalls import Inotify
from distrun.agent.loop import Loop
from distrun.agent.protocol import INDEX_RECORD, INDEX_SUFFIX, Cause, Code, LogEnded

if TYPE_CHECKING:
    from distrun.agent.link import Link
    from distrun.agent.logs.streamer import LogStreamer

INTERVAL = 0.1
_FIRST_INTERVAL = 0.05
_MOST_UNWATCHED = 100
_IDLE_INTERVAL = 1.0
_PROBE = 4096  # bytes: a block
_FULL = (errno.ENOSPC, errno.EDQUOT)


def index_of(path: str) -> str:
    return os.path.splitext(path)[0] + INDEX_SUFFIX


class TaskLogs:
    """The logs in one folder. Without inotify they are polled instead.

    Args:
        streamer: sends them to the launching side; None if that sees the folder itself.
        opened: a path of the folder that stays right if the folder is renamed; default: `folder`.
        limit: how many bytes of each log stay on disk; None: all.
    """

    def __init__(
        self,
        folder: str,
        streamer: Optional[LogStreamer],
        link: Link,
        loop: Loop,
        opened: str = "",
        limit: Optional[int] = None,
    ) -> None:
        self.folder = folder
        self._opened = opened or folder
        self.streamer = streamer
        self._link, self._loop = link, loop
        self._limit = limit
        self._dropped: Dict[str, int] = {}
        """How many bytes at the start of each log are a hole, by path."""
        if streamer is not None:
            streamer.dropped = self._dropped
        self._sizes: Dict[str, int] = {}
        """By path. No log has an open descriptor: a host may have thousands."""
        self._inotify: Optional[Inotify] = None
        self._watches: Dict[int, str] = {}
        """The logs that have not grown since they were watched, by the number of the watch."""
        self._unwatched: Dict[str, None] = {}
        """The others: they are new, or grow."""
        self._watch_due = 0.0
        """When to watch new ones: once no task has started for a moment."""
        self._must_poll = False
        self._has_disk_fault = False
        self._next = loop.call_at(None, self._update)

    def path(self, name: str) -> str:
        return os.path.join(self._opened, name)

    def open(self, path: str) -> None:
        """Create a log, index it and stream it. Raises OSError if it cannot be created."""
        if self.streamer is not None:
            self.streamer.add(index_of(path))
            self.streamer.add(path)
        open_to_append(path).close()
        if path in self._sizes:
            return
        open_to_append(index_of(path)).close()
        self._sizes[path] = os.stat(path).st_size
        self._unwatched[path] = None
        self._watch_due = self._loop.now() + _FIRST_INTERVAL
        if self._next.when is None:
            self._update_at(self._watch_due)

    def _update_at(self, when: Optional[float]) -> None:
        """Update at that time; None: once inotify reports growth.

        Inotify is not waited for before: a busy log would wake the agent often.
        """
        self._next.move(when)
        if when is not None:
            self._loop.unwatch(self._inotify)
        elif self._inotify is not None and not self._loop.is_watched(self._inotify):
            self._loop.watch(self._inotify, self._update)

    def _update(self) -> None:
        """Index the logs that have grown; if any has, the next update follows after INTERVAL."""
        now = self._loop.now()
        grown = set(filter(self.record, self._changed()))
        if not self._must_poll:
            still = [path for path in self._unwatched if path not in grown]
            if now >= self._watch_due or len(still) >= _MOST_UNWATCHED:
                self._watch(still)
                grown.update(filter(self.record, still))  # by what was written in between
        if grown:
            self._update_at(now + INTERVAL)
        elif self._must_poll:
            self._update_at(now + _IDLE_INTERVAL)
        else:
            self._update_at(self._watch_due if self._unwatched else None)
        self.check_disk()

    def _changed(self) -> List[str]:
        if self._must_poll:
            return list(self._sizes)
        if self._inotify is not None:
            seen = {number for number, _ in self._inotify.drain()}
            if -1 in seen:  # events were lost
                seen = set(self._watches)
            for number in seen & self._watches.keys():
                self._unwatched[self._watches.pop(number)] = None
        return list(self._unwatched)

    def _watch(self, paths: List[str]) -> None:
        """Have inotify report their next growth. If one cannot be watched, all logs are polled."""
        for path in paths:
            try:
                self._inotify = self._inotify or Inotify()
                self._watches[self._inotify.watch_next_growth(path)] = path
            except FileNotFoundError:  # its task has removed it
                pass
            except OSError:
                self._must_poll = True
                return
            del self._unwatched[path]

    def record(self, path: str) -> bool:
        """Append one log's size to its index if it has grown. True if it has."""
        try:
            size = os.stat(path).st_size
        except OSError as error:
            if error.errno == errno.ENOENT and self.streamer is not None:
                self._link.report(LogEnded(os.path.basename(path), -1))
                with contextlib.suppress(OSError), open_to_append(path) as log:
                    log.truncate(self._sizes[path])  # the next attempt's output follows
            return False
        if size == self._sizes[path]:
            return False
        self._sizes[path] = size
        if self._limit is not None:
            self._drop_start(path, size, self._limit)
        # A full disk loses the times of some lines, never the lines.
        with contextlib.suppress(OSError), open_to_append(index_of(path)) as index:
            if index.write(INDEX_RECORD.pack(time.time(), size)) < INDEX_RECORD.size:
                _cut_torn_record(index)
        if self.streamer is not None:
            # The index first: a reader of the copy needs the times of the bytes that follow.
            self.streamer.on_growth(index_of(path))
            self.streamer.on_growth(path)
        return True

    def _drop_start(self, path: str, size: int, limit: int) -> None:
        dropped = syscalls.hole_size(size, limit)
        if dropped != self._dropped.get(path, 0):
            with contextlib.suppress(OSError), open_to_append(path) as log:
                if dropped:  # else its task has truncated it
                    syscalls.punch_start(log.fileno(), dropped)
                self._dropped[path] = dropped

    def size(self, path: str) -> int:
        return self._sizes.get(path, 0)

    def close(self, path: str) -> None:
        """Report the size of a log to which nothing writes any more."""
        if self.streamer is not None:
            with contextlib.suppress(OSError):
                size = os.stat(path).st_size
                self._link.report(LogEnded(os.path.basename(path), size))

    def stream(self) -> None:
        """Send as much of the logs as the link takes now."""
        if self.streamer is not None and self._link.is_up:
            self.streamer.send(self._link.channel)

    @property
    def are_streamed(self) -> bool:
        """Whether the launching side has everything, or sees the folder itself."""
        return self.streamer is None or self.streamer.is_done

    def check_disk(self) -> None:
        """Report once that the disk cannot be written, before anything that follows from it."""
        fault = None if self._has_disk_fault else self._find_disk_fault()
        if fault is not None:
            self._has_disk_fault = True
            self._link.report_fault(Cause(fault, path=self.folder))

    def _find_disk_fault(self) -> Optional[Code]:
        """Return why the logs cannot grow any more, so that the tasks' output is being lost.

        Some file systems claim that nothing is free although there is room: so that is tried.
        """
        for path in self._sizes:
            try:
                found = os.statvfs(path)
                if found.f_flag & os.ST_RDONLY:
                    return Code.LOG_DISK_READ_ONLY
                free = found.f_bfree if os.geteuid() == 0 else found.f_bavail
                if free == 0 and found.f_blocks > 0:
                    with open_to_append(index_of(path)) as index:
                        syscalls.reserve(index.fileno(), index.tell(), _PROBE)
                        _cut_torn_record(index)
            except OSError as error:
                return Code.LOG_DISK_FULL if error.errno in _FULL else None
            break  # they are all in one folder
        return None


def _cut_torn_record(index: BinaryIO) -> None:
    """Keep the records aligned after a write that the disk had no room for."""
    index.truncate(os.fstat(index.fileno()).st_size // INDEX_RECORD.size * INDEX_RECORD.size)
