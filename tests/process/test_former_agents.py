"""What an earlier supervisor has left on a host is ended in a limited time, whatever it sends."""

from __future__ import annotations

import fcntl
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distrun.agent import protocol
from distrun.agent.linux.job_processes import Traces
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code, Report
from distrun.agent.protocol.channel import encode
from distrun.agent.protocol.framing import HEADER, MARK
from distrun.supervisor.hosts import bootstrap
from distrun.supervisor.hosts.former_agents import FormerAgent
from distrun.supervisor.hosts.link import Links
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.reach import Connection, Login
from distrun.supervisor.hosts.ssh import SshReach, open_connection
from harness.values import not_none

LOG = "worker-0.log"
LIMIT = 1_000_000


class Sending(SshReach):
    """Leads to a hostile agent, which sends what the test has it send, and never ends."""

    def __init__(self) -> None:
        self._host = "h1"
        self.connect_timeout = 5.0

    def open(self, job_id: str, login: Login) -> Connection:
        connection = open_connection(["sleep", "1000"], job_id, Code.SSH_NOT_STARTED)
        reader, self._writer = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 19)
        os.set_blocking(reader, False)
        os.close(connection.channel.reader)
        connection.channel.reader = reader
        os.write(self._writer, connection.mark)
        self._frames = 0
        return connection

    def send(self, report: Report) -> None:
        frame = encode(report)
        fields = HEADER.pack(MARK, self._frames, len(frame), zlib.crc32(frame))
        self._frames += 1
        os.write(self._writer, fields + struct.pack(">I", zlib.crc32(fields)) + frame)


class Clearing:
    """A host that is cleared in simulated time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.copies = folder / "copies"
        self.copies.mkdir()
        self.loop = Loop()
        self.links = Links(self.loop, "job-1")
        self.reach = Sending()
        mirror = LogMirror(self.copies, LIMIT)
        mirror.resume(LOG, 0)
        self.agent = FormerAgent(
            *("h1", self.reach, self.links, mirror),
            token="0" * 32,
            traces=Traces("", "", {}, ""),
            folder=str(folder),
            lease=10.0,
        )
        self.is_finished = False
        self.agent.clear(self.on_end, lambda _agent, _cause: None)

    def on_end(self, _: FormerAgent) -> None:
        self.is_finished = True

    def advance(self, seconds: float, report: Callable[[], Report]) -> None:
        """Let time pass, and have the host send a report every 5 s while there is a login."""
        end = self.now + seconds
        while self.now < end and not self.is_finished:
            self.step()
            if self.agent.link.connection is not None:
                self.reach.send(report())
                self.step(1.0)
            self.now += 5.0

    def step(self, seconds: float = 0.0) -> None:
        """Handle what is due, and wait at most so long for messages."""
        if self.agent.link.connection is None:
            self.loop.turn(0.0)  # a login that is due gets a slot
        self.loop.turn(seconds)
        self.links.check_exits()

    def close(self) -> None:
        self.agent.give_up()
        self.loop.close()


@pytest.fixture
def clearing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clearing]:
    made = Clearing(tmp_path, monkeypatch)
    yield made
    made.close()


def log_parts(size: int) -> Callable[[], Report]:
    offset = -size

    def part() -> Report:
        nonlocal offset
        offset += size
        return protocol.LogData(LOG, offset, b"x" * size)

    return part


def test_a_host_that_sends_no_logs_is_not_waited_for(clearing: Clearing) -> None:
    clearing.advance(150, lambda: protocol.Heartbeat(1))
    assert clearing.is_finished
    assert not_none(clearing.agent.failure).code is Code.FORMER_LEASE_OVER


def test_a_host_that_sends_its_logs_too_slowly_is_not_waited_for(clearing: Clearing) -> None:
    clearing.advance(600, log_parts(1000))
    assert clearing.is_finished
    assert not_none(clearing.agent.lost_logs).within == (Cause(Code.LOGS_TOO_SLOW),)


def test_a_host_that_sends_them_fast_enough_is_waited_for_and_the_limit_holds(
    clearing: Clearing,
) -> None:
    """16 KiB/s are."""
    clearing.advance(600, log_parts(100_000))
    assert not clearing.is_finished
    copy = (clearing.copies / LOG).stat()
    assert copy.st_size == 12_000_000
    assert copy.st_blocks * 512 < LIMIT + 200_000


def test_a_login_names_the_processes_that_do_not_end() -> None:
    said = f"echo 'Welcome! {bootstrap.TASKS_ALIVE} 12 345' >&2"
    connection = open_connection(["sh", "-c", said], "job-1", Code.SSH_NOT_STARTED)
    connection.process.wait()
    connection.read_stderr()
    alive = connection.tasks_alive(bootstrap.EXIT_TASKS_ALIVE, "h1")
    assert not_none(alive).text == "12 345"
    assert connection.tasks_alive(1, "h1") is None
    connection.close()
