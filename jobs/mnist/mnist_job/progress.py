"""Reports of progress to a launcher: datagrams, as in systemd's notify protocol."""

import math
import os
import socket
from contextlib import suppress

INTERVAL = 0.5  # seconds between two reports of steps, at least


def report(**values: float) -> None:
    """Sends NAME=VALUE pairs to the socket named by DISTRUN_NOTIFY, if there is one.

    Sending never blocks and never fails the job. The next datagram makes up for a lost one.
    """
    address = os.environ.get("DISTRUN_NOTIFY", "")
    message = " ".join(f"{name}={x:.9g}" for name, x in values.items() if math.isfinite(x))
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, kind) as sender:
        # A leading @ means the abstract namespace, as in sd_notify(3).
        sender.sendto(message.encode(), "\0" + address[1:] if address[:1] == "@" else address)
