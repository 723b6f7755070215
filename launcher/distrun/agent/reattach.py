"""The way back to an agent whose link was lost: a new ssh, a knock, and the link is handed over.

The agent listens on a unix socket in the abstract space: no file is left by any death, and no
path is too long. Its name is random, and only processes of the same user are let in. What
knocks (:mod:`.reattach_client`) hands over its standard input and output, and then only waits
until the agent lets go of them.

A second name, bound by agent and guard together and never listened on, is free again when both
are gone, which is when nothing of their tasks is left.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from typing import List, Optional, Tuple

_CREDENTIALS = struct.Struct("3i")


def door_name(token: str) -> str:
    """What the agent with that token listens on."""
    return "\0distrun-agent-" + token


def presence_name(token: str) -> str:
    """What is bound as long as that agent or its guard lives."""
    return "\0distrun-guard-" + token


class Presence:
    """Shows that agent or guard live. To be made before they part."""

    def __init__(self) -> None:
        self.token = os.urandom(12).hex()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(presence_name(self.token))


class Door:
    """Where the agent waits for those who knock."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(door_name(token))
        self._socket.listen(8)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> Optional[socket.socket]:
        """Who knocks, if it is the same user."""
        try:
            visitor, _ = self._socket.accept()
        except OSError:
            return None
        raw = visitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[1] != os.getuid():
            visitor.close()
            return None
        visitor.setblocking(False)
        return visitor


def take_over(visitor: socket.socket) -> Optional[Tuple[int, int]]:
    """The two descriptors that a visitor hands over: where to read and where to write."""
    two = array.array("i", [0, 0])
    try:
        _, ancillary, _, _ = visitor.recvmsg(
            1, socket.CMSG_SPACE(len(two) * two.itemsize), socket.MSG_CMSG_CLOEXEC
        )
    except OSError:
        return None
    found: List[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            some = array.array("i")
            some.frombytes(content[: len(content) - len(content) % some.itemsize])
            found.extend(some)
    if len(found) == 2:
        return found[0], found[1]
    for descriptor in found:
        os.close(descriptor)
    return None
