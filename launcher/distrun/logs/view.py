"""How tasks' lines look: the prefix, its colour, and which bytes may reach the terminal."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from functools import cache, cached_property

from distrun.frozen import Frozen
from distrun.logs.bars import last_state, without_bars_below
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
_C1_BYTE = re.compile("[\udc80-\udc9f]+")
"""Bytes that mean the same to a terminal that is not in UTF-8 mode, if they are no part of a
character of UTF-8, as `surrogateescape` decodes them."""

# What may match, or look at, characters beyond the line: other lines would change the result, or a
# search would take time that grows with the square of the block's size.
_BEYOND_LINES = re.compile(rb"\n|\[\^|(?:\\t|[\0-\t])-|\\[sWDAZnx0]|\(\?(?:[^:iP]|i[^:)])|[*+?}]\+")


class View(Frozen):
    """How to show logs.

    Attributes:
        tasks: the names of all tasks of the job, in order. The longest name sets the width of the
            prefix, and its place a task's colour, whichever tasks are shown.
        colour: colour the prefixes, and keep the tasks' own colours.
        timestamps: begin each line with the local time of writing, ISO 8601, to 100 ms.
        raw: show lines as they were written: no prefix, and escapes and progress bars kept.
        bare: show lines without the prefix.
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
    bare: bool = False
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
        if self.raw or self.bare:
            return b""
        text = f"{task:<{self._width}} |".encode()
        if not self.colour or task not in self._places:
            return text + b" "
        colour = _COLOURS[self._places[task] % len(_COLOURS)]
        return b"\x1b[38;5;%dm" % colour + text + _RESET + b" "


class Formatter:
    """Formats blocks of whole lines of one task.

    Args:
        counts: whether lines are shown at once, so that those that are left out are counted.
    """

    def __init__(self, view: View, task: str, *, counts: bool = False) -> None:
        self._view, self._counts = view, counts
        self._task = task
        self._prefix = view.prefix(task)
        self._stamp = (-1.0, b"")

    def select(self, block: bytes) -> bytes:
        """The lines to show, without harmful bytes and without prefix."""
        view = self._view
        if not view.raw:
            block = _sanitized(block, colour=view.colour)
        if view.startup is not None:
            block = view.startup.select(self._task, block, counted=self._counts)
        if view.grep is not None:
            lines = _matching(block, view.grep, plain=not view.raw)
            block = b"".join(block[start:end] for start, end in lines)
        return block

    def parts(self, block: bytes, ends: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """As :meth:`select`, the lines of each part of a block, with the part's number.

        `ends`: where the parts end. To find in the whole block that nothing is to be removed, as in
        nearly all output, is faster than to look at each part.
        """
        view, start = self._view, 0
        if (view.raw or _sanitized(block, colour=view.colour) is block) and (
            view.startup is None or view.startup.select(self._task, block) is block
        ):
            if view.startup is not None and self._counts:
                view.startup.count_left_out(self._task, block, block)
            if view.grep is None:
                for number, end in enumerate(ends):
                    yield number, block[start:end]
                    start = end
                return
            number = 0
            for start, end in _matching(block, view.grep, plain=not view.raw):
                while ends[number] <= start:
                    number += 1
                yield number, block[start:end]
            return
        for number, end in enumerate(ends):
            yield number, self.select(block[start:end])
            start = end

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
            # Not by `datetime`, which refuses what TZ may say: 24 hours and more.
            date, zone = time.strftime("%Y-%m-%dT%H:%M:%S %z", time.localtime(written)).split()
            text = f"{date}.{int(written * 1000) % 1000:03d}{zone[:3]}:{zone[3:]} "
            self._stamp = written, text.encode()
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
    if not _is_utf8(block):
        text = _C1_BYTE.sub("", block.decode("utf-8", "surrogateescape"))
        block = text.encode("utf-8", "surrogateescape")
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


def _matching(block: bytes, grep: re.Pattern[bytes], *, plain: bool) -> Iterator[tuple[int, int]]:
    """Where the lines that match begin and end. `plain`: escape sequences are no part of them."""
    at, coloured = 0, plain and b"\x1b" in block
    in_block = None if coloured else _for_blocks(grep)
    while at < len(block):
        start = at
        if in_block is not None:
            found = in_block.search(block, at)
            if found is None or (found.start() == len(block) and block.endswith(b"\n")):
                return
            start = block.rfind(b"\n", at, found.start()) + 1 or at
        at = block.find(b"\n", start) + 1 or len(block)  # the last line may be unfinished
        line = block[start:at].removesuffix(b"\n")
        if grep.search(_ANY_ESCAPE.sub(b"", line) if coloured else line):
            yield start, at


@cache
def _for_blocks(grep: re.Pattern[bytes]) -> re.Pattern[bytes] | None:
    """A pattern that finds in a block each line that `grep` matches; None if that is not sure.

    A search of the whole block is much faster than one for each line.
    """
    if grep.flags & re.DOTALL or _BEYOND_LINES.search(grep.pattern):
        return None
    return re.compile(grep.pattern, grep.flags | re.MULTILINE)
