"""A terminal to run a command in, and to read as a person would."""

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from typing import Any

from harness.waiting import wait_until


def popen_session(argv: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a program in a new session, whose terminal is its standard input."""
    return subprocess.Popen(
        argv,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        **options,
    )


class Terminal:
    """A command with a terminal of its own, as in a window; `popen` starts it in a session."""

    def __init__(
        self,
        argv: list[str],
        cwd: str,
        columns: int,
        rows: int,
        term: str = "xterm-256color",
        popen: Callable[..., subprocess.Popen[Any]] = popen_session,
    ) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        environ = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = popen(
            argv, cwd=cwd, env={**environ, "TERM": term}, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self.master, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.seen = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> str:
        try:
            while block := os.read(self.master, 65536):
                self.seen += self._decoder.decode(block)
        except (BlockingIOError, OSError):
            pass
        return self.seen

    def text(self) -> str:
        """What it has shown so far, without colours, with plain newlines."""
        return re.sub("\x1b\\[[0-9;]*m", "", self.read()).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> bool:
        has_ended = self.process.poll() is not None
        self.read()
        return has_ended

    def finish(self, timeout: float = 120.0) -> int:
        wait_until(self.ended, timeout)
        return int(self.process.returncode)

    def shows(self, *texts: str) -> None:
        """Wait until it has shown all of these."""
        try:
            wait_until(lambda: all(text in self.text() for text in texts), what=str(texts))
        except AssertionError as error:
            raise AssertionError(f"{error}; it has shown {self.text()[-2000:]!r}") from None

    def close(self) -> None:
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


OpenTerminal = Callable[..., Terminal]
"""Runs distrun in a terminal: `terminal("launch", spec, columns=80, rows=24)`."""
