"""Follows the output of several tasks as it is written."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Sequence

from distrun.agent.linux import syscalls
from distrun.agent.linux.syscalls import Inotify
from distrun.logs.line_buffer import LineBuffer
from distrun.logs.repeats import RepeatFolder
from distrun.logs.task_log import Extent, TaskLog
from distrun.logs.view import Formatter, View

_CHUNK = 1 << 16  # bytes that one call of read takes from a task
_POLL = 0.1  # seconds between reads without inotify
_END_POLL = 0.25  # seconds between checks for the job's end, without a descriptor
# Seconds between two reads while tasks write all the time. Otherwise a task that prints line by
# line would wake this process for each line. Nobody sees the difference.
_MIN_INTERVAL = 0.005
# While tasks write all the time, their logs are polled: a watch makes every write slower.
_BUSY = 0.05  # seconds after which this begins
_BUSY_POLL = 0.01
_PAUSE = 0.05  # seconds without output that end it
_MOST_POLLED = 64  # logs; asking for the sizes of more takes longer than being told


class Follower:
    """Returns what is written to logs after given offsets, in the order of arrival.

    In an event loop: register :meth:`fileno`, write what :meth:`read` returns whenever it is
    readable, or :attr:`wait` seconds have passed, unless that is None. When the tasks have ended,
    write what :meth:`finish` yields. :meth:`until` is such a loop. Close it at the end, for
    instance with contextlib.closing.

    With `fold`, a line that several tasks of a role print at the same time is shown once. With
    `polls`, the logs are read again and again: inotify sees nothing of what other machines write.

    With `watch_after`, nothing is watched for so many seconds: a process that ends soon after it
    has asked inotify waits 15 ms for the kernel.

    The logs need not exist yet. Their folders should exist; otherwise they are polled. A log that
    shrinks is read again from its beginning.
    """

    def __init__(
        self,
        logs: Sequence[TaskLog],
        view: View,
        *,
        starts: Sequence[int] | None = None,
        fold: bool = False,
        polls: bool = False,
        watch_after: float = 0.0,
    ) -> None:
        verbatim = view.verbatim and len(logs) == 1
        self._tails = [
            _Tail(log, view, start, LineBuffer(verbatim=verbatim, raw=view.raw))
            for log, start in zip(logs, starts or [0] * len(logs), strict=True)
        ]
        self._folder = RepeatFolder(view, [log.task for log in logs]) if fold else None
        self._ready = select.epoll()
        self._behind = True
        """Whether a task has more than one read takes: inotify does not report that again."""
        self._read_at = 0.0
        self._throttled_at = 0.0
        """When it had last read everything, and looked for more."""
        self._by_name: dict[bytes, list[_Tail]] = {}
        for tail in self._tails:
            self._by_name.setdefault(tail.file_name, []).append(tail)
        self._folders = {os.path.dirname(log.path) for log in logs}
        self._inotify: Inotify | None = None
        self._watches: list[int] = []
        """The watched folders, by their numbers."""
        self._is_busy = False
        """Whether nothing is watched because tasks write all the time."""
        self._busy_since = 0.0
        self._grown_at = 0.0
        self._watch_due = time.monotonic() + watch_after if watch_after and not polls else None
        if not polls and not watch_after:
            self._watch()

    @property
    def wait(self) -> float | None:
        """Seconds until :meth:`read` is due without an event; None: it never is."""
        if self._behind:
            return 0.0
        now, due = time.monotonic(), []
        if self._watch_due is not None:
            due.append(self._watch_due)
        elif self._inotify is None or self._is_busy:
            due.append(self._read_at + (_BUSY_POLL if self._is_busy else _POLL))
        if self._folder is not None and self._folder.wait is not None:
            due.append(now + self._folder.wait)
        return max(0.0, min(due) - now) if due else None

    @property
    def dropped(self) -> dict[str, int]:
        """The tasks whose output was dropped before it could be shown (`logs.max_size`).

        The values say how many bytes at the start of their logs were dropped.
        """
        return {tail.task: tail.dropped for tail in self._tails if tail.dropped}

    def fileno(self) -> int:
        return self._ready.fileno()

    def read(self) -> list[bytes]:
        """New output in blocks of whole lines. Returns within some milliseconds.

        It reads a bounded amount of each task. While there is more, it is due again at once.
        """
        grown = set(self._tails)
        if not self._behind:
            self._throttle()
            grown = self._find_grown()
        self._read_at = time.monotonic()
        tails = [tail for tail in self._tails if tail in grown]
        before = sum(tail.at for tail in tails)
        blocks = [block for tail in tails for block in self._shown(tail, tail.read())]
        if self._folder is not None:
            blocks += self._folder.due()
        is_fresh = self._choose_watch(has_grown=before != sum(tail.at for tail in tails))
        self._behind = is_fresh or any(tail.behind for tail in tails)
        return blocks

    def finish(self) -> Iterator[bytes]:
        """Everything written before this call, and the unfinished last lines."""
        behind = [tail for tail in self._tails if tail.refresh()]
        while behind:
            for tail in behind:
                yield from self._shown(tail, tail.read())
            behind = [tail for tail in behind if tail.behind]
        for tail in self._tails:
            yield from self._shown(tail, tail.flush())
        if self._folder is not None:
            yield from self._folder.flush()

    def until(self, ended: Callable[[], bool], wake: int | None = None) -> Iterator[bytes]:
        """Blocks as they are written, until `ended()` is true; then the rest.

        `ended` is called when something was written or the descriptor `wake` is readable. It must
        read from that descriptor. Without `wake`, it is called at least four times a second.
        """
        sources = [self.fileno(), *([] if wake is None else [wake])]
        end_poll = None if wake is not None else _END_POLL
        while not ended():
            wait = self.wait
            syscalls.wait_until_ready(sources, seconds=end_poll if wait is None else wait)
            yield from self.read()
        yield from self.finish()

    def close(self) -> None:
        self._ready.close()
        self._close_inotify()

    def _close_inotify(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _shown(self, tail: _Tail, selected: Iterator[tuple[float, bytes]]) -> Iterator[bytes]:
        for written, lines in selected:
            if self._folder is None:
                yield tail.formatter.prefixed(lines, written)
            else:
                yield from self._folder.add(tail.task, lines)

    def _find_grown(self) -> set[_Tail]:
        """The logs that may have grown: a job may have a thousand."""
        if self._watch_due is not None and self._watch_due <= time.monotonic():
            self._watch()
            return set(self._tails)  # by what was written before that
        if self._inotify is None:
            return set(self._tails)
        seen = self._inotify.drain()
        if self._is_busy:
            return set(self._tails)
        if any(number < 0 for number, _ in seen):
            return set(self._tails)
        return {tail for _, name in seen for tail in self._by_name.get(name, ())}

    def _choose_watch(self, *, has_grown: bool) -> bool:
        """Watch the folders, or poll them while they are busy.

        Returns whether they are watched since just now, so that all logs have to be read again.
        """
        now = time.monotonic()
        is_pause = now - self._grown_at > _PAUSE
        if has_grown:
            if is_pause:
                self._busy_since = now
            self._grown_at = now
            is_long = now - self._busy_since > _BUSY
            if is_long and self._inotify is not None and len(self._tails) <= _MOST_POLLED:
                self._is_busy = True
                while self._watches:
                    self._inotify.unwatch(self._watches.pop())
            return False
        if not self._is_busy or not is_pause:
            return False
        self._is_busy = False
        self._watch()
        return True

    def _watch(self) -> None:
        """Have inotify report growth. If that fails, the logs are polled from now on."""
        self._watch_due = None
        try:
            if self._inotify is None:
                self._inotify = Inotify()
                self._ready.register(self._inotify.fileno(), select.EPOLLIN)
            self._watches = [self._inotify.watch_folder(folder) for folder in self._folders]
        except OSError:
            self._close_inotify()

    def _throttle(self) -> None:
        early = self._throttled_at + _MIN_INTERVAL - time.monotonic()
        if early > 0:
            time.sleep(early)
        self._throttled_at = time.monotonic()


class _Tail:
    def __init__(self, log: TaskLog, view: View, start: int, lines: LineBuffer) -> None:
        self._log = log
        self.file_name = os.fsencode(os.path.basename(log.path))
        self.task = log.task
        self.formatter = Formatter(view, log.task, counts=True)
        self._is_timed = view.is_timed
        self._written = 0.0
        """When the last bytes that were read were written; only if it is shown."""
        self._lines = lines
        self.at = start
        """The offset of the next byte to read."""
        self.dropped = 0
        """How many bytes at the start of the log were dropped, if some could not be shown."""
        # Not read here: bytes written after this and before the folder is watched would be missed.
        self._extent = Extent(0, 0.0)

    @property
    def behind(self) -> bool:
        """Whether the log was longer at the last refresh than what has been read."""
        return self.at < self._extent.size

    def refresh(self) -> bool:
        self._extent = self._log.extent()
        if self._extent.size < self.at:
            self.at = 0
        return self.behind

    def read(self) -> Iterator[tuple[float, bytes]]:
        """Whole lines to show, and when they were written."""
        if not self.behind and not self.refresh():
            return
        start, chunk = self._log.read_kept(self.at, min(_CHUNK, self._extent.size - self.at))
        if start > self.at:
            self.dropped = self.at = start
            self._lines.discard()
        for written, piece in self._pieces(chunk):
            self._written = written
            yield from self._shown(self._lines.feed(piece))
        self.at += len(chunk)
        if not chunk:
            self.refresh()  # the log was cut off

    def _pieces(self, chunk: bytes) -> Iterator[tuple[float, bytes]]:
        """The bytes that were read, by the time of writing: a copy may arrive all at once."""
        if not self._is_timed:
            yield self._extent.written, chunk
            return
        start = self.at
        for written, end in self._log.spans(start, start + len(chunk)):
            yield written, chunk[: end - start]
            start, chunk = end, chunk[end - start :]

    def flush(self) -> Iterator[tuple[float, bytes]]:
        yield from self._shown(self._lines.flush())

    def _shown(self, block: bytes) -> Iterator[tuple[float, bytes]]:
        if block and (selected := self.formatter.select(block)):
            yield self._written, selected
