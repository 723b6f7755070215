"""Asks from time to time what this host's GPUs are used for."""

from __future__ import annotations

from typing import Optional, Union

from distrun.agent.linux.gpus import GpusUsed, gpus_used
from distrun.agent.loop import Loop
from distrun.agent.probe.forked_call import ForkedCall
from distrun.agent.protocol import Cause, Message

_INTERVAL = 10.0
"""Seconds. nvidia-smi takes up to half a second of a core."""
_SECONDS = 20.0


class GpuUsage:
    """Asks nvidia-smi from time to time, in a child: it may take long, or hang."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._call: Optional[ForkedCall] = None
        self._next = 0.0
        self.latest: Optional[GpusUsed] = None
        """The last answer; None: there was none yet, or the last question failed."""

    def ask(self, now: float, interval: float) -> None:
        """Ask, unless the last question was less than an interval ago (seconds)."""
        if self._call is None and now >= self._next:
            self._next = now + max(_INTERVAL, interval)
            self._call = ForkedCall(
                self._loop, lambda: gpus_used(with_load=True), _SECONDS, self._on_answer
            )

    def close(self) -> None:
        """End a question that has not been answered."""
        if self._call is not None:
            self._call.close()
            self._call = None

    def _on_answer(self, answer: Union[Message, Cause]) -> None:
        self._call = None
        self.latest = answer if isinstance(answer, GpusUsed) else None
