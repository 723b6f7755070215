"""Timers that expire unless they are canceled first."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.events import Timer


class Timers:
    """Timers by name, on a clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._timers: list[tuple[float, Timer]] = []

    def set(self, timer: Timer, seconds: float) -> None:
        heapq.heappush(self._timers, (self._clock() + seconds, timer))

    def cancel(self, timer: Timer) -> None:
        self._timers = [each for each in self._timers if each[1] != timer]
        heapq.heapify(self._timers)

    @property
    def next_due(self) -> float | None:
        """When the next timer is due; None: there is none."""
        return self._timers[0][0] if self._timers else None

    def pop_due(self) -> Timer | None:
        """Remove and return a timer that is due; None if none is."""
        if not self._timers or self._timers[0][0] > self._clock():
            return None
        return heapq.heappop(self._timers)[1]
