"""Which users have taken the names of abstract unix sockets, by the kernel. See sock_diag(7)."""

from __future__ import annotations

import socket
import struct
from typing import Dict

_NETLINK_SOCK_DIAG = 4  # linux/netlink.h
_SOCK_DIAG_BY_FAMILY = 20  # linux/sock_diag.h
_NLM_F_REQUEST_DUMP = 0x301  # linux/netlink.h, as all _NLM*
_NLMSG_HEADER = struct.Struct("=IHHII")
_UNIX_DIAG_REQUEST = struct.Struct("=BBHIIIII")  # linux/unix_diag.h, as all _UNIX and _UDIAG*
_UNIX_DIAG_MESSAGE_BYTES = 16
_UNIX_DIAG_NAME, _UNIX_DIAG_UID = 0, 7
_UDIAG_SHOW_NAME_AND_UID = 0x41
_ANY_STATE = 0xFFFFFFFF
_NETLINK_SECONDS = 5.0


def owners_of_names(prefix: bytes) -> Dict[bytes, int]:
    """The users of the abstract sockets whose names begin so (without the first NUL), by name.

    Empty if the kernel does not say (before Linux 5.3).
    """
    request = _UNIX_DIAG_REQUEST.pack(
        socket.AF_UNIX, 0, 0, _ANY_STATE, 0, _UDIAG_SHOW_NAME_AND_UID, 0, 0
    )
    size = _NLMSG_HEADER.size + len(request)
    header = _NLMSG_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
    found: Dict[bytes, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(_NETLINK_SECONDS)
            kernel.send(header + request)
            while _read_owners(kernel.recv(1 << 16), b"\0" + prefix, found):
                pass
    except OSError:
        return {}
    return found


def _read_owners(answer: bytes, prefix: bytes, found: Dict[bytes, int]) -> bool:
    """Add the sockets of one datagram of the kernel. Returns whether more follow."""
    while answer:
        size, kind, _, _, _ = _NLMSG_HEADER.unpack_from(answer)
        if kind != _SOCK_DIAG_BY_FAMILY:
            return False  # the end, or an error
        fields = _attributes(answer[_NLMSG_HEADER.size + _UNIX_DIAG_MESSAGE_BYTES : size])
        name = fields.get(_UNIX_DIAG_NAME, b"")
        if name.startswith(prefix) and _UNIX_DIAG_UID in fields:
            found[name[1:]] = struct.unpack("=I", fields[_UNIX_DIAG_UID])[0]
        answer = answer[(size + 3) & ~3 :]
    return True


def _attributes(raw: bytes) -> Dict[int, bytes]:
    found: Dict[int, bytes] = {}
    while len(raw) >= 4:
        size, kind = struct.unpack_from("=HH", raw)
        found[kind] = raw[4:size]
        raw = raw[max(4, (size + 3) & ~3) :]
    return found
