"""Reports progress to a launcher in datagrams, like systemd's notify protocol."""

from __future__ import annotations

import contextlib
import math
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INTERVAL = 0.5
"""Seconds between two datagrams, at least."""


class Progress:
    """Sends progress to the socket named by DISTRUN_NOTIFY; does nothing without it.

    Sending never blocks and never fails the job. The next datagram makes up for a lost one.
    """

    def __init__(
        self, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        address = environ.get("DISTRUN_NOTIFY", "")
        # A leading @ means the abstract namespace, as in sd_notify(3).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._clock = clock
        self._next = clock()
        self._socket: socket.socket | None = None
        if address:
            with contextlib.suppress(OSError):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)

    @property
    def due(self) -> bool:
        """Whether a datagram is due. Ask before computing its content."""
        return self._socket is not None and self._clock() >= self._next

    def send(self, *, step: int, epoch: int, loss: float, examples_per_sec: float) -> None:
        """Sends one datagram.

        Args:
            step: finished steps, counted over all epochs.
            epoch: the current one, from 1.
            loss: the mean over a recent global batch, or, at the end of an epoch, over the epoch.
            examples_per_sec: images per second of all workers together.
        """
        if self._socket is None:
            return
        self._next = self._clock() + INTERVAL
        fields = [f"STEP={step}", f"EPOCH={epoch}"]
        if math.isfinite(loss):
            fields.append(f"LOSS={loss:.6g}")
        if math.isfinite(examples_per_sec):
            fields.append(f"EXAMPLES_PER_SEC={examples_per_sec:.6g}")
        # ValueError: the address has a zero byte. Both errors are the launcher's.
        with contextlib.suppress(OSError, ValueError):
            self._socket.sendto(" ".join(fields).encode(), self._address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
