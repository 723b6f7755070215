"""A link on which anything may come before the other side's mark: a login that prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.agent.wire import Channel

if TYPE_CHECKING:
    from distrun.agent.wire import Message

_NOISE_BYTES = 4000


class MarkedChannel(Channel):
    """A channel whose messages begin behind `mark`."""

    def __init__(self, reader: int, writer: int, mark: bytes) -> None:
        super().__init__(reader, writer)
        self.met = False
        """Whether the mark has come."""
        self._noise = b""
        self._mark = mark

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
        return self._frames() if self.met else []
