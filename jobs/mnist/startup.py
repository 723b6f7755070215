"""The job's start: how long it takes, and SIGTERM in it; needs no TensorFlow."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_SECONDS = 0.1


def seconds_since_start() -> float:
    """How long ago this process was started, as proc(5) has it: to a hundredth of a second."""
    with open("/proc/self/stat", "rb") as stat, open("/proc/uptime", "rb") as uptime:
        # The name, in brackets, may hold anything; the start is the 20th field after it.
        started = int(stat.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return float(uptime.read().split()[0]) - started


def import_slow(*modules: str) -> None:
    """Imports modules while Python's garbage collection is paused.

    TensorFlow's import makes many objects and hardly any garbage. Searching them again and again
    took a fifth of the import's time. Afterwards they are frozen: no later search looks at them.
    """
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()


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
        # Without a timeout of its own, in which Python's sigtimedwait takes it for a signal that
        # the process was stopped and continued, or the machine asleep.
        while not self._over.wait(_POLL_SECONDS):
            if signal.sigtimedwait({signal.SIGTERM}, 0) is not None:
                self._act()

    def on_signal(self, act: Callable[[], None]) -> None:
        """Has `act` called instead, in this thread, for as long as the guard is not ended."""
        self._act = act

    def end(self) -> None:
        """Gives SIGTERM to whoever has a handler for it now."""
        self._over.set()
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
