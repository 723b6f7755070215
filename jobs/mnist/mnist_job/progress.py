"""Reports of progress to a launcher: datagrams, as in systemd's notify protocol."""

import math
import socket
import time
from contextlib import suppress
from typing import Any

INTERVAL = 0.5  # seconds between two reports of steps, at least
_DATAGRAMS = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK


class Progress:
    """Sends progress to the socket named by DISTRUN_NOTIFY, as in systemd's notify protocol.

    Without that variable, it does nothing. Sending never blocks and never fails the job. The next
    datagram makes up for a lost one. Each has `totals`, as `EPOCHS=3`.
    """

    def __init__(self, environ: Any, clock: Any = time.monotonic, **totals: int) -> None:
        address = environ.get("DISTRUN_NOTIFY", "")
        # A leading @ means the abstract namespace, as in sd_notify(3).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._clock, self._next, self._totals = clock, clock(), totals

    @property
    def due(self) -> bool:
        """Whether a datagram is due. Ask before computing its content."""
        return bool(self._address) and self._clock() >= self._next

    def send(self, step: int, epoch: int, loss: float, speed: float, **more: float) -> None:
        """Sends one datagram. `step` counts over all epochs, `epoch` from 1; `more` are metrics.

        The loss is that of the step's global batch, or at an epoch's end the epoch's mean. The
        speed is that of all workers together.
        """
        self._next = self._clock() + INTERVAL
        counts = {"STEP": step, "EPOCH": epoch, **self._totals}
        values = {**counts, "LOSS": loss, **more, "EXAMPLES_PER_SEC": speed}
        self.report(" ".join(f"{n}={v:.9g}" for n, v in values.items() if math.isfinite(v)))

    def report(self, message: str) -> None:
        """Sends `message`, such as `SAVING=1`. A bad address, or none, is no error of the job."""
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, _DATAGRAMS) as sender:
            sender.sendto(message.encode(), self._address)
