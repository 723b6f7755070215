"""Joins standard input and output to the socket of a job's supervisor: `relay.py FOLDER`.

It is sent as text to where the supervisor of a submitted job is, and needs only the standard
library. It ends with either side.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

MARK = b"\ndistrun: connected\n"
"""What comes before the supervisor's messages. A scheduler may print something before it."""


def main(folder: str) -> str:
    """Relay until one side ends, with this process; return why that is not possible."""
    supervisor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.chdir(folder)  # the path of a socket must be short
        supervisor.connect("control.sock")
    except OSError as error:
        return "it does not listen: " + str(error.strerror)
    sys.stdout.buffer.write(MARK)
    sys.stdout.buffer.flush()
    answers = supervisor.fileno(), sys.stdout.buffer
    threading.Thread(target=copy, args=answers, daemon=True).start()
    copy(sys.stdin.fileno(), supervisor.makefile("wb"))
    return ""


def copy(source: int, target: BinaryIO) -> None:
    """Copy what arrives, and end this process at its end."""
    try:
        while block := os.read(source, 1 << 16):
            target.write(block)
            target.flush()
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
