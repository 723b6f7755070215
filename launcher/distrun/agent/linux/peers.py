"""Which user and process are at the other end of a unix socket, as the kernel says. See unix(7)."""

from __future__ import annotations

import os
import socket
import struct
from typing import List, Tuple

from distrun.agent.structs import Struct

_UCRED = struct.Struct("3i")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_UCRED.size)
"""The room for credentials and nothing else: descriptors that a stranger sends are not received."""


class Peer(Struct):
    """`pid` is 0 if the process is in a process namespace that this one does not see."""

    pid: int
    uid: int

    @property
    def is_same_user(self) -> bool:
        return self.uid == os.geteuid()


def of_connection(connection: socket.socket) -> Peer:
    """The process that listens, or that has connected, at the other end of a stream socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return Peer(*_UCRED.unpack(raw)[:2])


def receive(receiver: socket.socket, size: int) -> Tuple[bytes, Peer, bool]:
    """A datagram, its sender, and whether it was cut. Raises BlockingIOError: there is none.

    SO_PASSCRED of the socket must be set before it has a name.
    """
    content, ancillary, flags, _ = receiver.recvmsg(size, _ANCILLARY_BYTES)
    found: List[Peer] = [
        Peer(*_UCRED.unpack(raw)[:2])
        for level, kind, raw in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
    ]
    return content, found[0] if found else Peer(0, -1), bool(flags & socket.MSG_TRUNC)
