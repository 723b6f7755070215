"""The messages that one side of a link has sent and the other has not yet acknowledged."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Generic, List, Tuple

from distrun.agent.protocol.channel import Sent

if TYPE_CHECKING:
    from typing import Deque


class Outbox(Generic[Sent]):
    """A side's numbered messages, kept until the other side acknowledges them."""

    def __init__(self) -> None:
        self._unacknowledged: Deque[Tuple[int, Sent]] = collections.deque()
        self._last = 0

    def add(self, message: Sent) -> int:
        """Keep a message; returns its number, from 1."""
        self._last += 1
        self._unacknowledged.append((self._last, message))
        return self._last

    def acknowledge(self, seq: int) -> None:
        """Forget every message up to this number."""
        while self._unacknowledged and self._unacknowledged[0][0] <= seq:
            self._unacknowledged.popleft()

    def after(self, seq: int) -> List[Tuple[int, Sent]]:
        """The messages after this number, each with its own number."""
        return [item for item in self._unacknowledged if item[0] > seq]
