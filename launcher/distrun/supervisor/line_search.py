"""A process that searches a task's log for a line. A slow expression delays no other work."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from typing import NoReturn

from distrun.agent.linux import syscalls
from distrun.spec.regular_file import data_start

_INTERVAL = 0.1
_BLOCK_BYTES = 1 << 20
"""Longer lines are searched in parts."""
_MOST_CHARACTERS = 4096
"""How much of each line is searched: ordinary expressions take quadratic time for long lines."""


def main() -> NoReturn:
    """Search standard input; write a byte when the line is found. Ends with the supervisor.

    The arguments are the supervisor's process id, where the attempt's output begins in the log, and
    the regular expression, escaped by :func:`escaped`.
    """
    parent, start, expression = sys.argv[1:]
    syscalls.die_with_parent(int(parent), signal.SIGKILL)
    wait_for_line(0, int(start), expression.encode("ascii").decode("unicode_escape"))
    os.write(1, b"\n")
    os._exit(0)


def escaped(expression: str) -> str:
    """Return an expression as an argument of this process, which cannot contain NUL."""
    return expression.encode("unicode_escape").decode("ascii")


def wait_for_line(log: int, start: int, expression: str) -> None:
    """Read a log, also while it grows, until a complete line has a match.

    Args:
        log: a descriptor. Its offset shows the supervisor how much was searched.
        start: the first byte that is searched. The log may be shorter as yet.
        expression: a regular expression.
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
            return


def _split(block: bytes) -> list[str]:
    """Return the beginning of each line. It is fast, because a log may grow fast."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = block.removesuffix(b"\n").decode(errors="replace").split("\n")
    if max(map(len, lines)) > _MOST_CHARACTERS:
        return [line[:_MOST_CHARACTERS] for line in lines]
    return lines
