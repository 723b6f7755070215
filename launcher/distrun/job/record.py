"""The record of a job: an append-only file of its events, the only authority on what happened.

The file has one JSON object a line. The replay of its events through
:func:`distrun.lifecycle.step` is the job's state. A torn last line, left by a death while
writing, is ignored.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from distrun.agent.linux import syscalls
from distrun.agent.linux.regular import open_regular
from distrun.job.events import Event, JobCreated, JobQueued, decode, encode
from distrun.spec.regular_file import open_regular_file

_RESERVE = 256 * 1024
"""Bytes of the disk that are reserved for the end of a job: two events for each of 1,000 tasks."""

_LONGEST_LINE = 8 << 20
"""Bytes. The plan of 10,000 tasks is shorter. A damaged record may be a hole of terabytes, and what
a line of a stranger's has in it takes 25 times its length in memory."""
_JSON = json.JSONDecoder()
_MOST_PARTS = 4
"""How many times as long a damaged line may be for the record to be read on after it."""


class EventLog:
    """Writes a record. Only the job's supervisor does.

    It reserves disk space ahead, so that a job whose disk is full can still record that, and how
    it ended.
    """

    def __init__(self, path: str) -> None:
        self._file = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._drop_torn_line(path)
        self._reserved = 0
        self._reserves = True

    def _drop_torn_line(self, path: str) -> None:
        """Remove a last line that an earlier supervisor did not complete."""
        with open_regular_file(path) as file:
            text = file.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.ftruncate(self._file, whole)

    def require_space(self) -> None:
        """Reserve space for what follows. Raises OSError if the disk has none."""
        self._reserve(os.fstat(self._file).st_size)

    def append(self, event: Event) -> dict[str, Any]:
        """Write one event, whole or not at all, and return it as written.

        Raises:
            OSError: the disk is full or broken; the earlier events are unharmed. It is raised
                once when only the reserved space is left; later events use that space.
        """
        record = encode(event)
        line = json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"
        size = os.fstat(self._file).st_size
        if size:  # a job that cannot write its first event needs no space for its end
            self._reserve(size + len(line))
        rest = line
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, size)
            raise
        return record

    def _reserve(self, size: int) -> None:
        if not self._reserves or size + _RESERVE <= self._reserved:
            return
        try:
            syscalls.reserve(self._file, size, 2 * _RESERVE)
        except OSError as error:
            self._reserves = False
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(error.errno, os.strerror(error.errno)) from error
        self._reserved = size + 2 * _RESERVE

    def release_reserve(self) -> None:
        self._reserves = False
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, os.fstat(self._file).st_size)

    def close(self) -> None:
        """Close it once its events are on the disk. Raises OSError if that is impossible."""
        self.release_reserve()
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)


class EventReader:
    """Reads a record's events in order, also while it grows; skips those of later versions."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self.has_skipped = False
        """Whether it has met lines that are no events of this version."""

    def read_new(self) -> list[Event]:
        """Return the events added since the last call, without a torn last line."""
        with open_regular_file(self._path) as file:
            file.seek(self._offset)
            found = []
            for line in _lines(file):  # one by one: a damaged record may be one of empty lines
                is_whole = line.endswith(b"\n")
                event = _decode_line(line) if is_whole and line != b"\n" else None
                if event is not None:
                    found.append(event)
                elif is_whole or len(line) == _LONGEST_LINE:
                    self.has_skipped = True
                self._offset = file.tell() if is_whole else self._offset
        return found


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines, up to one that is torn; of one that is too long, only the end."""
    while line := file.readline(_LONGEST_LINE):
        parts = 1  # a shorter one without its end is still being written
        while len(line) == _LONGEST_LINE and not line.endswith(b"\n") and parts <= _MOST_PARTS:
            line, parts = file.readline(_LONGEST_LINE), parts + 1
        yield line
        if not line.endswith(b"\n"):
            return


def _decode_line(line: bytes) -> Event | None:
    try:
        found, end = _JSON.raw_decode(text := line.decode())
        return None if text[end:].strip() else decode(found)
    except (ValueError, RecursionError):
        return None


def read(path: str) -> list[Event]:
    """Return all events of a record; none if it cannot be read."""
    with contextlib.suppress(OSError):
        return EventReader(path).read_new()
    return []


def beginning_fault(path: str) -> str | None:
    """Say why a record does not show its job: it is cut, or not there. None if it begins well."""
    try:
        event, size = first(path), os.stat(path).st_size
    except FileNotFoundError:
        return "is not a regular file" if os.path.lexists(path) else "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not size:
        return "has no events"
    return None if isinstance(event, (JobCreated, JobQueued)) else "is damaged"


def fault(path: str) -> str | None:
    found, reader = beginning_fault(path), EventReader(path)
    if found is None:
        reader.read_new()
    return "is damaged" if reader.has_skipped else found


def first(path: str) -> Event | None:
    """Return a record's first event without reading the rest; None if it has none yet."""
    with open_regular_file(path) as file:
        line = file.readline(_LONGEST_LINE)
    return _decode_line(line) if line.endswith(b"\n") else None
