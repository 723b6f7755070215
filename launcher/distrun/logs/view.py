"""How tasks' lines look: the prefix, its colour, and which bytes may reach the terminal."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.logs.bars import last_state, without_bars_below
from distrun.logs.startup_lines import LeftOut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.logs.startup_lines import StartupFilter

# Those of the 256 colours that have a contrast of at least 4:1 both on black and on white. The
# order makes neighbours differ most in hue.
_COLOURS = (30, 163, 64, 63, 130, 98, 28, 161)
_RESET = b"\x1b[0m"
_RESETS = (_RESET, b"\x1b[m")

# Escape sequences (ECMA-48): CSI, OSC with either terminator, other strings, and short sequences.
# A sequence that does not end on its line loses only its introducer, so no text is lost.
_SEQUENCE = (
    rb"(?:\[[0-?]*[ -/]*[@-~]"
    rb"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"
    rb"|[PX^_][^\x1b\n]*\x1b\\"
    rb"|[ -/]*[0-~]"
    rb"|)"
)
_ANY_ESCAPE = re.compile(rb"\x1b" + _SEQUENCE)
_ESCAPE_BUT_COLOUR = re.compile(rb"\x1b(?!\[[0-9;:]*m)" + _SEQUENCE)
# Backspace, vertical tab, form feed, shift out and shift in move the cursor, or change the
# terminal's character set permanently. ENQ has some terminals type an answer into the shell. NUL
# hides what follows it from many programs.
_MOVING = (b"\0", b"\x05", b"\x08", b"\x0b", b"\x0c", b"\x0e", b"\x0f")
_ALL_MOVING = b"".join(_MOVING)
# U+0080 to U+009F (C1) are escape sequences' introducers in one character. U+202A to U+202E and
# U+2066 to U+2069 reverse the order in which text is shown.
_HARMFUL_CHARACTERS = (
    (b"\xc2", re.compile(rb"\xc2[\x80-\x9f]")),
    (b"\xe2\x80", re.compile(rb"\xe2\x80[\xaa-\xae]")),
    (b"\xe2\x81", re.compile(rb"\xe2\x81[\xa6-\xa9]")),
)
"""The first bytes of some of these characters, which are searched for faster, and all of them."""
_C1_BYTES = bytes(range(0x80, 0xA0))
# The bytes 80 to 9F mean the same to a terminal that is not in UTF-8 mode. In a character of UTF-8
# they stay, so whole characters are matched first.
_HARMFUL_BYTE = re.compile(
    rb"([\xc3-\xdf][\x80-\xbf]|\xc2[\xa0-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|"
    rb"[\xe1-\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf4][\x80-\xbf]{3})"
    rb"|\xc2?[\x80-\x9f]"
)


class View(Frozen):
    """How to show logs.

    Attributes:
        tasks: the names of all tasks of the job, in order. The longest name sets the width of the
            prefix, and its place a task's colour, whichever tasks are shown.
        colour: colour the prefixes, and keep the tasks' own colours.
        timestamps: begin each line with the local time of writing, ISO 8601, to 100 ms.
        raw: show lines as they were written: no prefix, and escapes and progress bars kept.
        grep: show only lines that match. Escapes are removed first, unless `raw`; the prefix is
            never searched.
        startup: leaves out TensorFlow's start-up lines; None: they are shown.
        json_version: if not 0, print each line as a JSON object with this version. The tasks'
            names begin with their jobs' ids then.
    """

    tasks: Sequence[str]
    colour: bool = False
    timestamps: bool = False
    raw: bool = False
    grep: re.Pattern[bytes] | None = None
    json_version: int = 0
    startup: StartupFilter | None = None

    @property
    def verbatim(self) -> bool:
        """Whether the bytes of a single task pass unchanged, even unfinished lines."""
        return self.raw and not self.is_timed and self.grep is None and self.startup is None

    @property
    def is_timed(self) -> bool:
        """Whether the lines show when they were written."""
        return self.timestamps or self.json_version > 0

    @cached_property
    def _width(self) -> int:
        return max(map(len, self.tasks), default=0)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {task: place for place, task in enumerate(self.tasks)}

    def prefix(self, task: str) -> bytes:
        """The task's name and the bar, for each of its lines; empty if the view is raw."""
        if self.raw:
            return b""
        text = f"{task:<{self._width}} |".encode()
        if not self.colour or task not in self._places:
            return text + b" "
        colour = _COLOURS[self._places[task] % len(_COLOURS)]
        return b"\x1b[38;5;%dm" % colour + text + _RESET + b" "


