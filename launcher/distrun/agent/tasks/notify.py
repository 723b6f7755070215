"""What tasks say of themselves: `STEP=120 EPOCH=1` datagrams, as in systemd's notify protocol."""

from __future__ import annotations

import os
import socket
from typing import Dict

_LARGEST = 4096
_MOST_KEYS = 32
_MOST_AT_ONCE = 256


class NotifySocket:
    """The datagram socket that one task's DISTRUN_NOTIFY names.

    Its name is in the abstract space (a leading `@`), so no file is left by any death.
    """

    def __init__(self, task: str) -> None:
        token = os.urandom(9).hex()
        self.address = "@distrun-notify-{}-{}".format(task, token)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + self.address[1:])
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Dict[str, str]:
        """What has come since the last call, later values over earlier ones.

        Of a task that never stops sending, the first part: the agent has others to look after.
        """
        values: Dict[str, str] = {}
        for _ in range(_MOST_AT_ONCE):
            try:
                datagram = self._socket.recv(_LARGEST)
            except BlockingIOError:
                break
            for word in datagram.decode("utf-8", "replace").split()[:_MOST_KEYS]:
                key, equals, value = word.partition("=")
                if equals and key:
                    values[key] = value
        return values

    def close(self) -> None:
        self._socket.close()
