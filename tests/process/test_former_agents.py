"""What an earlier supervisor has left on a host is ended in a limited time, whatever it sends."""

from __future__ import annotations

import fcntl
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distrun.agent import protocol
from distrun.agent.linux.job_processes import Traces
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code, Report
from distrun.agent.protocol.channel import encode
from distrun.agent.protocol.framing import HEADER, MARK
from distrun.supervisor.hosts import bootstrap, former_agents
from distrun.supervisor.hosts.former_agents import FormerAgent
from distrun.supervisor.hosts.link import Links
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.reach import Connection, Login
from distrun.supervisor.hosts.ssh import SshReach, open_connection
from distrun.words.causes import cause_text
from harness.values import not_none

LOG = "worker-0.log"
LIMIT = 1_000_000


class LocalReach(SshReach):
    """Runs what it is given in a shell on this machine, as ssh does on a host."""

    def __init__(self) -> None:
        self._host = "h1"
        self.connect_timeout = 5.0

    def open(self, job_id: str, login: Login) -> Connection:
        command = ["env", "-u", "DISTRUN_JOB_ID", "sh", "-c", bootstrap.COMMAND]
        connection = open_connection(command, job_id, Code.SSH_NOT_STARTED)
        connection.begin(login)
        return connection


class Sending(LocalReach):
    """Leads to a hostile agent, which sends what the test has it send, and never ends."""

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
    """A host that is cleared, by a simulated clock or the real one."""

    def __init__(
        self,
        folder: Path,
        reach: LocalReach,
        *,
        lease: float | None,
        limit: int | None = None,
    ) -> None:
        self.host_folder, self.copies = folder / "host", folder / "copies"
        for each in (self.host_folder, self.copies):
            each.mkdir()
        self.loop = Loop()
        self.links = Links(self.loop, "job-1")
        mirror = LogMirror(self.copies, limit)
        mirror.resume(LOG, 0)
        self.agent = FormerAgent(
            *("h1", reach, self.links, mirror),
            token="0" * 32,
            traces=Traces("", "", {}, ""),
            folder=str(self.host_folder),
            lease=lease,
        )
        self.is_finished = False
        self.agent.clear(self.on_end)

    def on_end(self, _: FormerAgent) -> None:
        self.is_finished = True

    def step(self, seconds: float = 0.0) -> None:
        """Handle what is due, and wait at most so long for messages."""
        if self.agent.link.connection is None:
            self.loop.turn(0.0)  # a login that is due gets a slot
        self.loop.turn(seconds)
        self.links.check_exits()

    def close(self) -> None:
        self.agent.give_up()
        self.loop.close()


Make = Callable[..., Clearing]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Clearing] = []

    def clearing(reach: LocalReach, **values: Any) -> Clearing:
        made.append(Clearing(tmp_path, reach, **values))
        return made[-1]

    yield clearing
    for each in made:
        each.close()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


def advance(clearing: Clearing, clock: Clock, seconds: float, report: Callable[[], Report]) -> None:
    """Let time pass, and have the host send a report every 5 s while there is a login."""
    reach = clearing.agent.reach
    assert isinstance(reach, Sending)
    end = clock.now + seconds
    while clock.now < end and not clearing.is_finished:
        clearing.step()
        if clearing.agent.link.connection is not None:
            reach.send(report())
            clearing.step(1.0)
        clock.now += 5.0


def log_parts(size: int) -> Callable[[], Report]:
    offset = -size

    def part() -> Report:
        nonlocal offset
        offset += size
        return protocol.LogData(LOG, offset, b"x" * size)

    return part


@pytest.mark.parametrize(
    ("report", "seconds", "lost"),
    [
        (lambda: protocol.Heartbeat(1), 150, None),
        (lambda: protocol.LogData("../plan.json", 0, b"x"), 150, None),
        (log_parts(1000), 600, Code.LOGS_TOO_SLOW),
    ],
    ids=["heartbeats", "parts of other files", "slow logs"],
)
def test_a_host_that_does_not_send_its_logs_is_not_waited_for(
    make: Make, clock: Clock, report: Callable[[], Report], seconds: float, lost: Code | None
) -> None:
    clearing = make(Sending(), lease=10.0)
    advance(clearing, clock, seconds, report)
    assert clearing.is_finished
    assert clearing.agent.error is None
    if lost:
        assert not_none(clearing.agent.lost_logs).within == (Cause(lost),)
    else:
        assert not_none(clearing.agent.failure).code is Code.FORMER_LEASE_OVER


def test_a_host_that_sends_its_logs_fast_enough_is_waited_for(make: Make, clock: Clock) -> None:
    """16 KiB/s are."""
    clearing = make(Sending(), lease=10.0)
    advance(clearing, clock, 600, log_parts(100_000))
    assert not clearing.is_finished
    assert sum(each.stat().st_size for each in clearing.copies.glob("*.log")) == 12_000_000


def test_a_host_that_sends_logs_without_end_is_waited_for_two_hours(
    make: Make, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(former_agents, "LONGEST_SHUTDOWN", 200.0)
    clearing = make(Sending(), lease=10.0)
    advance(clearing, clock, 190, log_parts(120_000))
    assert not clearing.is_finished
    advance(clearing, clock, 30, log_parts(120_000))
    assert not_none(clearing.agent.lost_logs).within == (Cause(Code.LOGS_TOO_SLOW),)


# What a host sends in real time ------------------------------------------------------------


def test_the_hole_of_a_limited_log_is_not_sent(make: Make) -> None:
    clearing = make(LocalReach(), lease=10.0, limit=LIMIT)
    lines = b"".join(b"%08d\n" % number for number in range(200_000))
    log, copy = clearing.host_folder / LOG, clearing.copies / LOG
    with log.open("wb") as file:
        file.truncate(10 << 30)
        file.seek(0, os.SEEK_END)
        file.write(lines)
    while not clearing.is_finished:
        clearing.step(0.05)
    assert clearing.agent.failure is None
    assert copy.stat().st_size == (10 << 30) + len(lines)
    assert copy.stat().st_blocks * 512 < LIMIT + 200_000
    with copy.open("rb") as file:
        file.seek(-900_000, os.SEEK_END)
        assert lines.endswith(file.read())
    assert not log.exists()


def test_a_hostile_host_cannot_send_more_than_the_limit(make: Make) -> None:
    clearing = make(Sending(), lease=10.0, limit=LIMIT)
    reach = clearing.agent.reach
    assert isinstance(reach, Sending)
    clearing.step()
    for number in range(200):
        reach.send(protocol.LogData(LOG, number * 50_000, b"x" * 50_000))
        clearing.step(1.0)
    copy = (clearing.copies / LOG).stat()
    assert copy.st_size == 10_000_000
    assert copy.st_blocks * 512 < LIMIT + 200_000


def test_tasks_that_do_not_end_are_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"printf 'Welcome! ' >&2; echo '{bootstrap.TASKS_ALIVE} 12 345' >&2"
    login = f"cat >/dev/null & {said}; exit {bootstrap.EXIT_TASKS_ALIVE}"
    monkeypatch.setattr(bootstrap, "COMMAND", login)
    clearing = make(LocalReach(), lease=0.5)
    while not clearing.is_finished:
        clearing.step(0.05)
    told = cause_text(not_none(clearing.agent.error))
    assert told == "processes of earlier attempts do not end on h1: 12 345"
