"""One task's log file and the index of when it grew."""

from __future__ import annotations

import bisect
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = struct.Struct("<dQ")  # unix time in seconds, size of the log at that time in bytes
_RECORDS_A_READ = 1024
_LATEST_TIME = 4e10  # later than any clock: the record is damaged


@dataclass(frozen=True)
class Extent:
    """How far a log has come: its size in bytes, and when that was written (unix time)."""

    size: int
    written: float


@dataclass(frozen=True)
class TaskLog:
    """Where a task's output is. The files need not exist yet: an absent log is an empty one.

    Nothing stays open between two reads, so that a job of a thousand tasks needs no thousand
    descriptors, and every read can resume from nothing but an offset.
    """

    task: str
    path: str
    index_path: str

    def extent(self) -> Extent:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return Extent(0, 0.0)
        return Extent(found.st_size, found.st_mtime)

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer where the log ends before."""
        return _read_at(self.path, offset, size)

    def written_since(self, when: float) -> int:
        """The offset before which everything was written before `when` (unix time).

        Right to the index's 100 ms; bytes that the index does not know yet count as written
        when the log last grew.
        """
        count = self._records()
        extent = self.extent()
        first = bisect.bisect_left(range(count), when, key=lambda i: self._record(i)[0])
        if first == count and extent.written < when:
            return extent.size
        # The record before the first that is late enough ends what was written earlier.
        return min(self._record(first - 1)[1], extent.size) if first else 0

    def growth(self, after: int) -> Iterator[tuple[float, int]]:
        """The index's records (unix time, size) in which the log had grown past `after`."""
        count = self._records()
        at = bisect.bisect_right(range(count), after, key=lambda i: self._record(i)[1])
        while at < count:
            size = min(_RECORDS_A_READ, count - at) * RECORD.size
            block = _read_at(self.index_path, at * RECORD.size, size)
            if len(block) < size:  # cut off while it is read
                return
            for when, offset in RECORD.iter_unpack(block):
                if 0 < when < _LATEST_TIME:
                    yield when, offset
            at += size // RECORD.size

    def spans(self, start: int, end: int) -> Iterator[tuple[float, int]]:
        """When what is between two offsets was written: unix times, each with where it ends.

        What the index does not know yet counts as written when the log last grew.
        """
        for written, offset in self.growth(after=start):
            if offset >= end:
                yield written, end
                return
            if offset > start:
                start = offset
                yield written, offset
        if start < end:
            yield self.extent().written, end

    def _records(self) -> int:
        try:
            return os.stat(self.index_path).st_size // RECORD.size  # a torn last one is left out
        except FileNotFoundError:
            return 0

    def _record(self, number: int) -> tuple[float, int]:
        block = _read_at(self.index_path, number * RECORD.size, RECORD.size)
        when, offset = RECORD.unpack(block.ljust(RECORD.size, b"\0"))
        return when, offset


def _read_at(path: str, offset: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
