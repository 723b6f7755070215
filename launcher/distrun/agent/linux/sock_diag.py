"""The sockets of this machine: who listens, and who has taken a name. See sock_diag(7)."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

_NETLINK_SOCK_DIAG = 4  # linux/netlink.h
_SOCK_DIAG_BY_FAMILY = 20  # linux/sock_diag.h
_NLM_F_REQUEST_DUMP = 0x301  # linux/netlink.h, as all _NLM*
_NLMSG_HEADER = struct.Struct("=IHHII")
_UNIX_DIAG_REQUEST = struct.Struct("=BBHIIIII")  # linux/unix_diag.h, as all _UNIX and _UDIAG*
_UNIX_DIAG_MESSAGE_BYTES = 16
_UNIX_DIAG_NAME, _UNIX_DIAG_UID = 0, 7
_UDIAG_SHOW_NAME_AND_UID = 0x41
_ANY_STATE = 0xFFFFFFFF
_INET_DIAG_REQUEST = struct.Struct("=BBBxI48x")  # linux/inet_diag.h, as all _INET*
_INET_DIAG_MESSAGE_BYTES, _INET_DIAG_INFO = 72, 2
_INET_DIAG_PORTS, _INET_DIAG_ADDRESS, _INET_DIAG_UID_AND_INODE = 4, 8, 64
_TCP_INFO = struct.Struct("=68xI28xI16xQQ24xQ8xQ")  # linux/tcp.h
"""Round trip, packets sent again, bytes acknowledged and received, rate of delivery, time limited
by a receiver."""
_ESTABLISHED, _TIME_WAIT, _LISTENING = 1, 6, 10  # net/tcp_states.h
_NETLINK_SECONDS = 5.0


def listening_ports() -> Dict[str, Tuple[int, int, str]]:
    """Port, user and address of each TCP socket that listens, by its name in /proc/PID/fd.

    /proc/net/tcp has them, too, but to read it takes 50 times as long.
    """
    found = map(_parts, _inet_sockets(_LISTENING))
    return {name: (port, uid, address) for port, _, name, uid, address in found}


def connections(are_closed: bool = False) -> List[Tuple[int, int, str]]:
    """Local port, remote port and name in /proc/PID/fd of each TCP connection.

    `are_closed`: of those that were closed in the last minute instead.
    """
    found = map(_parts, _inet_sockets(_TIME_WAIT if are_closed else _ESTABLISHED))
    return [(local, remote, name) for local, remote, name, *_ in found]


class Traffic(NamedTuple):
    """What the kernel has counted of a TCP connection: see tcp(7). Times in microseconds."""

    local_port: int
    remote_port: int
    sent_bytes: int
    received_bytes: int
    resent_packets: int
    limited: int
    """For how long its receiver was not ready for more."""
    round_trip: int
    delivery: int
    """Bytes a second, while there was something to send."""


def traffic() -> Dict[str, Traffic]:
    """The counters of each TCP connection, by its name in /proc/PID/fd."""
    found = {}
    for answer in _inet_sockets(_ESTABLISHED, 1 << (_INET_DIAG_INFO - 1)):
        info = _attributes(answer[_INET_DIAG_MESSAGE_BYTES:]).get(_INET_DIAG_INFO, b"")
        if len(info) >= _TCP_INFO.size:  # before Linux 4.9 it has less
            trip, resent, sent, received, rate, limited = _TCP_INFO.unpack_from(info)
            local, remote, name, *_ = _parts(answer)
            found[name] = Traffic(local, remote, sent, received, resent, limited, trip, rate)
    return found


def _inet_sockets(state: int, attributes: int = 0) -> Iterator[bytes]:
    for family in (socket.AF_INET, socket.AF_INET6):
        request = _INET_DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, attributes, 1 << state)
        with contextlib.suppress(OSError):
            yield from _dump(request)


def _parts(answer: bytes) -> Tuple[int, int, str, int, str]:
    """Local port, remote port, name, user and local address of a TCP socket."""
    local, remote = struct.unpack_from(">HH", answer, _INET_DIAG_PORTS)
    uid, inode = struct.unpack_from("=II", answer, _INET_DIAG_UID_AND_INODE)
    size = 4 if answer[0] == socket.AF_INET else 16
    address = socket.inet_ntop(answer[0], answer[_INET_DIAG_ADDRESS:][:size])
    return local, remote, "socket:[{}]".format(inode), uid, address


def sockets_of(pid: "int | str") -> Set[str]:
    """The names of a process's sockets; empty if it has ended, or belongs to somebody else."""
    folder = "/proc/{}/fd/".format(pid)
    found: Set[str] = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(folder):
            with contextlib.suppress(OSError):  # it has been closed
                found.add(os.readlink(folder + descriptor))
    return found


def owners_of_names(prefix: bytes) -> Dict[bytes, int]:
    """The users of the abstract sockets whose names begin so; none if the kernel does not say."""
    request = _UNIX_DIAG_REQUEST.pack(
        socket.AF_UNIX, 0, 0, _ANY_STATE, 0, _UDIAG_SHOW_NAME_AND_UID, 0, 0
    )
    found: Dict[bytes, int] = {}
    try:
        for answer in _dump(request):
            fields = _attributes(answer[_UNIX_DIAG_MESSAGE_BYTES:])
            name = fields.get(_UNIX_DIAG_NAME, b"")
            if name.startswith(b"\0" + prefix) and _UNIX_DIAG_UID in fields:
                found[name[1:]] = struct.unpack("=I", fields[_UNIX_DIAG_UID])[0]
    except OSError:
        return {}
    return found


def _dump(request: bytes) -> Iterator[bytes]:
    """The kernel's answers to a request, one for each socket, without headers. Raises OSError."""
    size = _NLMSG_HEADER.size + len(request)
    header = _NLMSG_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_NETLINK_SECONDS)
        kernel.send(header + request)
        while True:
            answers = kernel.recv(1 << 16)
            while answers:
                size, kind, _, _, _ = _NLMSG_HEADER.unpack_from(answers)
                if kind != _SOCK_DIAG_BY_FAMILY:
                    return  # the end, or an error
                yield answers[_NLMSG_HEADER.size : size]
                answers = answers[(size + 3) & ~3 :]


def _attributes(raw: bytes) -> Dict[int, bytes]:
    found: Dict[int, bytes] = {}
    while len(raw) >= 4:
        size, kind = struct.unpack_from("=HH", raw)
        found[kind] = raw[4:size]
        raw = raw[max(4, (size + 3) & ~3) :]
    return found
