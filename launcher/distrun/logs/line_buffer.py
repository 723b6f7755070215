"""Assembles whole lines from the pieces of a stream."""

from __future__ import annotations

from distrun.logs.bars import open_end, without_bars_below, without_old_states

LONGEST_LINE = 1 << 20  # bytes; longer lines are shown in pieces, so that memory is bounded
_LONGEST_CHARACTER = 4  # bytes of UTF-8


class LineBuffer:
    """Holds back the unfinished last line of a stream until its end arrives.

    Of a progress bar, the states that its next state overwrites may be left out.

    Args:
        verbatim: pass the bytes unchanged: nothing is held back or added.
        raw: keep all states of bars.
    """

    def __init__(self, *, verbatim: bool = False, raw: bool = False) -> None:
        self._verbatim = verbatim
        self._raw = raw or verbatim
        self._held = bytearray()

    def __len__(self) -> int:
        return len(self._held)

    def has_bars(self, chunk: bytes) -> bool:
        """Whether states of bars may be left out of what :meth:`feed` returns for `chunk`."""
        return not self._raw and (self._held.startswith(b"\r") or b"\r" in chunk)

    def feed(self, chunk: bytes) -> bytes:
        """The lines that `chunk` completes, each with its newline; may be empty."""
        if self._verbatim:
            return chunk
        # Without carriage returns, as nearly all output is, this must cost nothing.
        has_bars = self.has_bars(chunk)
        if has_bars:
            chunk = without_bars_below(bytes(self._held) + chunk)
            self._held.clear()
        end = open_end(chunk) if has_bars else chunk.rfind(b"\n") + 1
        finished = b""
        if end:
            finished = b"".join((self._held, memoryview(chunk)[:end]))
            self._held.clear()
        self._held += chunk[end:]
        if has_bars:
            without_old_states(self._held)
        if len(self._held) > LONGEST_LINE:
            finished += self._pieces()
        return finished

    def flush(self) -> bytes:
        """The unfinished line with an added newline. Call this at the end of the stream."""
        held = bytes(self._held)
        self._held.clear()
        return held + b"\n" if held and not held.endswith(b"\n") else held

    def discard(self) -> None:
        self._held.clear()

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