class Formatter:
    """Formats blocks of whole lines of one task."""

    def __init__(self, view: View, task: str) -> None:
        self._view = view
        self._task = task
        self._prefix = view.prefix(task)
        self._stamp = (-1.0, b"")
        self._startup = view.startup
        self._left_out = LeftOut()

    def select(self, block: bytes, *, whole: bool = False) -> bytes:
        """The lines to show, without harmful bytes and without prefix.

        `whole`: TensorFlow's start-up lines, too.
        """
        block = self._clean(block)
        if self._startup is None or whole:
            return block
        return self._startup.select(self._task, block)[0]

    def show(self, block: bytes, *, whole: bool = False) -> bytes:
        """As :meth:`select`, for a block that is shown now. The lines left out are counted."""
        block = self._clean(block)
        if self._startup is None:
            return block
        if whole:
            return block
        shown, left_out = self._startup.select(self._task, block)
        self._startup.record(self._task, is_shown=bool(shown), left_out=len(left_out))
        self._left_out.record(block, left_out)
        return shown

    def last_left_out(self) -> bytes:
        """The start-up lines among the last lines that were shown. They are shown now."""
        lines = self._left_out.take()
        if self._startup is not None and lines:
            self._startup.record(self._task, is_shown=True, left_out=-len(lines))
        return b"".join(line + b"\n" for line in lines)

    def _clean(self, block: bytes) -> bytes:
        if not self._view.raw:
            block = _sanitized(block, colour=self._view.colour)
        if self._view.grep is not None:
            block = _matching(block, self._view.grep, plain=not self._view.raw)
        return block

    def prefixed(self, block: bytes, written: float) -> bytes:
        """`block` with the prefix before each line; `written` is its Unix time."""
        if self._view.json_version:
            return self._as_json(block, written)
        prefix = self._prefix
        if self._view.timestamps:
            prefix = self._timestamp(written) + prefix
        if not (block and prefix):
            return block
        # A single pass is the fastest way through many lines. It also adds a prefix after the last
        # line; that one is removed.
        every = block.replace(b"\n", b"\n" + prefix)
        return b"".join((prefix, memoryview(every)[: -len(prefix)]))

    def _as_json(self, block: bytes, written: float) -> bytes:
        job_id, _, task = self._task.rpartition(" ")
        about = {"version": self._view.json_version, "job_id": job_id, "task": task}
        about["at"] = round(written, 3)
        lines = (line.decode("utf-8", "replace") for line in block.split(b"\n")[:-1])
        return "".join(f"{json.dumps({**about, 'line': line})}\n" for line in lines).encode()

    def _timestamp(self, written: float) -> bytes:
        if self._stamp[0] != written:
            local = datetime.fromtimestamp(written, tz=timezone.utc).astimezone()
            self._stamp = written, local.isoformat(timespec="milliseconds").encode() + b" "
        return self._stamp[1]


def _sanitized(block: bytes, *, colour: bool) -> bytes:
    """`block` without bytes that move the cursor. A test that fails costs almost nothing."""
    if any(byte in block for byte in _MOVING):
        block = block.translate(None, _ALL_MOVING)
    if not block.isascii():
        block = _without_harmful_characters(block)
    escapes = b"\x1b" in block
    if escapes and b"\r" in block:
        block = without_bars_below(block)
    if escapes:
        block = (_ESCAPE_BUT_COLOUR if colour else _ANY_ESCAPE).sub(b"", block)
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if b"\r" in block:
        lines = block.split(b"\n")
        block = b"\n".join(last_state(line) if b"\r" in line else line for line in lines)
    if escapes and colour:
        block = b"\n".join(map(_reset_at_end, block.split(b"\n")))
    return block


def _without_harmful_characters(block: bytes) -> bytes:
    if not _is_utf8(block) and len(block.translate(None, _C1_BYTES)) < len(block):
        lines = block.splitlines(keepends=True)
        block = b"".join(
            line if _is_utf8(line) else _HARMFUL_BYTE.sub(rb"\1", line) for line in lines
        )
    for first, characters in _HARMFUL_CHARACTERS:
        if first in block:
            block = characters.sub(b"", block)
    return block


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _reset_at_end(line: bytes) -> bytes:
    last = line.rfind(b"\x1b")
    return line if last < 0 or line.startswith(_RESETS, last) else line + _RESET


def _matching(block: bytes, grep: re.Pattern[bytes], *, plain: bool) -> bytes:
    lines = block.split(b"\n")
    del lines[-1]  # the empty text after the last newline
    plain = plain and b"\x1b" in block
    kept = [line for line in lines if grep.search(_ANY_ESCAPE.sub(b"", line) if plain else line)]
    return b"\n".join([*kept, b""])
