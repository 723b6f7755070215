"""Reads the progress of tasks from the ends of their logs, while the logs grow."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

from distrun.agent.linux.syscalls import Inotify
from distrun.spec.regular_file import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distrun.agent.loop import Loop
    from distrun.job.folder import JobFolder
    from distrun.job.printed_progress import PrintedProgress

_INTERVAL = 0.5
"""Seconds between two reads while logs grow. A task that reports by itself is as late."""
_POLL_INTERVAL = 2.0
"""The same without inotify, when no log has grown."""
_PAUSE = 49
"""After a turn, nothing is read for this many times its length: at most 2% of a core is used."""
_LOGS_A_TURN = 64
_END_BYTES = 16 * 1024
"""How much of the end of a log is read for bars."""
_SEARCHED_BYTES = 256 * 1024
"""How much of it is searched for the line that begins an epoch, which may be far before the bar."""
_LONGEST_LINE = 8192
"""Bytes of an unfinished line that are read again with its rest. Keras writes many backspaces."""
_LINE_END = re.compile(rb"[\r\n]")
_HINT = re.compile(rb"\d[/%]|\d:\d\d|(?i:loss|acc|ppl)")
"""All output with progress contains one of these. Only then are the slow expressions compiled."""
_BLANK = re.compile(rb"(?:\A|\r) +\r")
"""tqdm overwrites a bar with spaces to remove it."""


class _Log:
    """How far the log of one attempt has been read, and what was printed."""

    def __init__(self, start: int) -> None:
        self.start = start
        """The offset of the first byte that has not been read, or that is read again."""
        self.printed: PrintedProgress | None = None


class LogProgress:
    """Watches the logs of tasks that run, and reports the progress that tasks print.

    No log is read while none grows: inotify reports the first growth. From then on, the logs are
    read at intervals, until none has grown.

    Args:
        folder: the job's.
        on_progress: called with a task, its new progress, and whether a bar moves.
    """

    def __init__(
        self,
        loop: Loop,
        folder: JobFolder,
        on_progress: Callable[[str, dict[str, str], bool], None],
    ) -> None:
        self._loop, self._folder, self._on_progress = loop, folder, on_progress
        self._logs: dict[str, _Log] = {}
        self._sizes: dict[str, int] = {}
        """The size of each log when it was read last."""
        self._turn: list[str] = []
        """The logs that are to be read before the next interval."""
        self._has_grown = False
        self._inotify: Inotify | None = None
        self._next = loop.call_at(None, self._check)

    def start(self, task: str, log_start: int) -> None:
        """Watch an attempt: it runs now, and its output begins at this byte of its log."""
        self._logs[task] = _Log(log_start)
        if self._next.when is None:
            self._resume()

    def stop(self, task: str) -> None:
        """Stop watching a task: it reports its progress by itself."""
        self._logs.pop(task, None)
        if not self._logs:
            self.close()

    def close(self) -> None:
        """Stop watching all tasks."""
        self._logs.clear()
        self._stop_waiting()
        self._next.cancel()

    def read_rest(self, tasks: Iterable[str] | None = None) -> None:
        """Read logs to their present ends. Default: all."""
        for task in [*self._logs] if tasks is None else tasks:
            if task in self._logs:
                self._read(task)

    def _check(self) -> None:
        """Read logs that have grown, for a short time."""
        started = self._loop.now()
        if not self._turn:
            self._turn, self._has_grown = [*self._logs], False
        turn, self._turn = self._turn[:_LOGS_A_TURN], self._turn[_LOGS_A_TURN:]
        for task in turn:
            self._has_grown |= task in self._logs and self._read(task)
        if self._turn:
            interval = 0.0
        elif self._has_grown:
            interval = _INTERVAL
        elif self._wait_for_growth():
            return
        else:
            interval = _POLL_INTERVAL
        now = self._loop.now()
        self._next.move(now + max(interval, _PAUSE * (now - started)))

    def _resume(self) -> None:
        self._stop_waiting()
        self._next.move(self._loop.now() + _INTERVAL)

    def _wait_for_growth(self) -> bool:
        """Have inotify report the next growth. Returns whether it does."""
        try:
            self._inotify = Inotify()
            self._inotify.watch_folder(os.fspath(self._folder.logs))
        except OSError:
            self._stop_waiting()
            return False
        if any(self._folder.size_of_log(task) != self._sizes.get(task, 0) for task in self._logs):
            self._stop_waiting()  # this growth was not reported
            return False
        # It is closed at the first growth: a busy log would wake this process all the time.
        self._loop.watch(self._inotify, self._resume)
        return True

    def _stop_waiting(self) -> None:
        if self._inotify is not None:
            self._loop.unwatch(self._inotify)
            self._inotify.close()
            self._inotify = None

    def _read(self, task: str) -> bool:
        """Read what was added to a log. Returns whether anything was."""
        size, log = self._folder.size_of_log(task), self._logs[task]
        if size == self._sizes.get(task, 0):
            return False
        if size < self._sizes.get(task, 0):
            log.start = 0  # the task has cut its log off
        self._sizes[task] = size
        if size > log.start:  # a copy may lack the rest of the attempt before
            with contextlib.suppress(OSError), open_regular_file(self._folder.log_of(task)) as file:
                self._read_end(task, log, file.fileno(), size)
        return True

    def _read_end(self, task: str, log: _Log, file: int, size: int) -> None:
        start = max(log.start, size - _SEARCHED_BYTES)
        block = os.pread(file, size - start, start)
        end = block[-_END_BYTES:]
        if start + len(block) - len(end) > log.start:  # it begins in the middle of a line
            end = _LINE_END.split(end, 1)[-1]
        before = block[: len(block) - len(end)]
        line = before.rfind(b"\nEpoch ")
        text = before[line + 1 :].partition(b"\n")[0] + b"\n" if line >= 0 else b""
        text += (b" \r" if _BLANK.search(before) else b"") + end
        last = max(end.rfind(b"\n"), end.rfind(b"\r")) + 1
        unfinished = len(end) - last
        log.start = start + len(block) - (unfinished if unfinished <= _LONGEST_LINE else 0)
        if log.printed is None:
            if not _HINT.search(text):
                return
            from distrun.job.printed_progress import PrintedProgress

            log.printed = PrintedProgress()
        had_step = bool(log.printed.first_step)
        if log.printed.read(text.decode(errors="replace")):
            if not had_step and log.printed.first_step not in ({}, log.printed.values):
                self._on_progress(task, log.printed.first_step, True)
            self._on_progress(task, log.printed.values, log.printed.is_moving)
