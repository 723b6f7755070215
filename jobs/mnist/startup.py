"""The start of the job: its duration, SIGTERM during it, slow imports. Needs no TensorFlow."""

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
    """Seconds since this process was started, to a hundredth of a second. Source: proc(5)."""
    with open("/proc/self/stat", "rb") as stat, open("/proc/uptime", "rb") as uptime:
        # The name in brackets can contain anything. The start is the 20th field after it.
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
    # Nothing is trained yet, so there is nothing to save.
    os._exit(128 + signal.SIGTERM)


class StartUpGuard:
    """Handles SIGTERM before training starts.

    TensorFlow takes over SIGTERM when it joins a cluster, and drops signals until the job's handler
    is installed. So this class blocks the signal before numpy or TensorFlow start a thread, and its
    own thread waits for it. (While TensorFlow waits for its peers, it holds the interpreter's lock:
    then the signal is handled when they have come.)
    """

    def __init__(self) -> None:
        self._act: Callable[[], None] = _exit
        self._over = threading.Event()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._thread = threading.Thread(target=self._watch, name="start-up SIGTERM", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        # Polls, because Python's sigtimedwait with a timeout reports a signal that never came when
        # the process was stopped and continued, or when the machine slept.
        while not self._over.wait(_POLL_SECONDS):
            if signal.sigtimedwait({signal.SIGTERM}, 0) is not None:
                self._act()

    def on_signal(self, act: Callable[[], None]) -> None:
        """Calls `act` on SIGTERM instead of exiting, in this thread, until the guard is ended."""
        self._act = act

    def end(self) -> None:
        """Stops handling SIGTERM: from now on, other handlers receive it."""
        self._over.set()
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
