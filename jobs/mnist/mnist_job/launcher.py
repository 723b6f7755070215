"""What a launcher and the job tell each other: progress, and SIGTERM. Needs no TensorFlow."""

import math
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

REPORT_INTERVAL = 0.5  # seconds between two reports of steps, at least
PREEMPTED = 42  # the exit code: the default of TensorFlow's own PreemptionCheckpointHandler


def report(**values: float) -> None:
    """Sends NAME=VALUE pairs to the socket named by DISTRUN_NOTIFY, as in systemd's protocol.

    Sending never blocks and never fails the job. The next datagram makes up for a lost one.
    """
    address = os.environ.get("DISTRUN_NOTIFY", "")
    message = " ".join(f"{name}={x:.9g}" for name, x in values.items() if math.isfinite(x))
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, kind) as sender:
        # A leading @ means the abstract namespace, as in sd_notify(3).
        sender.sendto(message.encode(), "\0" + address[1:] if address[:1] == "@" else address)


class Preempted(Exception):  # noqa: N818 - not an error: the run ends early, and its state is saved
    pass


class SigtermWatch:
    """Waits for SIGTERM in a thread, which calls `act`. At first, SIGTERM ends the process.

    TensorFlow takes over SIGTERM when it joins a cluster, and a process that is blocked in
    TensorFlow runs no handler of Python. So this blocks the signal, before TensorFlow's threads.
    """

    def __init__(self) -> None:
        self.act: Callable[[], None] = lambda: os._exit(128 + signal.SIGTERM)
        self._over = threading.Event()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._thread = threading.Thread(target=self._watch, name="SIGTERM", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        # Polls, because Python's sigtimedwait with a timeout reports a signal that never came when
        # the process was stopped and continued, or when the machine slept.
        while not self._over.wait(0.1):
            if signal.sigtimedwait({signal.SIGTERM}, 0) is not None:
                self.act()

    def end(self) -> None:
        """From now on, other handlers receive SIGTERM."""
        self._over.set()
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
