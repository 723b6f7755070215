"""Sends a host the files that it says it lacks, never more at once than the link takes."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.file_messages import FileData, FileList

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.agent.protocol import Order, Report
    from distrun.agent.protocol.channel import Channel
    from distrun.agent.protocol.file_messages import FilesRequested
    from distrun.sync.manifest import Manifest

_CHUNK = 64 * 1024
_WINDOW = 512 * 1024
"""Bytes that may be under way: what else is to be said waits for no more than these."""
_OVERHEAD = 4 * 1024
"""Bytes by which a part of a file counts for more than its own. To make a small file takes a host
longer than to receive it, and what else is to be said waits for that as well."""
_ENTRIES_A_PART = 1000


def listed(manifest: Manifest) -> Iterator[FileList]:
    """The list of files as messages, each of a size that keeps nothing waiting."""
    files = [[each.path, each.mode, each.size, each.digest] for each in manifest.files]
    for start in range(0, len(files), _ENTRIES_A_PART):
        yield FileList(files[start : start + _ENTRIES_A_PART], [], [], last=False)
    links = [[each.path, each.target] for each in manifest.links]
    for start in range(0, len(links), _ENTRIES_A_PART):
        yield FileList([], links[start : start + _ENTRIES_A_PART], [], last=False)
    for start in range(0, len(manifest.folders), _ENTRIES_A_PART):
        folders = list(manifest.folders[start : start + _ENTRIES_A_PART])
        yield FileList([], [], folders, last=False)
    yield FileList([], [], [], last=True)


class Sender:
    """One host's. It reads the files as it goes; none is in memory as a whole."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._numbers: deque[int] = deque()
        self._offset = 0
        self._under_way = 0
        self.files = 0
        """How many files the host was to be sent; set by its first answer."""
        self.size: int | None = None
        """Their bytes; None before that answer."""
        self.is_new = True
        """Whether nobody has been told yet that it begins."""
        self.taken = 0
        """How many bytes of them it has."""
        self.failure: Cause | None = None
        """Why a file cannot be sent, once one cannot."""

    def resume(self, wanted: FilesRequested) -> None:
        """Send these, from now on."""
        self._numbers = deque(wanted.numbers)
        self._offset = wanted.offset
        self._under_way = 0
        left = sum(self._manifest.files[number].size for number in wanted.numbers) - wanted.offset
        if self.size is None:
            self.size, self.files = left, len(wanted.numbers)
        self.taken = self.size - left

    def pause(self) -> None:
        """Send nothing until the host says again what it lacks."""
        self._numbers.clear()

    def have_taken(self, count: int) -> None:
        """A part of so many bytes has arrived."""
        self._under_way = max(0, self._under_way - count - _OVERHEAD)
        self.taken += count

    def send(self, channel: Channel[Report, Order]) -> None:
        """Send as much as window and link take now."""
        while self._numbers and self._under_way < _WINDOW and not channel.pending:
            if channel.broken or self.failure is not None:
                return
            number = self._numbers[0]
            size = self._manifest.files[number].size
            chunk = self._read(number, size)
            if not chunk:
                return
            channel.send(FileData(number, self._offset, chunk))
            self._under_way += len(chunk) + _OVERHEAD
            self._offset += len(chunk)
            if self._offset >= size:
                self._numbers.popleft()
                self._offset = 0

    def _read(self, number: int, size: int) -> bytes:
        name = self._manifest.files[number].path
        path = os.path.join(self._manifest.base, name).encode("utf-8", "surrogateescape")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self.failure = Cause(Code.FILE_NOT_READ, path=name, errno=error.errno or 0)
            return b""
        try:
            chunk = os.pread(descriptor, min(_CHUNK, size - self._offset), self._offset)
        except OSError as error:
            self.failure = Cause(Code.FILE_NOT_READ, path=name, errno=error.errno or 0)
            return b""
        finally:
            os.close(descriptor)
        if not chunk:
            self.failure = Cause(Code.FILE_TRUNCATED, path=name)
        return chunk
