"""Reattachment to a running agent whose link was lost: a new connection passes its descriptors.

The agent listens on an abstract unix socket: no death leaves a file, no path is too long, and no
file system without sockets is in the way. The socket's name is random, but every user of the host
can read it in /proc/net/unix, and take it once the agent is dead. So each side asks the kernel for
the other's user before anything is passed. A client (a new ssh runs :func:`main` on the host)
passes its standard input and output to the agent, and then waits until the agent closes them.

The agent, its guard and the process that stands by for it also share a second abstract socket,
which does not listen. When its name is free again, all are gone: see :mod:`.orphans`.
"""

from __future__ import annotations

import array
import os
import socket
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

from distrun.agent.linux import peers


def _listener_name(token: str) -> str:
    return "\0distrun-agent-" + token


def liveness_name(token: str) -> str:
    return "\0distrun-guard-" + token


class LivenessSocket:
    """A name that is bound as long as agent, guard or stand-by live. Create it before the forks."""

    def __init__(self) -> None:
        self.token = os.urandom(12).hex()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(liveness_name(self.token))


class ReattachListener:
    """The agent's listening socket.

    `token`: of the :class:`LivenessSocket`; the supervisor names it to reattach.
    """

    def __init__(self, token: str, open_channel: Callable[[int, int], Any]) -> None:
        self.token = token
        self.open_channel = open_channel
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(_listener_name(token))
        self._socket.listen(8)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> Optional[socket.socket]:
        """A client that has connected; None unless it belongs to the same user."""
        try:
            client, _ = self._socket.accept()
        except OSError:
            return None
        if not peers.of_connection(client).is_same_user:
            client.close()
            return None
        client.setblocking(False)
        return client


def receive_descriptors(client: socket.socket) -> Optional[Tuple[int, int]]:
    """The descriptors to read from and to write to that a client passes; None without both."""
    two = array.array("i", [0, 0])
    try:
        _, ancillary, _, _ = client.recvmsg(
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


def main(mark: bytes, token: str, job_id: str, attempts: Dict[str, int]) -> NoReturn:
    """Pass standard input and output to the agent, and wait until it closes them.

    `mark` is written before the agent's messages. If the agent is gone, these attempts are ended.
    """
    # Imported here because no agent needs it for this.
    from distrun.agent import orphans

    client = connect(token)
    if client is None:
        left = orphans.wait_for_guard(liveness_name(token)) or orphans.end(job_id, attempts)
        orphans.end_login(left)
    orphans.resume(liveness_name(token))
    os.write(1, mark)
    link = array.array("i", [0, 1])
    client.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, link)])
    os.close(0)
    os.close(1)
    client.recv(1)
    os._exit(0)


def connect(token: str) -> Optional[socket.socket]:
    """A connection to the agent; None if it is gone, even if another user has taken its name."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.connect(_listener_name(token))
    except OSError:
        return None
    return client if peers.of_connection(client).is_same_user else None
