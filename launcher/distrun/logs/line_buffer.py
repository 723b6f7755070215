"""Assembles whole lines from the pieces of a stream."""

from __future__ import annotations

LONGEST_LINE = 1 << 20  # bytes; longer lines are shown in pieces, so that memory is bounded
_LONGEST_CHARACTER = 4  # bytes of UTF-8


class LineBuffer:
    """Holds back the unfinished last line of a stream until its end arrives.

    With `verbatim`, the bytes pass unchanged: nothing is held back or added.
    """

    def __init__(self, *, verbatim: bool = False) -> None:
        self._verbatim = verbatim
        self._held = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """The lines that `chunk` completes, each with its newline; may be empty."""
        if self._verbatim:
            return chunk
        end = chunk.rfind(b"\n") + 1
        finished = b""
        if end:
            finished = b"".join((self._held, memoryview(chunk)[:end]))
            self._held.clear()
        self._held += chunk[end:]
        if len(self._held) > LONGEST_LINE:
            finished += self._pieces()
        return finished

    def flush(self) -> bytes:
        """The unfinished line with an added newline. Call this at the end of the stream."""
        held = bytes(self._held)
        self._held.clear()
        return held + b"\n" if held else b""

    def _pieces(self) -> bytes:
        pieces = bytearray()
        while len(self._held) > LONGEST_LINE:
            cut = _between_characters(self._held, LONGEST_LINE)
            pieces += self._held[:cut] + b"\n"
            del self._held[:cut]
        return bytes(pieces)


def _between_characters(line: bytearray, cut: int) -> int:
    for back in range(_LONGEST_CHARACTER):
        if line[cut - back] & 0xC0 != 0x80:  # no continuation byte: a character begins here
            return cut - back
    return cut  # not UTF-8 anyway
