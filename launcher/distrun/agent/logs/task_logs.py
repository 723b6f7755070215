"""The logs of this host's tasks: their indexes, their streaming, and the room on their disk."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Callable, Optional

from distrun.agent.logs.index import LogIndexer, index_of
from distrun.agent.protocol import Cause, LogEnded

if TYPE_CHECKING:
    from distrun.agent.link import Link
    from distrun.agent.logs.streamer import LogStreamer
    from distrun.agent.loop import Loop


class TaskLogs:
    """The logs in one folder.

    `streamer` sends them to the launching side; None if that sees the folder itself. `opened` is
    a path of the folder that stays right if the folder is renamed; default: `folder`. `limit` is
    that of :class:`LogIndexer`.
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
        self._link = link
        self._indexer = LogIndexer(loop, self._on_growth, self.check_disk, limit)
        self.on_growth: Callable[[], None] = lambda: None
        """Called when a log has grown."""
        if streamer is not None:
            streamer.dropped = self._indexer.dropped
        self._has_disk_fault = False

    def path(self, name: str) -> str:
        return os.path.join(self._opened, name)

    def open(self, path: str) -> None:
        """Create a log, index it and stream it. Raises OSError if it cannot be created."""
        if self.streamer is not None:
            self.streamer.add(index_of(path))
            self.streamer.add(path)
        self._indexer.add(path)

    def record(self, path: str) -> None:
        """Append the log's present size to its index."""
        self._indexer.record(path)

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
        fault = None if self._has_disk_fault else self._indexer.find_disk_fault()
        if fault is not None:
            self._has_disk_fault = True
            self._link.report_fault(Cause(fault, path=self.folder))

    def _on_growth(self, path: str) -> None:
        self.on_growth()
        if self.streamer is not None:
            # The index first: a reader of the copy needs the times of the bytes that follow.
            self.streamer.on_growth(index_of(path))
            self.streamer.on_growth(path)
