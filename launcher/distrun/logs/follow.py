"""Several tasks' output as it is written."""

from __future__ import annotations

import os
import select
import selectors
import time
from typing import TYPE_CHECKING

from distrun.agent.linux.syscalls import Inotify
from distrun.logs.lines import Lines
from distrun.logs.tasklog import Extent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distrun.logs.tasklog import TaskLog
    from distrun.logs.view import View

_CHUNK = 1 << 16  # of one task in one call of read, bytes
_POLL = 0.1  # seconds, where there is no inotify
_ASK_ENDED = 0.25  # seconds, where nothing tells that the job has ended
# Seconds between two looks at tasks that write all the time. A task that prints line by line
# would otherwise wake us for each; nobody sees the difference.
_REST = 0.005


class Follower:
    """Shows what is written to logs from given offsets on, in the order of its arrival.

    For a loop of one's own: register :meth:`fileno`, write what :meth:`read` returns whenever it
    is readable (and every :attr:`poll_interval` seconds, unless that is None), and when the tasks
    have ended what :meth:`finish` yields. :meth:`until` is such a loop. To be closed, for instance
    with contextlib.closing.

    The logs may not exist yet; their folders should, or they are polled. A log that shrinks is
    read from its beginning again.
    """

    def __init__(
        self, logs: Sequence[TaskLog], view: View, *, starts: Sequence[int] | None = None
    ) -> None:
        verbatim = view.verbatim and len(logs) == 1
        self._tails = [
            _Tail(log, view, start, Lines(verbatim=verbatim))
            for log, start in zip(logs, starts or [0] * len(logs), strict=True)
        ]
        self._ready = select.epoll()
        # Keeps the descriptor readable while a task has more than its share of one read, which
        # inotify will not say again.
        self._more = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ready.register(self._more, select.EPOLLIN)
        self._behind = True
        self._rested_at = 0.0
        self._inotify = _watch({os.path.dirname(log.path) for log in logs})
        if self._inotify is not None:
            self._ready.register(self._inotify.fileno(), select.EPOLLIN)

    @property
    def poll_interval(self) -> float | None:
        """How often to call :meth:`read` unasked, in seconds; None where inotify works."""
        return _POLL if self._inotify is None else None

    def fileno(self) -> int:
        return self._ready.fileno()

    def read(self) -> list[bytes]:
        """What has come, in blocks of whole lines; blocks at most some milliseconds.

        A bounded amount of each task: the descriptor stays readable while there is more.
        """
        if not self._behind:
            self._rest()
            if self._inotify is not None:
                self._inotify.drain()
        blocks: list[bytes] = []
        for tail in self._tails:
            blocks += tail.read()
        self._set_behind(any(tail.behind for tail in self._tails))
        return blocks

    def finish(self) -> Iterator[bytes]:
        """All that had been written when this was called, and the unfinished last lines."""
        behind = [tail for tail in self._tails if tail.look()]
        while behind:
            for tail in behind:
                yield from tail.read()
            behind = [tail for tail in behind if tail.behind]
        for tail in self._tails:
            yield from tail.flush()

    def until(self, ended: Callable[[], bool], wake: int | None = None) -> Iterator[bytes]:
        """Blocks as they come, until `ended()`; then the rest.

        `ended` is asked each time something was written or the descriptor `wake` is readable,
        from which it must take what made it so; without `wake`, at least four times a second.
        """
        intervals = (self.poll_interval, None if wake is not None else _ASK_ENDED)
        timeout = min((each for each in intervals if each is not None), default=None)
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            if wake is not None:
                selector.register(wake, selectors.EVENT_READ)
            while not ended():
                selector.select(timeout)
                yield from self.read()
        yield from self.finish()

    def close(self) -> None:
        self._ready.close()
        os.close(self._more)
        if self._inotify is not None:
            self._inotify.close()

    def _rest(self) -> None:
        early = self._rested_at + _REST - time.monotonic()
        if early > 0:
            time.sleep(early)
        self._rested_at = time.monotonic()

    def _set_behind(self, behind: bool) -> None:
        if behind and not self._behind:
            os.eventfd_write(self._more, 1)
        elif self._behind and not behind:
            os.eventfd_read(self._more)
        self._behind = behind


class _Tail:
    """One log from an offset to its end, wherever that is by now."""

    def __init__(self, log: TaskLog, view: View, start: int, lines: Lines) -> None:
        self._log = log
        self._painter = view.painter(log.task)
        self._is_timed = view.timestamps
        self._written = 0.0
        """When the end of what has been read was written, as far as that is shown."""
        self._lines = lines
        self._at = start
        # Unknown until the first look: what is written before the folder is watched, but after
        # a look here, would be seen by neither.
        self._extent = Extent(0, 0.0)

    @property
    def behind(self) -> bool:
        """Whether more was there at the last look than has been read."""
        return self._at < self._extent.size

    def look(self) -> bool:
        self._extent = self._log.extent()
        if self._extent.size < self._at:
            self._at = 0
        return self.behind

    def read(self) -> Iterator[bytes]:
        if not self.behind and not self.look():
            return
        chunk = self._log.read(self._at, min(_CHUNK, self._extent.size - self._at))
        for written, piece in self._pieces(chunk):
            self._written = written
            yield from self._shown(self._lines.feed(piece))
        self._at += len(chunk)
        if not chunk:
            self.look()  # the log was cut off

    def _pieces(self, chunk: bytes) -> Iterator[tuple[float, bytes]]:
        """What was read, by when it was written: a copy may have got all of it at once."""
        if not self._is_timed:
            yield self._extent.written, chunk
            return
        start = self._at
        for written, end in self._log.spans(start, start + len(chunk)):
            yield written, chunk[: end - start]
            start, chunk = end, chunk[end - start :]

    def flush(self) -> Iterator[bytes]:
        yield from self._shown(self._lines.flush())

    def _shown(self, block: bytes) -> Iterator[bytes]:
        if block and (selected := self._painter.select(block)):
            yield self._painter.prefixed(selected, self._written)


def _watch(folders: set[str]) -> Inotify | None:
    try:
        inotify = Inotify()
    except OSError:
        return None
    try:
        for folder in folders:
            inotify.watch_folder(folder)
    except OSError:
        inotify.close()
        return None
    return inotify
