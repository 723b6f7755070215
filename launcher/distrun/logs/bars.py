"""What progress bars overwrite: only the last state of each bar is a line of the output."""

from __future__ import annotations

import re

_CURSOR_UP = b"\x1b[A"
# tqdm draws a bar below another one so: down, draw, and up again. What it draws later overwrites
# it. The newline ends no line.
_BELOW = re.compile(rb"(\n{1,9})\r[^\n]*?((?:\x1b\[A){1,9})")
# A bar that is not at its end, and then perhaps the beginning of a bar below it.
# The search for `%|` is a part of its own: together, they would take quadratic time.
_MAYBE_ABOVE = re.compile(rb"\r(?=[^\r\n]*%\|)[^\r\n]*\n{1,9}(?:\r[^\r\n]*(?:\r(?:\x1b\[?)?)?)?\Z")
_MOST_STATES_BYTES = 8192
_AT_END = b"100%|"
_MAYBE_BAR = re.compile(rb"\d%|\d/[\dU]|\d:\d\d")


def without_bars_below(text: bytes) -> bytes:
    """Return output without the states of bars below others that are overwritten later."""
    return _BELOW.sub(_keep_unbalanced, text) if _CURSOR_UP in text else text


def _keep_unbalanced(found: re.Match[bytes]) -> bytes:
    return b"" if len(found[1]) * len(_CURSOR_UP) == len(found[2]) else found[0]


def open_end(text: bytes) -> int:
    """Return where the unfinished end of some output begins.

    It begins after the last newline, or with the last bar if another bar may follow below it.
    """
    last = text.rfind(b"\n") + 1
    lines = text[:last].rstrip(b"\n")
    start = lines.rfind(b"\n") + 1
    if lines.startswith(b"\r", start):
        state = lines.rfind(b"\r")
        if lines.find(_AT_END, state) < 0 and _MAYBE_ABOVE.match(text, state):
            return start
    return last


def without_old_states(unfinished: bytearray) -> None:
    """Remove the states of a bar that has not ended, except the last ones."""
    if len(unfinished) > _MOST_STATES_BYTES and b"\n" not in unfinished:
        # The last one may not be whole yet.
        kept = unfinished.rfind(b"\r", 0, max(0, unfinished.rfind(b"\r")))
        del unfinished[: max(0, kept)]


def last_state(line: bytes) -> bytes:
    """Return what a line with carriage returns shows at last.

    A bar is left out if other output follows it on its line: it is drawn again.
    """
    text = line.rstrip(b"\r").rpartition(b"\r")[2]
    if not _MAYBE_BAR.search(text):
        return text
    from distrun.job.printed_progress import without_bar

    decoded = text.decode(errors="surrogateescape")
    return without_bar(decoded).encode(errors="surrogateescape")
