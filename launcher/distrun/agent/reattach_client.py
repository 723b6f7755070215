"""What a new ssh runs on a host whose link was lost: it hands itself over to the agent there."""

from __future__ import annotations

import array
import os
import socket
import sys
import time
from typing import NoReturn

from distrun.agent.reattach import door_name, presence_name

_GUARD_SECONDS = 20.0
_LOOK_AGAIN = 0.05


def main(mark: bytes, token: str, no_agent: str, exit_no_agent: int) -> NoReturn:
    """Pass standard input and output to the agent, and wait until it has closed them.

    Args:
        mark: written before the agent's messages.
        token: the agent's.
        no_agent: printed where the agent and everything that it had started are gone.
        exit_no_agent: the exit code for that.
    """
    visitor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        visitor.connect(door_name(token))
    except OSError:
        _wait_until_gone(token)
        sys.stderr.write(no_agent + "\n")
        sys.stderr.flush()
        os._exit(exit_no_agent)
    os.write(1, mark)
    link = array.array("i", [0, 1])
    visitor.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, link)])
    os.close(0)
    os.close(1)
    visitor.recv(1)
    os._exit(0)


def _wait_until_gone(token: str) -> None:
    """A dead agent's guard ends what that left; not before it has, the agent is gone."""
    deadline = time.monotonic() + _GUARD_SECONDS
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            try:
                trial.bind(presence_name(token))
            except OSError:
                time.sleep(_LOOK_AGAIN)
            else:
                return
