"""Asks from time to time what this host's GPUs are used for."""

from __future__ import annotations

import selectors
from typing import Optional, Set

from distrun.agent.linux.gpus import GpusUsed, gpus_used
from distrun.agent.probe.forked_call import ForkedCall

_INTERVAL = 10.0
"""Seconds. nvidia-smi takes up to half a second of a core."""
_SECONDS = 20.0


class GpuUsage:
    """Asks nvidia-smi from time to time, in a child: it may take long, or hang."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._call: Optional[ForkedCall] = None
        self._next = 0.0
        self.latest: Optional[GpusUsed] = None
        """The last answer; None: there was none yet, or the last question failed."""

    @property
    def children(self) -> Set[int]:
        """The child that asks, if there is one."""
        return set() if self._call is None else {self._call.pid}

    def ask(self, now: float, interval: float) -> None:
        """Ask, unless the last question was less than an interval ago (seconds)."""
        if self._call is not None and self._call.due <= now:
            self.close()
            self.latest = None
        if self._call is None and now >= self._next:
            self._next = now + max(_INTERVAL, interval)
            try:
                self._call = ForkedCall(lambda: gpus_used(with_load=True), now + _SECONDS)
            except OSError:
                return  # no process can be made now
            self._selector.register(self._call, selectors.EVENT_READ, self._on_readable)

    def close(self) -> None:
        """End a question that has not been answered."""
        if self._call is not None:
            self._selector.unregister(self._call)
            self._call.close()
            self._call = None

    def _on_readable(self) -> None:
        call = self._call
        if call is not None and call.read():
            answer = call.result()
            self.close()
            self.latest = answer if isinstance(answer, GpusUsed) else None
