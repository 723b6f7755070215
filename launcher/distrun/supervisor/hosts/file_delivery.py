"""Sends the program's files to the hosts that lack them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from distrun.agent.linux.regular import closing, open_regular
from distrun.agent.protocol import Cause, Code, Order, Report, file_messages
from distrun.agent.protocol.channel import Channel, Flight
from distrun.job import events
from distrun.sync.manifest import Manifest

_CHUNK = 64 * 1024
_WINDOW = 512 * 1024
"""The most bytes in flight. Other messages wait for no more than these."""
_OVERHEAD = 4 * 1024
"""Bytes that are added to the size of each part: a host needs longer to create a small file than to
receive it, and other messages wait for that as well."""
_ENTRIES_PER_PART = 1000
_PROGRESS_SECONDS = 0.2


def list_parts(manifest: Manifest) -> Iterator[file_messages.FileList]:
    """Return the list of files as messages that are small enough to delay no other message."""
    files = [(each.path, each.mode, each.size, each.digest) for each in manifest.files]
    links = [(each.path, each.target) for each in manifest.links]
    kinds: tuple[Sequence[Any], ...] = (files, links, manifest.folders)
    for at, entries in enumerate(kinds):
        for start in range(0, len(entries), _ENTRIES_PER_PART):
            part: list[list[Any]] = [[], [], []]
            part[at] = [*entries[start : start + _ENTRIES_PER_PART]]
            yield file_messages.FileList(part[0], part[1], part[2], last=False)
    yield file_messages.FileList([], [], [], last=True)


class FileSender:
    """Sends one host the files that it lacks. It reads them in chunks as it goes."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._numbers: deque[int] = deque()
        self._offset = 0
        self._flight = Flight(_WINDOW)
        self.files = 0
        """The number of files that the host lacked at first."""
        self.size: int | None = None
        """Their bytes; None before the host has answered."""
        self.received = 0
        """The number of those bytes that the host has received."""
        self.failure: Cause | None = None

    def resume(self, wanted: file_messages.FilesRequested) -> None:
        self._numbers = deque(wanted.numbers)
        self._offset = wanted.offset
        self._flight = Flight(_WINDOW)
        left = sum(self._manifest.files[number].size for number in wanted.numbers) - wanted.offset
        if self.size is None:
            self.size, self.files = left, len(wanted.numbers)
        self.received = self.size - left

    def pause(self) -> None:
        """Send nothing until the host says again what it lacks."""
        self._numbers.clear()

    def record_received(self, count: int) -> None:
        self._flight.remove(count + _OVERHEAD)
        self.received = min(self.received + count, self.size or 0)

    def send(self, channel: Channel[Report, Order]) -> None:
        """Send as much as the window and the link take now."""
        channel.flush()
        while self._numbers and self._flight.room > _OVERHEAD and not channel.pending:
            if channel.broken or self.failure is not None:
                return
            number = self._numbers[0]
            size = self._manifest.files[number].size
            chunk = self._read(number, size)
            if not chunk:
                return
            channel.send(file_messages.FileData(number, self._offset, chunk))
            channel.flush()
            self._flight.add(len(chunk) + _OVERHEAD)
            self._offset += len(chunk)
            if self._offset >= size:
                self._numbers.popleft()
                self._offset = 0

    def _read(self, number: int, size: int) -> bytes:
        name = self._manifest.files[number].path
        path = os.path.join(self._manifest.base, name).encode("utf-8", "surrogateescape")
        try:
            with closing(open_regular(path, os.O_RDONLY)) as descriptor:
                most = min(_CHUNK, self._flight.room - _OVERHEAD, size - self._offset)
                chunk = os.pread(descriptor, most, self._offset)
        except OSError as error:
            self.failure = Cause(Code.FILE_NOT_READ, path=name, errno=error.errno or 0)
            return b""
        if not chunk:
            self.failure = Cause(Code.FILE_TRUNCATED, path=name)
        return chunk


class FileDelivery:
    """Sends the files of one manifest to all hosts that need them.

    `send_list` sends a host the list, then what it lacks. `show_progress` is called several times a
    second with the progress of all hosts.
    """

    def __init__(
        self,
        manifest: Manifest,
        hosts: Iterable[str],
        send_list: Callable[[str, FileSender, list[Order]], None],
        emit: Callable[[events.Event], None],
        show_progress: Callable[[file_messages.TransferProgress], None],
    ) -> None:
        self._manifest = manifest
        self.waiting_for = set(hosts)
        """The hosts that neither have their copy nor cannot have one."""
        self._send_list = send_list
        self._emit = emit
        self._show_progress = show_progress
        self._shown_at = 0.0
        self._senders: dict[str, FileSender] = {}
        self._parts: list[Order] = list(list_parts(manifest))
        self.refusals: dict[str, Cause] = {}

    @property
    def is_finished(self) -> bool:
        return not self.waiting_for

    def add(self, host: str) -> None:
        """Send the files to one more host, or again to one that has lost them."""
        self.waiting_for.add(host)
        self.refusals.pop(host, None)

    def forget(self, host: str) -> None:
        self.waiting_for.discard(host)
        self.refusals.pop(host, None)
        self._report_progress(always=True)

    def start(self, host: str) -> None:
        if host in self.waiting_for:
            self._senders[host] = FileSender(self._manifest)
            self._send_list(host, self._senders[host], self._parts)

    def receive(self, host: str, message: Report) -> bool:
        """Handle a report. Returns False if it is not about files."""
        if isinstance(message, file_messages.FilesRequested):
            self._on_requested(host, message)
        elif isinstance(message, file_messages.FileDataReceived):
            self._senders[host].record_received(message.size)
            self._report_progress()
        elif isinstance(message, file_messages.FilesReady):
            self.waiting_for.discard(host)
            files, size = self._senders[host].files, self._senders[host].size or 0
            self._emit(events.Synced(at=message.at, host=host, files=files, size=size))
            self._report_progress(always=True)
        elif isinstance(message, file_messages.FilesRefused):
            if host in self._senders:
                self._senders[host].pause()
            self.waiting_for.discard(host)
            self.refusals[host] = message.cause
            self._report_progress(always=True)
        elif isinstance(message, file_messages.FilesPreserved):
            self._emit(events.FilesPreserved(host=host, **message._asdict()))
        else:
            return False
        return True

    def _on_requested(self, host: str, message: file_messages.FilesRequested) -> None:
        sender = self._senders[host]
        is_first = sender.size is None
        sender.resume(message)
        if is_first:
            self._emit(
                events.SyncStarted(
                    at=time.time(),
                    host=host,
                    files=sender.files,
                    size=sender.size or 0,
                    all_files=len(self._manifest.files),
                    all_size=self._manifest.size,
                )
            )
        self._report_progress(always=True)

    def _report_progress(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if always or now - self._shown_at >= _PROGRESS_SECONDS:
            self._shown_at = now
            busy = [sender for sender in self._senders.values() if sender.size]
            total = sum(sender.size or 0 for sender in busy)
            done = total if self.is_finished else sum(sender.received for sender in busy)
            self._show_progress(file_messages.TransferProgress(done, total, len(busy)))
