"""Searches a task's log for a line, in a fork: a slow expression delays no other work."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO

from distrun.agent.linux.forked_call import ForkedCall
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause
from distrun.spec.regular_file import data_start, open_regular_file
from distrun.supervisor.hosts.background_calls import BackgroundCalls

_RETRY_SECONDS = 0.5
"""Until a search that failed is repeated. A copy of a log appears with its first part."""
_INTERVAL = 0.1
_BLOCK_BYTES = 1 << 20
"""Longer lines are searched in parts."""
_MOST_CHARACTERS = 4096
"""How much of each line is searched: ordinary expressions take quadratic time for long lines."""


class LineSearch:
    """The search for the line that makes an attempt ready, whose output begins at `start` (bytes).

    `on_found` is called once a complete line matches the regular expression.
    """

    def __init__(
        self,
        loop: Loop,
        calls: BackgroundCalls,
        path: Path,
        start: int,
        expression: str,
        on_found: Callable[[], None],
    ) -> None:
        self._loop, self._calls, self._path = loop, calls, path
        self._start, self._expression, self._on_found = start, expression, on_found
        self._log: BinaryIO | None = None
        """The fork shares its offset."""
        self._call: ForkedCall | None = None
        self._next = loop.call_at(loop.now(), self._begin)

    @property
    def progress(self) -> tuple[int, int]:
        """How many bytes of the log have been searched, and how many there are."""
        if self._log is None:
            return 0, 0
        log = self._log.fileno()
        return os.lseek(log, 0, os.SEEK_CUR), os.fstat(log).st_size

    def _begin(self) -> None:
        try:
            self._log = open_regular_file(self._path)
            log = self._log.fileno()
            search = partial(wait_for_line, log, self._start, self._expression)
            self._call = self._calls.begin(search, self._on_answer, kept=(log,), seconds=math.inf)
        except OSError:
            self._on_answer(None)

    def _on_answer(self, found: bytes | Cause | None) -> None:
        self._call = None  # it has ended
        self.close()
        if found == b"true":
            self._on_found()
        else:
            self._next.move(self._loop.now() + _RETRY_SECONDS)

    def close(self) -> None:
        self._next.cancel()
        if self._call is not None:
            self._call.close()
            self._call = None
        if self._log is not None:
            self._log.close()
            self._log = None


def wait_for_line(log: int, start: int, expression: str) -> bool:
    """Read a log, also while it grows, until a complete line has a match.

    `log` is a descriptor: its offset shows the supervisor how much was searched. The search begins
    at `start`; the log may be shorter as yet.
    """
    search = re.compile(expression).search
    rest = b""
    offset = max(start, data_start(log))
    while True:
        os.lseek(log, offset, os.SEEK_SET)
        block = os.pread(log, _BLOCK_BYTES, offset)
        if b"\0" in block and (kept := data_start(log, offset)) > offset:
            offset, rest = kept, b""  # logs.max_size: the search is too slow
            continue
        if not block:
            time.sleep(_INTERVAL)
            continue
        offset += len(block)
        rest += block
        end = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) >= _BLOCK_BYTES else 0)
        lines, rest = rest[:end], rest[end:]
        if lines and any(map(search, _split(lines))):
            return True


def _split(block: bytes) -> list[str]:
    """Return the beginning of each line. It is fast, because a log may grow fast."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = block.removesuffix(b"\n").decode(errors="replace").split("\n")
    if max(map(len, lines)) > _MOST_CHARACTERS:
        return [line[:_MOST_CHARACTERS] for line in lines]
    return lines
