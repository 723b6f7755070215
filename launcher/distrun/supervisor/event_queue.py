"""The events of a job, handled one after another, each with all that follows from it at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from distrun.job.events import Event


class EventQueue:
    """Calls `handle` with each event. What it adds meanwhile waits until it has returned."""

    def __init__(self, handle: Callable[[Event], None]) -> None:
        self._handle = handle
        self._events: deque[Event] = deque()
        self._postponed: deque[Callable[[], None]] = deque()
        self._is_handling = False
        self._is_calling = False

    def add(self, event: Event) -> None:
        """Handle an event: at once, or after those that are waiting."""
        self._events.append(event)
        self._run()

    def add_first(self, *events: Event) -> None:
        """Have events handled next, before those that are waiting. `handle` may call this."""
        self._events.extendleft(reversed(events))

    def call_after(self, function: Callable[[], None]) -> None:
        """Call a function that reads the state, and may add events: once no event waits."""
        self._postponed.append(function)
        self._run()

    def _run(self) -> None:
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._is_handling = False
        if self._is_calling:
            return
        self._is_calling = True
        try:
            while self._postponed:
                self._postponed.popleft()()
        finally:
            self._is_calling = False
