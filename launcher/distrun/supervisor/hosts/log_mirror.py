"""Copies of a host's logs in the job's folder."""

from __future__ import annotations

import contextlib
import os
import time
from errno import EFBIG
from pathlib import Path

from distrun.agent.linux import syscalls
from distrun.agent.linux.regular import closing, open_regular
from distrun.agent.protocol import INDEX_RECORD, INDEX_SUFFIX, Cause, Code, LogData
from distrun.job.folder import LOG_SUFFIX, late_log_name, log_name, task_of_log

_LARGEST_SIZE = (1 << 64) - 1


class LogMirror:
    """Copies the logs of one host's tasks, and the logs' indexes, into a folder as they arrive.

    `limit`: how many bytes of each log are kept; None: all.
    """

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self._folder = folder
        self.limit = limit
        self._dropped: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        """How many bytes of each file of the host are here."""
        self._starts: dict[str, int] = {}
        """Where the log on the host begins in its copy, if an earlier agent has begun that. The
        sizes in its index are changed by as much."""
        self._resumed: dict[str, int] = {}
        """How many bytes of the logs of an earlier supervisor were here at first."""
        self._late: dict[str, str] = {}
        """The names of the copies of logs that are not called like the logs of the host."""
        self.final_sizes: dict[str, int | None] = {}
        """The size of each log once its task has ended; None: it may grow."""
        self.failure: Cause | None = None
        """Why the copies cannot become complete."""
        self.behind = 0.0
        """Seconds by which the clock of the host is behind this one."""

    def add(self, log: str) -> None:
        """Copy this log and its index from now on."""
        index = _index_of(log)
        if log not in self.sizes or log in self._late:
            self._late.pop(log, None)
            with contextlib.suppress(OSError):
                size = (self._folder / log).stat().st_size
                self._starts[log] = size - self.sizes.get(log, 0)
        with contextlib.suppress(OSError):
            self._append(log, b"")  # its task may print nothing
        self.sizes.setdefault(log, 0)
        self.final_sizes[log] = None
        self.sizes.setdefault(index, 0)

    def resume(self, log: str, start: int) -> None:
        """Add the rest of a log to its copy. The host's log begins at `start` in the copy."""
        path = self._folder / log
        size = path.stat().st_size if path.exists() else 0
        self._starts[log] = start
        self.sizes[log] = max(0, size - start)
        self._resumed[log] = self.sizes[log]
        self.final_sizes[log] = None

    def index_rest(self) -> None:
        """Note in the indexes that the rest of the resumed logs has arrived; ignores errors."""
        for log, size in self._resumed.items():
            if self.sizes[log] > size:
                record = INDEX_RECORD.pack(time.time(), self._starts[log] + self.sizes[log])
                with contextlib.suppress(OSError):
                    self._append(_index_of(log), record)

    def add_late(self, log: str, start: int, size: int, at: float, index_size: int = 0) -> None:
        """Add the rest of a log, in files of its own: other output follows in the copy.

        The host's log begins at `start` in the copy, which has `size` bytes of it, and `index_size`
        bytes of the index. `at`: when the host was lost (Unix seconds).
        """
        index = _index_of(log)
        self._late[log] = name = late_log_name(log, start + size, int(at * 1e9))
        file = self._folder / name
        self._starts[log] = -size
        self.sizes[log] = size + (file.stat().st_size if file.exists() else 0)
        file.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)  # it is sent again from there
        self.sizes[index] = index_size // INDEX_RECORD.size * INDEX_RECORD.size
        self.final_sizes[log] = None

    def final_size(self, log: str) -> int | None:
        """Return the size of a log on the host; None: it may grow, or its rest is set aside."""
        return None if log in self._late else self.final_sizes.get(log)

    def is_awaited(self, log: str, size: int) -> bool:
        """Whether the rest of a log, up to this size on the host, is to come into its copy."""
        is_here = log in self._late or self.sizes[log] >= size
        return self.failure is None and not is_here

    def offset_in_copy(self, task: str, offset: int) -> int:
        """Return where a byte of a task's log on the host is, or will be, in the copy."""
        return offset + self._starts.get(log_name(task), 0)

    def set_aside(self, log: str, at: float) -> None:
        """Write the rest of a log into other files until it is added again. `at`: Unix time."""
        if log in self._late:
            return
        start, index_size = self._starts.get(log, 0), self.sizes[_index_of(log)]
        self.add_late(log, start, self.sizes[log], at, index_size)

    @property
    def received(self) -> dict[str, int]:
        """How many bytes of each log are here, by the task."""
        return {task_of_log(log): self.sizes[log] for log in self.final_sizes}

    @property
    def is_complete(self) -> bool:
        """Whether all output of the tasks is here, and no more will come."""
        return all(
            size is not None and self.sizes[log] >= size for log, size in self.final_sizes.items()
        )

    def write(self, part: LogData) -> bool:
        """Append a part to its copy, unless it is there already. Returns False if it is lost."""
        if self.failure is not None:
            return False
        size = self.sizes[part.name]
        is_log = part.name in self.final_sizes
        is_limited = self.limit is not None and is_log
        if part.offset > size and not is_limited:
            self.failure = Cause(Code.LOG_PART_MISSING, path=part.name)
            return False
        fresh = part.data[max(0, size - part.offset) :]
        start = max(size, part.offset)
        at = start + self._starts.get(part.name, 0)
        dropped = syscalls.hole_size(at + len(fresh), self.limit) if is_limited else 0
        try:
            if is_log:
                late = self._late.get(part.name, part.name)
                self._append(late, fresh, at, max(dropped, at if start > size else 0))
            else:
                self._append_to_index(part.name, fresh)
        except (OSError, OverflowError) as error:
            errno = getattr(error, "errno", EFBIG)
            self.failure = Cause(Code.LOG_COPY_NOT_WRITTEN, path=part.name, errno=errno)
            return False
        self.sizes[part.name] = start + len(fresh)
        return True

    def _append_to_index(self, index: str, fresh: bytes) -> None:
        """Write a part of an index with the times here, and the sizes of the log's copy."""
        log = index.removesuffix(INDEX_SUFFIX) + LOG_SUFFIX
        shift = self._starts.get(log, 0)
        whole = len(fresh) - len(fresh) % INDEX_RECORD.size  # an agent sends no other
        # A hostile host may send the largest number that there is.
        fresh = b"".join(
            INDEX_RECORD.pack(when + self.behind, max(0, min(shift + size, _LARGEST_SIZE)))
            for when, size in INDEX_RECORD.iter_unpack(fresh[:whole])
        )
        self._append(_index_of(self._late.get(log, log)), fresh)

    def _append(self, file: str, fresh: bytes, start: int = 0, dropped: int = 0) -> None:
        """Write at the end of a copy, from `start` on; its first `dropped` bytes become a hole."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with closing(open_regular(self._folder / file, flags)) as descriptor:
            if dropped > self._dropped.get(file, 0):
                os.truncate(descriptor, start)
                syscalls.punch_start(descriptor, dropped)
                self._dropped[file] = dropped
            view = memoryview(fresh)
            while view:
                view = view[os.write(descriptor, view) :]


def _index_of(log: str) -> str:
    return os.path.splitext(log)[0] + INDEX_SUFFIX
