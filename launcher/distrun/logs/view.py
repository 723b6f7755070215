"""How tasks' lines look: the prefix, its colour, and what a line may do to the terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of the 256 colours, those with a contrast of at least 4:1 on black and on white alike, ordered
# so that neighbours differ most in hue.
_COLOURS = (30, 163, 64, 63, 130, 98, 28, 161)
_RESET = b"\x1b[0m"
_RESETS = (_RESET, b"\x1b[m")

# Escape sequences (ECMA-48): CSI, OSC with either end, other strings, and the short ones. One
# that is not finished on its line loses only its introducer, so the text after it is not lost.
_SEQUENCE = (
    rb"(?:\[[0-?]*[ -/]*[@-~]"
    rb"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"
    rb"|[PX^_][^\x1b\n]*\x1b\\"
    rb"|[ -/]*[0-~]"
    rb"|)"
)
_ANY_ESCAPE = re.compile(rb"\x1b" + _SEQUENCE)
_ESCAPE_BUT_COLOUR = re.compile(rb"\x1b(?!\[[0-9;:]*m)" + _SEQUENCE)
# Backspace, vertical tab, form feed, shift out and in: they move the cursor, or change the
# terminal's character set for good.
_MOVING = (b"\x08", b"\x0b", b"\x0c", b"\x0e", b"\x0f")
_ALL_MOVING = b"".join(_MOVING)


@dataclass(frozen=True)
class View:
    """What a reader wants to see.

    Attributes:
        tasks: names of all the job's tasks, in its order. Prefixes are as wide as the longest,
            and a task's colour follows from its place, whichever tasks are shown.
        colour: colour the prefixes, and let the tasks' own colours through.
        timestamps: begin each line with the local time it was written, ISO 8601, to 100 ms.
        raw: lines as they were written: no prefix, no escape or progress bar taken out.
        grep: show only lines in which this is found. It sees the line without escapes, unless
            `raw`, and never the prefix.
    """

    tasks: Sequence[str]
    colour: bool = False
    timestamps: bool = False
    raw: bool = False
    grep: re.Pattern[bytes] | None = None

    @property
    def verbatim(self) -> bool:
        """Whether a single task's bytes pass unchanged, finished lines or not."""
        return self.raw and not self.timestamps and self.grep is None

    def painter(self, task: str) -> Painter:
        return Painter(self, task)


class Painter:
    """Turns blocks of one task's whole lines into what is shown of them."""

    def __init__(self, view: View, task: str) -> None:
        self._view = view
        self._prefix = b"" if view.raw else _prefix(view, task)
        self._stamp = (-1.0, b"")

    def select(self, block: bytes) -> bytes:
        """The lines that are to be shown, made harmless; without prefix."""
        if not self._view.raw:
            block = _harmless(block, colour=self._view.colour)
        if self._view.grep is not None:
            block = _matching(block, self._view.grep, plain=not self._view.raw)
        return block

    def prefixed(self, block: bytes, written: float) -> bytes:
        """`block` with the prefix before each line; `written` is its unix time."""
        prefix = self._prefix
        if self._view.timestamps:
            prefix = self._timestamp(written) + prefix
        if not (block and prefix):
            return block
        # The one fast way through many lines: a single pass, then the prefix it put behind the
        # last line is left out.
        every = block.replace(b"\n", b"\n" + prefix)
        return b"".join((prefix, memoryview(every)[: -len(prefix)]))

    def _timestamp(self, written: float) -> bytes:
        if self._stamp[0] != written:
            local = datetime.fromtimestamp(written, tz=timezone.utc).astimezone()
            self._stamp = written, local.isoformat(timespec="milliseconds").encode() + b" "
        return self._stamp[1]


def _prefix(view: View, task: str) -> bytes:
    width = max(map(len, (task, *view.tasks)))
    text = f"{task:<{width}} |".encode()
    if not view.colour or task not in view.tasks:
        return text + b" "
    colour = _COLOURS[view.tasks.index(task) % len(_COLOURS)]
    return b"\x1b[38;5;%dm" % colour + text + _RESET + b" "


def _harmless(block: bytes, *, colour: bool) -> bytes:
    """`block` without what moves the cursor; each test costs next to nothing where it fails."""
    if any(byte in block for byte in _MOVING):
        block = block.translate(None, _ALL_MOVING)
    escapes = b"\x1b" in block
    if escapes:
        block = (_ESCAPE_BUT_COLOUR if colour else _ANY_ESCAPE).sub(b"", block)
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if b"\r" in block:
        block = b"\n".join(map(_last_overwrite, block.split(b"\n")))
    if escapes and colour:
        block = b"\n".join(map(_reset_at_end, block.split(b"\n")))
    return block


def _reset_at_end(line: bytes) -> bytes:
    last = line.rfind(b"\x1b")
    return line if last < 0 or line.startswith(_RESETS, last) else line + _RESET


def _last_overwrite(line: bytes) -> bytes:
    """What a progress bar has drawn last: the text behind the last carriage return."""
    return line.rstrip(b"\r").rpartition(b"\r")[2] if b"\r" in line else line


def _matching(block: bytes, grep: re.Pattern[bytes], *, plain: bool) -> bytes:
    lines = block.split(b"\n")
    del lines[-1]  # behind the last newline
    plain = plain and b"\x1b" in block
    kept = [line for line in lines if grep.search(_ANY_ESCAPE.sub(b"", line) if plain else line)]
    return b"\n".join([*kept, b""])
