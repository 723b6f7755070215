"""The agent's receipt of the progress that tasks report."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from distrun.agent.protocol import Code
from distrun.agent.tasks.notify import MOST_KEYS, NotifySocket

CREDENTIALS = (
    socket.SOL_SOCKET,
    socket.SCM_CREDENTIALS,
    struct.pack("3i", os.getpid(), os.geteuid(), os.getegid()),
)


@pytest.fixture
def notify() -> Iterator[NotifySocket]:
    with contextlib.closing(NotifySocket("worker:0", lambda pid: pid == os.getpid())) as notify:
        yield notify


@pytest.fixture
def sender(notify: NotifySocket) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect("\0" + notify.address[1:])
        yield sender


def test_a_task_that_reports_without_end_does_not_stop_the_agent() -> None:
    # A real sender is not always faster than the agent.
    class Endless(socket.socket):
        steps = itertools.count(1)

        def recvmsg(self, *_: int) -> Any:
            step = next(self.steps)
            assert step < 100_000, "the agent would never turn to its other tasks"
            return b"STEP=%d" % step, [CREDENTIALS], 0, None

    with contextlib.closing(NotifySocket("worker:0", lambda _: True, Endless)) as notify:
        first, second = notify.receive(), notify.receive()
    assert 0 < int(first["STEP"]) <= 256 < int(second["STEP"]) <= 512


@pytest.mark.parametrize(
    "datagram",
    [
        b" ".join(b"K%d=1" % number for number in range(MOST_KEYS + 1)),
        b"A=1 B=" + b"x" * 300,
        b"A=1 " * 2000,
    ],
    ids=["keys", "a long value", "bytes"],
)
def test_a_datagram_is_bounded(
    notify: NotifySocket, sender: socket.socket, datagram: bytes
) -> None:
    sender.send(datagram)
    values = notify.receive()
    assert 0 < len(values) <= MOST_KEYS
    assert max(map(len, values.values())) <= 256
    (problem,) = notify.take_problems()
    assert problem.code is Code.PROGRESS_EXCESSIVE
