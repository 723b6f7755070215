"""SIGTERM while the job starts; needs no TensorFlow, and must come before it."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _exit() -> None:
    # Nothing has been trained: there is nothing to save or to wait for.
    os._exit(128 + signal.SIGTERM)


class StartUpGuard:
    """Keeps a SIGTERM that comes before training from being lost.

    TensorFlow takes SIGTERM over when it joins a cluster, and drops what comes before the job's
    handler asks for it. So the signal is blocked, before numpy or TensorFlow start a thread, and
    a thread of our own waits for it. (While TensorFlow waits for the peers it holds the
    interpreter's lock: then the signal is acted on when they have come.)
    """

    def __init__(self) -> None:
        self._act: Callable[[], None] = _exit
        self._over = threading.Event()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._thread = threading.Thread(target=self._watch, name="start-up SIGTERM", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.is_set():
            if signal.sigtimedwait({signal.SIGTERM}, 0.2) is not None:
                self._act()

    def on_signal(self, act: Callable[[], None]) -> None:
        """Has `act` called instead, in this thread, for as long as the guard is not ended."""
        self._act = act

    def end(self) -> None:
        """Gives SIGTERM to whoever has a handler for it now."""
        self._over.set()
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
