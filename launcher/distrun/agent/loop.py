"""The loop of agent and launcher: what to call once a descriptor is ready, or a time has come."""

from __future__ import annotations

import heapq
import itertools
import math
import os
import selectors
import time
from typing import TYPE_CHECKING, Callable, Iterable, List, Optional, Tuple

from distrun.agent.linux import syscalls

if TYPE_CHECKING:
    from typing import Protocol, Union

    class HasDescriptor(Protocol):
        def fileno(self) -> int: ...

    Source = Union[int, HasDescriptor]

_MOST_SIGNALS = 4096


class Handle:
    """A call that :meth:`Loop.call_at` has scheduled. It can be moved, also after it was made."""

    def __init__(self, loop: Loop, function: Callable[[], object]) -> None:
        self._loop = loop
        self.function = function
        self.when: Optional[float] = None
        """When it will be made; None: not at all."""
        self.queued = math.inf
        """Its first place in the queue, which may be earlier."""

    def move(self, when: Optional[float]) -> None:
        """Make it at that time instead; None: not at all."""
        self.when = when
        if when is not None and when < self.queued:
            self._loop.enqueue(self, when)

    def move_forward(self, when: float) -> None:
        """Make it at that time, unless it will be made earlier."""
        self.move(when if self.when is None else min(when, self.when))

    def cancel(self) -> None:
        self.when = None


class Loop:
    """Calls what is watched or scheduled, one function after another. None of them may block."""

    def __init__(self, clock: Optional[Callable[[], float]] = None) -> None:
        self.now = clock or time.monotonic
        self.before_wait: List[Callable[[], object]] = []
        """What each turn begins with, such as sending what is queued."""
        self.checks: List[Callable[[], object]] = []
        """What each turn ends with: something may follow from what has happened in it."""
        self._selector = selectors.DefaultSelector()
        self._queue: List[Tuple[float, int, Handle]] = []
        self._order = itertools.count()

    def close(self) -> None:
        self._selector.close()

    # Times ---------------------------------------------------------------------------------

    def call_at(self, when: Optional[float], function: Callable[[], object]) -> Handle:
        """Call a function at that time, by :attr:`now`; None: once the handle is moved."""
        handle = Handle(self, function)
        handle.move(when)
        return handle

    def enqueue(self, handle: Handle, when: float) -> None:
        handle.queued = when
        heapq.heappush(self._queue, (when, next(self._order), handle))

    def _next(self) -> Optional[Handle]:
        """The handle whose time comes first."""
        while self._queue:
            at, _, handle = self._queue[0]
            if at == handle.queued and at == handle.when:
                return handle
            heapq.heappop(self._queue)
            if at == handle.queued:  # it was cancelled, or moved to a later time
                handle.queued = math.inf
                handle.move(handle.when)
        return None

    def _call_due(self) -> None:
        """Make the calls that are due. What these schedule has to wait for the next turn."""
        now, due = self.now(), []
        while (handle := self._next()) is not None and handle.queued <= now:
            heapq.heappop(self._queue)
            handle.queued = math.inf
            due.append(handle)
        try:
            for handle in due:
                if handle.when is not None and handle.when <= now:  # no other call has moved it
                    handle.when = None
                    handle.function()
        finally:
            for handle in due:
                handle.move(handle.when)  # after an error: the others remain

    # Descriptors ---------------------------------------------------------------------------

    def watch(self, source: Source, function: Callable[[], object]) -> None:
        """Call a function whenever a descriptor is readable."""
        self._selector.register(source, selectors.EVENT_READ, function)

    def watch_writing(self, source: Source, function: Callable[[], object]) -> None:
        """Call a function whenever a descriptor is writable."""
        self._selector.register(source, selectors.EVENT_WRITE, function)

    def is_watched(self, source: Source) -> bool:
        return source in self._selector.get_map()

    def unwatch(self, source: Optional[Source]) -> None:
        """Watch a descriptor no more, if it is watched. Call this before it is closed."""
        if source is not None and self.is_watched(source):
            self._selector.unregister(source)

    def watch_signals(self, numbers: Iterable[int], function: Callable[[bytes], object]) -> None:
        """Call a function with the numbers of these signals that have arrived."""
        pipe = syscalls.signal_pipe(numbers)
        self.watch(pipe, lambda: function(os.read(pipe.fileno(), _MOST_SIGNALS)))

    # Turns ---------------------------------------------------------------------------------

    def turn(self, seconds: Optional[float] = None) -> bool:
        """Wait until something is ready or due, so many seconds at most, and call its function.

        Returns whether any descriptor was ready.
        """
        for function in self.before_wait:
            function()
        first = self._next()
        waits = [syscalls.LONGEST_WAIT] if seconds is None else [seconds, syscalls.LONGEST_WAIT]
        if first is not None and first.when is not None:
            waits.append(first.when - self.now())
        ready = self._selector.select(max(0.0, min(waits)))
        for key, _ in ready:
            # An earlier call may have closed it: then its number may be in use again.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        self._call_due()
        for function in self.checks:
            function()
        return bool(ready)
