"""A link on which anything may come before the other side's mark, and between its messages.

A login may print, and what it leaves running goes on printing.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from distrun.agent import seal
from distrun.agent.wire import Channel

if TYPE_CHECKING:
    from distrun.agent.wire import Message

_NOISE_BYTES = 4000


class Damage(NamedTuple):
    """Stands among the messages where at least one could not be read for noise."""


class MarkedChannel(Channel):
    """A channel whose messages begin behind `mark`, sealed, among whatever else is printed."""

    def __init__(self, reader: int, writer: int, mark: bytes) -> None:
        super().__init__(reader, writer)
        self.met = False
        """Whether the mark has come."""
        self._noise = b""
        self._mark = mark
        self._sealed = bytearray()
        """What has come behind the mark, as far as it is no whole frame."""
        self._next = 0
        """The number of the frame that is to come."""

    @property
    def noise(self) -> bytes:
        """The end of what came before the mark."""
        return self._noise if self.met else self._noise + bytes(self._incoming)

    def receive(self) -> list[tuple[int, Message]]:
        self._fill()
        if not self.met:
            at = self._incoming.find(self._mark)
            self.met = at >= 0
            # Of the mark itself all but the last byte may have come.
            noise = at if self.met else max(0, len(self._incoming) - len(self._mark) + 1)
            self._noise = (self._noise + self._incoming[:noise])[-_NOISE_BYTES:]
            del self._incoming[: noise + len(self._mark) if self.met else noise]
        return self._unsealed() if self.met else []

    def _unsealed(self) -> list[tuple[int, Message]]:
        self._sealed += self._incoming
        self._incoming.clear()
        messages: list[tuple[int, Message]] = []
        while (found := self._next_frame()) is not None:
            number, frame = found
            if number != self._next or not frame:
                messages.append((0, Damage()))
            self._next = number + 1
            self._incoming += frame
            messages += self._frames()
        return messages

    def _next_frame(self) -> tuple[int, bytes] | None:
        """The number of the next frame, and the frame; nothing of one that noise is in.

        What comes before it is left out. None: it is not all there yet.
        """
        sealed = self._sealed
        at = 0
        while True:
            at = sealed.find(seal.MARK, at)
            if at < 0:
                at = max(0, len(sealed) - len(seal.MARK) + 1)
                break
            if len(sealed) < at + seal.SIZE:
                break
            start = at + seal.SIZE
            header = seal.read_header(bytes(sealed[at:start]))
            if header is not None:
                number, length, check = header
                end = start + length
                if len(sealed) < end:
                    break
                frame = bytes(sealed[start:end])
                is_whole = zlib.crc32(frame) == check
                # The next frame begins before the end of one that had grown by noise.
                del sealed[: end if is_whole else start]
                return number, frame if is_whole else b""
            at += 1
        del sealed[:at]
        return None
