"""Reports of progress to a launcher: datagrams, as in systemd's notify protocol."""

import math
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

INTERVAL = 0.5
"""Seconds between two datagrams, at least."""
_DATAGRAMS = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK


class Progress:
    """Sends progress to the socket named by DISTRUN_NOTIFY, as in systemd's notify protocol.

    Without that variable, it does nothing. Sending never blocks and never fails the job. The next
    datagram makes up for a lost one.
    """

    def __init__(self, environ: Mapping[str, str], clock: Any = time.monotonic) -> None:
        address = environ.get("DISTRUN_NOTIFY", "")
        # A leading @ means the abstract namespace, as in sd_notify(3).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._clock, self._next = clock, clock()

    @property
    def due(self) -> bool:
        """Whether a datagram is due. Ask before computing its content."""
        return bool(self._address) and self._clock() >= self._next

    def send(self, step: int, epoch: int, loss: float, examples_per_sec: float) -> None:
        """Sends one datagram.

        `step` counts over all epochs, `epoch` from 1. The loss is the mean over the images of that
        step's global batch, and the speed that of all workers together.
        """
        if not self._address:
            return
        self._next = self._clock() + INTERVAL
        numbers = {"LOSS": loss, "EXAMPLES_PER_SEC": examples_per_sec}
        fields = [f"{name}={value:.6g}" for name, value in numbers.items() if math.isfinite(value)]
        message = " ".join([f"STEP={step}", f"EPOCH={epoch}", *fields])
        # ValueError: the address has a zero byte. Both errors are the launcher's.
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, _DATAGRAMS) as sender:
            sender.sendto(message.encode(), self._address)
