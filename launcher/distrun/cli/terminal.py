"""A terminal where output scrolls above a status line."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable
from typing import BinaryIO, TextIO

from distrun.cli.console import can_redraw, columns_of, uses_colour
from distrun.words.formats import clip

_ABSENT_SECONDS = 0.5
_ERASE, _ERASE_ROWS = b"\r\x1b[K", b"\r\x1b[J"
"""Of the line; of all rows below, too. tmux keeps a screen that is erased from its first row on."""
_BOLD, _RESET = b"\x1b[1m", b"\x1b[0m"


class Terminal:
    """Writes blocks of whole lines and keeps the status line below them.

    The cursor stays at the beginning of the status line. If the terminal becomes narrower, it
    folds the status line into several rows; they all are behind the cursor and are erased
    together.

    If the stream is no terminal (a pipe, a file, TERM=dumb), the status line is on `other`, if that
    is one: output passes unchanged. After output, the line stays away for a moment, because a
    program that reads a pipe may write to the same terminal.
    """

    def __init__(
        self,
        output: BinaryIO | io.RawIOBase,
        stream: TextIO,
        other: tuple[BinaryIO | io.RawIOBase, TextIO] | None = None,
    ) -> None:
        self._output = output
        self._line, self._stream = output, stream
        if other is not None and not can_redraw(stream) and can_redraw(other[1]):
            self._line, self._stream = other
        self.has_status_line = can_redraw(self._stream)
        self._bold = uses_colour(self._stream)
        self._absent_until = 0.0
        """When the line may be drawn again (monotonic)."""
        self._drawn = b""
        self._drawn_columns = 0
        """The terminal's width then."""
        self._status = ""

    @property
    def columns(self) -> int:
        """The width of the status line: with one more, some terminals begin a new row."""
        return columns_of(self._stream) - 1

    def write(self, blocks: Iterable[bytes]) -> None:
        is_apart = self._line is not self._output
        for block in blocks:
            self.clear_status()
            self._output.write(block)
            self._output.flush()
            if is_apart:
                self._absent_until = time.monotonic() + _ABSENT_SECONDS
        if not is_apart:
            self._draw()

    def show_status(self, text: str) -> None:
        """Replace the status line; an empty text removes it."""
        if self.has_status_line:
            self._status = text
            if not text or time.monotonic() >= self._absent_until:
                self._draw()

    def clear_status(self) -> None:
        """Erase the status line until the next write, so that something else can be printed."""
        if self._drawn:
            is_folded = columns_of(self._stream) < self._drawn_columns
            self._write(_ERASE_ROWS if is_folded else _ERASE)
            self._drawn = b""

    def _draw(self) -> None:
        columns = columns_of(self._stream)
        text = clip(self._status, columns - 1)
        line = text.rstrip().encode(errors="replace")
        if line == self._drawn:
            return
        self.clear_status()
        if line:
            self._write(_BOLD + line + _RESET + b"\r" if self._bold else line + b"\r")
            self._drawn, self._drawn_columns = line, columns

    def _write(self, block: bytes) -> None:
        self._line.write(block)
        self._line.flush()
