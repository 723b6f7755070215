"""Sends what the tasks' logs have to the launching side, which copies them.

The logs on this host are the truth; the launching side says how much of each it has, and gets
the rest. So much may be under way at a time as it allows: a task that prints without end fills
neither its memory nor the link, and other messages wait for no more than that.
"""

from __future__ import annotations

import os
from typing import Dict, List

from distrun.agent.protocol import LOG_OVERHEAD, FollowLogs, LogData, Order, Report
from distrun.agent.protocol.channel import Channel

_CHUNK = 32 * 1024


class LogStreamer:
    """Follows the files of one folder, one chunk of each in turn."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sent: Dict[str, int] = {}
        self._grown: List[str] = []
        self._window = 0
        self._under_way = 0

    def add(self, path: str) -> None:
        """Follow a file of the folder from now on."""
        name = os.path.basename(path)
        self._sent.setdefault(name, 0)
        self.has_grown(path)

    def has_grown(self, path: str) -> None:
        name = os.path.basename(path)
        if name in self._sent and name not in self._grown:
            self._grown.append(name)

    def resume(self, order: FollowLogs) -> None:
        """Begin, on a new link, behind what the launching side has."""
        self._window = order.window
        self._under_way = 0
        for name in self._sent:
            self._sent[name] = order.have.get(name, 0)
        self._grown = list(self._sent)

    def pause(self) -> None:
        """Send nothing until the launching side says again what it has."""
        self._window = 0

    def taken(self, count: int) -> None:
        self._under_way -= count

    @property
    def is_done(self) -> bool:
        """Whether the launching side has all there is."""
        return not self._grown and not self._under_way

    def send(self, channel: Channel[Order, Report]) -> None:
        """Send as much as the window and the link take now."""
        while self._grown and not channel.pending and not channel.broken:
            # What is under way may never be more: nobody may be there to take it any more.
            room = self._window - self._under_way - LOG_OVERHEAD
            if room <= 0:
                return
            name = self._grown.pop(0)
            offset = self._sent[name]
            chunk = self._read(name, offset, min(_CHUNK, room))
            if chunk:
                self._sent[name] = offset + len(chunk)
                self._under_way += len(chunk) + LOG_OVERHEAD
                self._grown.append(name)
                channel.send(LogData(name, offset, chunk))

    def _read(self, name: str, offset: int, count: int) -> bytes:
        try:
            descriptor = os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, count, offset)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
