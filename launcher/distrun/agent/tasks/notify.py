"""Progress that tasks report: `STEP=120 EPOCH=1` datagrams, as in systemd's notify protocol."""

from __future__ import annotations

import os
import socket
from typing import Dict, Type

_MAX_DATAGRAM = 4096
_MAX_KEYS = 32
_MAX_DATAGRAMS = 256


class NotifySocket:
    """The datagram socket that one task's DISTRUN_NOTIFY names.

    Its name is abstract (a leading `@`), so that no death leaves a file.
    """

    def __init__(self, task: str, kind: Type[socket.socket] = socket.socket) -> None:
        token = os.urandom(9).hex()
        self.address = "@distrun-notify-{}-{}".format(task, token)
        self._socket = kind(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + self.address[1:])
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Dict[str, str]:
        """The values received since the last call; later values replace earlier ones.

        Reads at most this much from one task per turn, so that a busy task cannot starve the
        others.
        """
        values: Dict[str, str] = {}
        for _ in range(_MAX_DATAGRAMS):
            try:
                datagram = self._socket.recv(_MAX_DATAGRAM)
            except BlockingIOError:
                break
            for word in datagram.decode("utf-8", "replace").split()[:_MAX_KEYS]:
                key, equals, value = word.partition("=")
                if equals and key:
                    values[key] = value
        return values

    def close(self) -> None:
        self._socket.close()
