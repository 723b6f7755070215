"""Processes of another user of this host, which attack distrun."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.requirements import need_root

if TYPE_CHECKING:
    from typing_extensions import Self

UID = 424_242
"""A user and a group that no account has."""


def need_stranger() -> None:
    """Skip the test where no other user can be played. Call it before anything is started."""
    need_root("another user cannot be played")


def give(path: Path, user: int = UID, group: int = UID) -> None:
    """Give a file, or a symbolic link itself, to another user and group; -1 leaves one as it is."""
    need_stranger()
    os.chown(path, user, group, follow_symlinks=False)


class Stranger:
    """A process of another user, which runs `attack` and is ended with this context.

    `attack` is given a function that reports a line to the test.
    """

    def __init__(self, attack: Callable[[Callable[[str], None]], None]) -> None:
        need_stranger()
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.setgroups([])
                os.setgid(UID)
                os.setuid(UID)
                attack(partial(print, file=os.fdopen(writing, "w"), flush=True))
            finally:
                os._exit(1)
        os.close(writing)
        self._reports = os.fdopen(reading)

    def report(self) -> str:
        """Return the next line of the attack; empty if it has ended."""
        return self._reports.readline().rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._reports.close()
