"""Sends the tasks' logs to the launching side, which mirrors them.

The launching side says how much of each log it has, and receives the rest. It limits the bytes in
flight, and so does the time that they take: a task that prints without end, or over a slow link,
delays heartbeats and other messages only shortly.
"""

from __future__ import annotations

import os
from typing import Dict, List, Union

from distrun.agent.linux.regular import open_regular
from distrun.agent.protocol import (
    INDEX_RECORD,
    INDEX_SUFFIX,
    LOG_OVERHEAD,
    FollowLogs,
    LogData,
    LogReceived,
    Order,
    Report,
)
from distrun.agent.protocol.channel import Channel, Flight

_CHUNK = 32 * 1024


class LogStreamer:
    """Follows the files of one folder, one chunk of each in turn."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.dropped: Dict[str, int] = {}
        """How many of a file's first bytes are not sent any more, by path."""
        self._sent: Dict[str, int] = {}
        self._grown: List[str] = []
        self._flight = Flight()

    def execute(self, order: Union[FollowLogs, LogReceived]) -> None:
        if isinstance(order, FollowLogs):
            # Start, on a new link, after the bytes that the launching side has.
            self._flight = Flight(order.window)
            for name in self._sent:
                self._sent[name] = order.have.get(name, 0)
            self._grown = list(self._sent)
            return
        self._flight.remove(order.size)

    def add(self, path: str) -> None:
        name = os.path.basename(path)
        self._sent.setdefault(name, 0)
        self.on_growth(path)

    def on_growth(self, path: str) -> None:
        """Note that a file has grown, so that its new part is sent if the file is followed."""
        name = os.path.basename(path)
        if name in self._sent and name not in self._grown:
            self._grown.append(name)

    def pause(self) -> None:
        """Send nothing until the launching side says again how much it has."""
        self._flight.window = 0

    @property
    def is_done(self) -> bool:
        return not self._grown and not self._flight.size

    def send(self, channel: Channel[Order, Report]) -> None:
        """Send as much as the window and the link take now."""
        channel.flush()
        while self._grown and not channel.pending and not channel.broken:
            # Never exceed the window: perhaps nobody receives it any more.
            room = self._flight.room - LOG_OVERHEAD
            if room < INDEX_RECORD.size:
                return
            name = self._grown.pop(0)
            path = os.path.join(self._folder, name)
            offset = max(self._sent[name], self.dropped.get(path, 0))
            count = min(_CHUNK, room)
            if name.endswith(INDEX_SUFFIX):  # whole records
                count -= count % INDEX_RECORD.size
            chunk = self._read(path, offset, count)
            if chunk:
                self._sent[name] = offset + len(chunk)
                self._flight.add(len(chunk) + LOG_OVERHEAD)
                self._grown.append(name)
                channel.send(LogData(name, offset, chunk))
                channel.flush()

    def _read(self, path: str, offset: int, count: int) -> bytes:
        try:
            with open(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", 0) as file:
                return os.pread(file.fileno(), count, offset)
        except OSError:  # a task may have replaced its log
            return b""
