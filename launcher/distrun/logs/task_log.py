"""One task's log file and the index of when it grew."""

from __future__ import annotations

import bisect
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from distrun.agent.protocol import INDEX_RECORD
from distrun.frozen import Frozen
from distrun.logs.line_buffer import LONGEST_LINE
from distrun.spec.regular_file import data_start, open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.job.folder import JobFolder

_INDEX_RECORDS_A_READ = 1024
_LATEST_TIME = 4e10  # later than any clock: the record is damaged


class Extent(NamedTuple):
    """The size of a log in bytes, and when it last grew (Unix time)."""

    size: int
    written: float


class TaskLog(Frozen):
    """The files of a task's output. They need not exist yet: a missing log is empty.

    No file stays open between reads: a job of a thousand tasks needs no thousand descriptors, and
    a read needs only an offset to continue.
    """

    task: str
    path: str
    index_path: str

    @classmethod
    def of(cls, folder: JobFolder, task: str, *, labelled: bool = False) -> TaskLog:
        """The log of a job's task. `labelled`: with the job's id before the task's name."""
        name = f"{folder.job_id} {task}" if labelled else task
        return cls(name, str(folder.log_of(task)), str(folder.index_of(task)))

    def extent(self) -> Extent:
        try:
            found = _stat(self.path)
        except FileNotFoundError:
            return Extent(0, 0.0)
        return Extent(found.st_size, found.st_mtime)

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer if the log ends before that."""
        return _read_at(self.path, offset, size)

    def start(self) -> int:
        """The offset of the first whole line that was not dropped (`logs.max_size`)."""
        return self.read_kept(0, 1)[0]

    def read_kept(self, offset: int, size: int) -> tuple[int, bytes]:
        """Like :meth:`read`, from the first whole line on if there was one dropped at `offset`.

        Returns the offset of the bytes, too.
        """
        try:
            with open_regular_file(self.path) as file:
                return _read_kept(file.fileno(), offset, size)
        except FileNotFoundError:
            return offset, b""

    def hole_start(self, end: int) -> int:
        """The start of the hole that ends at an offset; `end` if there is none."""
        try:
            with open_regular_file(self.path) as file:
                # From every offset in the hole, the next byte that is in none is at `end` or later.
                return bisect.bisect_left(
                    range(end), end, key=lambda offset: data_start(file.fileno(), offset)
                )
        except FileNotFoundError:
            return end

    def written_since(self, when: float) -> int:
        """The offset of the first byte written at or after `when` (Unix time).

        It is exact to the index's 100 ms. Bytes that are not in the index yet count as written
        when the log last grew.
        """
        count = self._records()
        extent = self.extent()
        first = bisect.bisect_left(range(count), when, key=lambda i: self._record(i)[0])
        if first == count and extent.written < when:
            return extent.size
        # What was written earlier ends at the record before the first that is late enough.
        return min(self._record(first - 1)[1], extent.size) if first else 0

    def _growth(self, after: int) -> Iterator[tuple[float, int]]:
        """The records of the index (Unix time, size) in which the log was longer than `after`."""
        count = self._records()
        at = bisect.bisect_right(range(count), after, key=lambda i: self._record(i)[1])
        while at < count:
            size = min(_INDEX_RECORDS_A_READ, count - at) * INDEX_RECORD.size
            block = _read_at(self.index_path, at * INDEX_RECORD.size, size)
            if len(block) < size:  # truncated meanwhile
                return
            for when, offset in INDEX_RECORD.iter_unpack(block):
                if 0 < when < _LATEST_TIME:
                    yield when, offset
            at += size // INDEX_RECORD.size

    def spans(self, start: int, end: int) -> Iterator[tuple[float, int]]:
        """When the bytes between two offsets were written: Unix times, each with an end offset.

        Bytes that are not in the index yet count as written when the log last grew.
        """
        for written, offset in self._growth(after=start):
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
            # An incomplete last record is left out.
            return _stat(self.index_path).st_size // INDEX_RECORD.size
        except FileNotFoundError:
            return 0

    def _record(self, number: int) -> tuple[float, int]:
        block = _read_at(self.index_path, number * INDEX_RECORD.size, INDEX_RECORD.size)
        when, offset = INDEX_RECORD.unpack(block.ljust(INDEX_RECORD.size, b"\0"))
        return when, offset


class LatePart(NamedTuple):
    """Output that arrived after later output had been written to its task's log.

    It belongs at `offset` there. `size`: how many bytes of it to show; it may still grow.
    """

    offset: int
    log: TaskLog
    size: int


class JoinedLog(TaskLog):
    """A task's log with its late parts, in ascending order. Offsets are those in the whole."""

    parts: tuple[LatePart, ...]

    @property
    def own(self) -> TaskLog:
        """The log without the parts."""
        return TaskLog(self.task, self.path, self.index_path)

    def own_offset(self, offset: int) -> int:
        """Return the offset in the log itself, after all parts."""
        return max(self.parts[-1].offset, offset - sum(part.size for part in self.parts))

    def extent(self) -> Extent:
        return Extent(self._sections()[-1].end, self.own.extent().written)

    def read(self, offset: int, size: int) -> bytes:
        blocks = []
        for section in self._sections():
            if section.start <= offset < section.end and size > 0:
                wanted = min(size, section.end - offset)
                block = section.log.read(offset - section.shift, wanted)
                blocks.append(block)
                offset, size = offset + wanted, size - wanted
                if len(block) < wanted:
                    break
        return b"".join(blocks)

    def start(self) -> int:
        """The offset of the first whole line after everything that was dropped."""
        kept = [(each, each.log.start() + each.shift) for each in self._sections()]
        dropped = [min(start, each.end) for each, start in kept if start > each.start]
        return max(dropped, default=0)

    def read_kept(self, offset: int, size: int) -> tuple[int, bytes]:
        for section in self._sections():
            if section.start <= offset < section.end:
                at, block = section.log.read_kept(offset - section.shift, size)
                offset = min(at + section.shift, section.end)
                if offset < section.end:
                    return offset, block[: section.end - offset]
        return offset, b""

    def hole_start(self, end: int) -> int:
        for section in self._sections():
            if section.start < end <= section.end:
                start = section.log.hole_start(end - section.shift) + section.shift
                return max(section.start, start)
        return end

    def written_since(self, when: float) -> int:
        for section in self._sections():
            offset = section.log.written_since(when) + section.shift
            if offset < section.end:
                return max(offset, section.start)
        return self.extent().size

    def spans(self, start: int, end: int) -> Iterator[tuple[float, int]]:
        for section in self._sections():
            first, last = max(start, section.start), min(end, section.end)
            if first < last:
                for written, at in section.log.spans(first - section.shift, last - section.shift):
                    yield written, at + section.shift

    def _sections(self) -> list[_Section]:
        own = self.own
        size, done, at = own.extent().size, 0, 0
        sections = []
        for part in self.parts:
            length = max(0, min(part.offset, size) - done)
            sections.append(_Section(own, at, at + length, at - done))
            done, at = done + length, at + length
            sections.append(_Section(part.log, at, at + part.size, at))
            at += part.size
        return [*sections, _Section(own, at, at + size - done, at - done)]


