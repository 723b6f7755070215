"""Processes that have failed, from the kernel: see connector in the kernel's pages.

A program's own children are reaped by it. The kernel reports how they ended to root, and since
Linux 6.6 to everybody, but not in a container.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
from typing import Iterator, Optional, Tuple

_NETLINK_CONNECTOR, _PROC_GROUP, _LISTEN = 11, 1, 1  # linux/netlink.h, linux/cn_proc.h
_SO_ATTACH_FILTER = 26
_HEADER = struct.Struct("=IHHII")
_CONNECTOR = struct.Struct("=IIIIHHI")
_EXIT = struct.Struct("=6I")  # pid, tgid, exit code, exit signal, parent's pid and tgid
_EXIT_AT, _CODE_AT, _KIND_AT = 52, 60, 36
_MOST_READ = 256
_FILTER = (  # no exits by 0; the kernel loads words in network order
    (0x20, 0, 0, _KIND_AT),
    (0x15, 0, 3, 0x00000080),
    (0x28, 0, 0, _CODE_AT),
    (0x15, 1, 0, 0),
    (0x06, 0, 0, 0xFFFF),
    (0x06, 0, 0, 0),
)


def open_socket() -> Optional[socket.socket]:
    """A socket that :func:`read` reads; None if the kernel refuses it to this process."""
    if sys.byteorder != "little":
        return None
    code = b"".join(struct.pack("=HBBI", *each) for each in _FILTER)
    program = ctypes.create_string_buffer(code, len(code))
    filter_program = struct.pack("@HP", len(_FILTER), ctypes.addressof(program))
    try:
        kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR)
    except OSError:
        return None
    try:
        kernel.setblocking(False)
        kernel.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_program)
        kernel.bind((0, _PROC_GROUP))
        request = _CONNECTOR.pack(1, 1, 0, 0, 4, 0, _LISTEN)
        kernel.send(_HEADER.pack(_HEADER.size + len(request), 3, 0, 0, os.getpid()) + request)
    except OSError:
        kernel.close()
        return None
    return kernel


def read(kernel: socket.socket) -> Iterator[Tuple[int, int, int]]:
    """Yield each process that has failed since: its id, status as of waitpid(2), and parent."""
    with contextlib.suppress(OSError):  # no more, or too many
        for _ in range(_MOST_READ):
            message = kernel.recv(4096)
            if len(message) >= _EXIT_AT + _EXIT.size:
                pid, group, code, _, _, parent = _EXIT.unpack_from(message, _EXIT_AT)
                if pid == group:
                    yield pid, code, parent
