"""A terminal where output scrolls above a status line."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import BinaryIO, TextIO

from distrun.cli.console import can_redraw, uses_colour
from distrun.cli.text_format import clip

_DEFAULT_COLUMNS = 80
_ERASE = b"\r\x1b[J"
_BOLD, _RESET = b"\x1b[1m", b"\x1b[0m"


class Terminal:
    """Writes blocks of whole lines and keeps the status line below them.

    The cursor stays at the beginning of the status line. If the terminal becomes narrower, it
    folds the status line into several rows; they all are behind the cursor and are erased
    together.

    If the stream is no terminal (a pipe, a file, TERM=dumb), there is no status line, and output
    passes unchanged.
    """

    def __init__(self, output: BinaryIO | io.RawIOBase, stream: TextIO) -> None:
        self._output = output
        self._stream = stream
        self.has_status_line = can_redraw(stream)
        self._bold = uses_colour(stream)
        self._drawn = b""
        self._status = ""

    def write(self, blocks: Iterable[bytes]) -> None:
        for block in blocks:
            self.clear_status()
            self._write(block)
        self._draw()

    def show_status(self, text: str) -> None:
        """Replace the status line; an empty text removes it."""
        if self.has_status_line:
            self._status = text
            self._draw()

    def clear_status(self) -> None:
        """Erase the status line until the next write, so that something else can be printed."""
        if self._drawn:
            self._write(_ERASE)
            self._drawn = b""

    def _draw(self) -> None:
        text = clip(self._status, _columns(self._stream) - 1)
        line = text.rstrip().encode(errors="replace")
        if line == self._drawn:
            return
        self.clear_status()
        if line:
            self._write(_BOLD + line + _RESET + b"\r" if self._bold else line + b"\r")
            self._drawn = line

    def _write(self, block: bytes) -> None:
        self._output.write(block)
        self._output.flush()


def _columns(stream: TextIO) -> int:
    """The terminal's width now. COLUMNS has its width when the shell started."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_COLUMNS
    except OSError:  # the terminal is gone
        return _DEFAULT_COLUMNS
