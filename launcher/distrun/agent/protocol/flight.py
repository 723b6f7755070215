"""How much of logs and files is in flight over a link, so that other messages wait only shortly."""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Deque, Tuple

_DELAY = 2.0
"""Seconds that what is in flight may delay other messages, judged by the last part to arrive."""
_SMALLEST_WINDOW = 8 * 1024
_GROWTH = 8
"""How much more than what has arrived is tried next: a short part says little about a link."""


class Flight:
    """What has been sent, and has not arrived. `window`: how many bytes that may be."""

    def __init__(self, window: int = 0) -> None:
        self.window, self._usable = window, _SMALLEST_WINDOW
        self.size = 0
        self._parts: Deque[Tuple[float, int, int]] = collections.deque()
        """When a part was sent, its size, and the bytes in flight with it."""

    @property
    def room(self) -> int:
        """How many bytes the link takes to the other end soon."""
        return min(self.window, self._usable) - self.size

    def add(self, size: int) -> None:
        self.size += size
        self._parts.append((time.monotonic(), size, self.size))

    def remove(self, received: int) -> None:
        self.size = max(0, self.size - received)
        while self._parts and received > 0:
            sent_at, size, with_it = self._parts.popleft()
            received -= size
            seconds = max(time.monotonic() - sent_at, 0.001)
            self._usable = max(_SMALLEST_WINDOW, int(with_it * min(_DELAY / seconds, _GROWTH)))