class _Section(NamedTuple):
    """A part of a whole log: its offsets there, less `shift`, are the offsets in `log`."""

    log: TaskLog
    start: int
    end: int
    shift: int


def _read_at(path: str, offset: int, size: int) -> bytes:
    try:
        with open_regular_file(path) as file:
            return os.pread(file.fileno(), size, offset)
    except FileNotFoundError:
        return b""


def _read_kept(descriptor: int, offset: int, size: int) -> tuple[int, bytes]:
    block = os.pread(descriptor, size, offset)
    # The bytes may have been dropped before or while they were read: then there are zeros.
    while b"\0" in block and (start := data_start(descriptor, offset)) > offset:
        # A line of more than 1 MiB is shown in pieces anyway.
        rest = os.pread(descriptor, LONGEST_LINE, start)
        offset = start + rest.find(b"\n") + 1
        block = os.pread(descriptor, size, offset)
    return offset, block


def _stat(path: str) -> os.stat_result:
    """Raises FileNotFoundError if no regular file is there: a task may have replaced its log."""
    try:
        found = os.lstat(path)
    except NotADirectoryError as error:  # a task may have replaced the folder, too
        raise FileNotFoundError(path) from error
    if not stat.S_ISREG(found.st_mode):
        raise FileNotFoundError(path)
    return found
