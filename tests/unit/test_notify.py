"""The agent's receipt of the progress that tasks report."""

import contextlib
import itertools
import os
import socket
import struct
from typing import Any

from harness.parts.agent import NotifySocket


def test_a_task_that_reports_without_end_does_not_stop_the_agent() -> None:
    sender = struct.pack("3i", os.getpid(), os.geteuid(), os.getegid())
    credentials = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, sender)

    # A real sender is not always faster than the agent.
    class Endless(socket.socket):
        steps = itertools.count(1)

        def recvmsg(self, *_: int) -> Any:
            step = next(self.steps)
            assert step < 100_000, "the agent would never turn to its other tasks"
            return b"STEP=%d" % step, [credentials], 0, None

    with contextlib.closing(NotifySocket("worker:0", lambda _: True, print, Endless)) as notify:
        first, second = notify.receive(), notify.receive()
    assert 0 < int(first["STEP"]) <= 256 < int(second["STEP"]) <= 512


def test_words_that_are_no_values_are_left_out() -> None:
    problems: list[Any] = []
    with (
        contextlib.closing(NotifySocket("worker:0", lambda _: True, problems.append)) as notify,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        sender.sendto(b"=5 STEP=3 word NOTE= A=b=c", "\0" + notify.address[1:])
        assert notify.receive() == {"STEP": "3", "NOTE": "", "A": "b=c"}
    assert problems == []
