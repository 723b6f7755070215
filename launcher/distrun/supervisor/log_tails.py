"""Reads the ends of tasks' logs while they grow: the progress and the servers that they show."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from distrun.agent.linux.syscalls import Inotify
from distrun.agent.loop import Loop
from distrun.job.folder import JobFolder
from distrun.spec.regular_file import open_regular_file

if TYPE_CHECKING:
    from distrun.job.printed_progress import PrintedProgress

_INTERVAL = 0.5
"""Seconds between two reads while logs grow. A task that reports by itself is as late."""
_POLL_INTERVAL = 2.0
"""The same without inotify, when no log has grown."""
_PAUSE = 49
"""After a turn, nothing is read for this many times its processor time: at most 2% of a core."""
_LOGS_A_TURN = 64
_END_BYTES = 16 * 1024
"""How much of the end of a log is read for bars."""
_SEARCHED_BYTES = 512 * 1024
"""How much of it is searched at once for other lines, as a step's may be far before the end."""
_MOST_BLOCKS = 16
"""Of that size, if none has such a line: a program may print megabytes between two steps."""
_WORDS = (b"\nepoch ", b"epoch", b"step", b"iter", b"batch", b"loss")
"""The last line with each of these may be progress. To search for all such lines takes too long."""
_LONGEST_LINE = 8192
"""Bytes of an unfinished line that are read again with its rest. Keras writes many backspaces."""
_LINE_END = re.compile(rb"[\r\n]")
_DIGIT = re.compile(rb"\d")
"""All output with progress has one. Only then are the slow expressions compiled."""
_BLANK = re.compile(rb"(?:\A|\r) +\r")
"""tqdm overwrites a bar with spaces to remove it."""
_WAITS = re.compile(
    rb"(?m)^.*(?:CreateSession still waiting for response from|Waiting for model to be ready\b).*\n"
    rb"|^.*are waiting for remainder of ranks.*\n(?:(?:Missing|Stalled) .*:\n(?:\d+: \[.*\n)*)?"
)
"""Lines that TensorFlow and Horovod print again and again while a task waits for others."""
_SERVING = re.compile(rb"Started server with target: grpc://(\S+)\s")
"""TensorFlow's own line."""


class TailedLog:
    """The log of one attempt, whose output begins at byte `start`; a copy may be shorter.

    `on_progress` is called with values, and what has printed them; `on_served` with the addresses
    at which the attempt has started servers.
    """

    def __init__(
        self,
        folder: JobFolder,
        task: str,
        start: int,
        on_progress: Callable[[dict[str, str], PrintedProgress], None],
        on_served: Callable[[set[str]], None],
    ) -> None:
        self._folder, self._task = folder, task
        self._on_progress, self._on_served = on_progress, on_served
        self._start = start
        """The offset of the first byte that has not been read, or that is read again."""
        self._begin, self._size = start, folder.size_of_log(task)
        self._waited_size = 0
        self._has_words = False
        """Whether a part of it has shown lines that may be progress."""
        self._printed: PrintedProgress | None = None
        self._read_end()

    @property
    def has_grown(self) -> bool:
        """Whether the log has another size than when it was read last."""
        return self._folder.size_of_log(self._task) != self._size

    @property
    def output_size(self) -> int:
        """How long the log was when it was read, without the lines on waiting for others."""
        return self._size - self._waited_size

    def read(self) -> bool:
        """Read what was added to the log. Returns whether anything was."""
        before, self._size = self._size, self._folder.size_of_log(self._task)
        if self._size < before:
            self._begin = self._start = self._waited_size = 0  # the task has cut its log off
        if self._size != before:
            self._read_end()
        return self._size != before

    def _read_end(self) -> None:
        if self._size > self._start:
            path = self._folder.log_of(self._task)
            with contextlib.suppress(OSError), open_regular_file(path) as file:
                self._read_block(file.fileno())

    def _read_block(self, file: int) -> None:
        start = max(self._start, self._size - _SEARCHED_BYTES)
        oldest = max(self._start, start - _MOST_BLOCKS * _SEARCHED_BYTES)
        block = os.pread(file, self._size - start, start)
        end = block[-_END_BYTES:]
        if start + len(block) - len(end) > self._start:  # it begins in the middle of a line
            end = _LINE_END.split(end, 1)[-1]
        before = block[: len(block) - len(end)]
        last = max(end.rfind(b"\n"), end.rfind(b"\r")) + 1
        unfinished = len(end) - last
        self._start = start + len(block) - (unfinished if unfinished <= _LONGEST_LINE else 0)
        if b"aiting for " in block:
            self._waited_size += sum(map(len, _WAITS.findall(block)))
        served = _SERVING.findall(block) if b"Started server" in block else ()
        if served:
            self._on_served({each.decode(errors="replace") for each in served})
        blank = b" \r" if _BLANK.search(before) else b""
        lines, of_end = _lines_with_words(before), _lines_with_words(end)
        self._has_words = bool(
            self._has_words
            or lines
            or of_end
            or _lines_with_words(os.pread(file, min(_SEARCHED_BYTES, start), self._begin))
        )
        while self._has_words and start > oldest and not (lines or of_end):
            size = min(_SEARCHED_BYTES, start - oldest)
            start -= size
            lines = _lines_with_words(os.pread(file, size, start))
        self._read_progress(lines + blank + end)

    def _read_progress(self, text: bytes) -> None:
        if self._printed is None:
            if not _DIGIT.search(text):
                return
            from distrun.job.printed_progress import PrintedProgress

            self._printed = PrintedProgress()
        printed = self._printed
        had_step = bool(printed.first_step)
        if printed.read(text.decode(errors="replace")):
            if not had_step and printed.first_step not in ({}, printed.values):
                self._on_progress(printed.first_step, printed)
            self._on_progress(printed.values, printed)


