"""What one side of a link has said and the other has not yet taken for good."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, List, Tuple

if TYPE_CHECKING:
    from typing import Deque

    from distrun.agent.wire import Message


class Outbox:
    """A side's numbered messages, kept until the other has them for good."""

    def __init__(self) -> None:
        self._unacknowledged: Deque[Tuple[int, Message]] = collections.deque()
        self._last = 0

    def add(self, message: Message) -> int:
        self._last += 1
        self._unacknowledged.append((self._last, message))
        return self._last

    def acknowledge(self, seq: int) -> None:
        while self._unacknowledged and self._unacknowledged[0][0] <= seq:
            self._unacknowledged.popleft()

    def after(self, seq: int) -> List[Tuple[int, Message]]:
        return [item for item in self._unacknowledged if item[0] > seq]