def _lines_with_words(block: bytes) -> bytes:
    lower = block.lower()
    found = {lower.rfind(b"\n", 0, at + 1) + 1 for word in _WORDS if (at := lower.rfind(word)) >= 0}
    lines = (block[start : start + _LONGEST_LINE].partition(b"\n") for start in sorted(found))
    return b"".join(line + end for line, end, _ in lines if end)


class LogTails:
    """The logs of the tasks that run, read when they grow.

    No log is read while none grows: inotify reports the first growth. From then on, the logs are
    read at intervals, until none has grown. `on_output` is called when a task has printed more than
    lines on waiting for others.
    """

    def __init__(self, loop: Loop, folder: JobFolder, on_output: Callable[[], None]) -> None:
        self._loop, self._folder, self._on_output = loop, folder, on_output
        self._tails: dict[str, TailedLog] = {}
        self._turn: list[str] = []
        """The logs that are to be read before the next interval."""
        self._has_grown = False
        self._inotify: Inotify | None = None
        self._next = loop.call_at(None, self._check)

    def start(self, task: str, tail: TailedLog) -> None:
        self._tails[task] = tail
        if self._next.when is None:
            self._resume()

    def stop(self, task: str) -> None:
        self._tails.pop(task, None)
        if not self._tails:
            self._stop_waiting()
            self._next.cancel()

    def close(self) -> None:
        for task in list(self._tails):
            self.stop(task)

    def read(self, task: str) -> None:
        """Read what was added to a task's log."""
        if (tail := self._tails.get(task)) is not None:
            before = tail.output_size
            self._has_grown |= tail.read()
            if tail.output_size != before:
                self._on_output()

    def size_of_output(self, task: str) -> int:
        """Return how much a task has printed, without the lines on waiting for others."""
        self.read(task)
        tail = self._tails.get(task)
        return self._folder.size_of_log(task) if tail is None else tail.output_size

    def _check(self) -> None:
        before = time.thread_time()
        if not self._turn:
            self._turn, self._has_grown = [*self._tails], False
        turn, self._turn = self._turn[:_LOGS_A_TURN], self._turn[_LOGS_A_TURN:]
        for task in turn:
            self.read(task)
        if self._turn:
            interval = 0.0
        elif self._has_grown:
            interval = _INTERVAL
        elif not self._tails or self._wait_for_growth():
            return
        else:
            interval = _POLL_INTERVAL
        pause = _PAUSE * (time.thread_time() - before)
        self._next.move(self._loop.now() + max(interval, pause))

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
        if any(tail.has_grown for tail in self._tails.values()):
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
