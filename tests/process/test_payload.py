"""The agent as it goes over ssh is small and whole; what an earlier one has left is ended."""

import itertools
import os
import shlex
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.command import write_program
from harness.parts.agent import Loop, protocol
from harness.parts.channel import encode
from harness.parts.hosts import FormerAgent, Links, LogMirror, bootstrap, open_connection
from harness.parts.linux import Traces, job_processes
from harness.parts.protocol import Cause, Code, Report
from harness.processes import captured
from harness.pythons import of_pyenv
from harness.sending import Sending
from harness.values import not_none

MARK = b"\nhere it begins\n"


def pythons() -> list[str]:
    """This Python, the oldest and the newest that agents may meet, and one that is too old."""
    versions = (each for number in (7, 8, 13) for each in of_pyenv(f"3.{number}")[:1])
    return [sys.executable, *map(str, versions)]


def started(python: str, folder: Path, copy: str = "") -> subprocess.CompletedProcess[bytes]:
    """What comes of the payload where `python` is the host's python3."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    programs.joinpath("python3").unlink(missing_ok=True)
    programs.joinpath("python3").symlink_to(python)
    given = bootstrap.start_agent(MARK, copy)
    given += encode(protocol.Configure(protocol.PROTOCOL, "a job", "", 1.0, "user@host"))
    given += encode(protocol.Shutdown())
    return subprocess.run(
        ["/bin/sh", "-c", bootstrap.COMMAND],
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
        env={"PATH": str(programs), "XDG_STATE_HOME": str(folder / "state")},
    )


def test_it_is_one_payload_of_less_than_225_kb() -> None:
    """Of the Python that runs the tests: the code of 3.11 is the largest."""
    assert len(bootstrap.start_agent(MARK)) < 225_000
    assert len(shlex.split(bootstrap.COMMAND)) == 6


@pytest.mark.parametrize("python", pythons())
def test_it_needs_a_python_of_3_8_or_later(python: str, tmp_path: Path) -> None:
    """Also from the copy of its modules that a host keeps: what follows the compressed program."""
    inflate = zlib.decompressobj()
    inflate.decompress(bootstrap.start_agent(MARK).partition(b"\n")[2])
    copy = tmp_path / "a 'copy' of\u2028hôme"
    copy.write_bytes(inflate.unused_data)
    for name in ("", str(copy)) if python == sys.executable else (str(copy),):
        done = started(python, tmp_path, name)
        if "/3.7." in python:
            assert done.returncode == bootstrap.EXIT_TOO_OLD
            assert done.stderr.startswith(b"distrun: its python3 is 3.")
            given = tmp_path / "input"  # all of it is read: kubectl would wait for ever otherwise
            given.write_bytes(bootstrap.start_agent(MARK))
            with given.open("rb") as file:
                subprocess.run([python, *bootstrap.ARGUMENTS], stdin=file, check=False)
                assert not file.read()
            continue
        assert done.returncode == 0, done.stderr
        said = done.stdout.partition(MARK)[2]
        assert b'"type":"Hello"' in said
        assert b'"preserved":"","modules":"","type":"AgentExiting"' in said
        assert not [name for _, _, names in os.walk(tmp_path / "state") for name in names]


PACK = f"""\
import sys
import {bootstrap.__name__} as bootstrap
bootstrap.start_agent(b"mark")
print(bootstrap.digest(), "ast" in sys.modules)
"""


def pack(compiled: Path) -> list[str]:
    """Make the payload in a fresh process, with this folder for compiled modules."""
    launcher = str(Path(bootstrap.__file__).parents[3])
    env = {**os.environ, "PYTHONPATH": launcher, "PYTHONPYCACHEPREFIX": str(compiled)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return captured([sys.executable, "-c", PACK], env=env, check=True).stdout.split()


def test_changed_modules_are_packed_again(tmp_path: Path) -> None:
    digest, is_packed = pack(tmp_path)
    assert is_packed == "True"
    assert pack(tmp_path) == [digest, "False"]
    (kept,) = tmp_path.rglob("*.modules")
    source = next(Path(bootstrap.__file__).parents[2].glob("agent/main.py"))
    before = str(source.stat().st_mtime_ns).encode()
    assert before in kept.read_bytes()
    kept.write_bytes(kept.read_bytes().replace(before, b"1" * len(before)))
    assert pack(tmp_path)[1] == "True"


LOG = "worker-0.log"
LIMIT = 1_000_000


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
        self.ended: list[FormerAgent] = []
        self.agent.clear(self.ended.append, lambda _agent, _cause: None)

    def advance(self, seconds: float, report: Callable[[], Report]) -> None:
        """Let time pass, and have the host send a report every 5 s while there is a login."""
        end = self.now + seconds
        while self.now < end and not self.ended:
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
    offsets = itertools.count(0, size)
    return lambda: protocol.LogData(LOG, next(offsets), b"x" * size)


def test_a_host_that_sends_no_logs_is_not_waited_for(clearing: Clearing) -> None:
    clearing.advance(150, lambda: protocol.Heartbeat(1))
    assert clearing.ended
    assert not_none(clearing.agent.failure).code is Code.FORMER_LEASE_OVER


def test_a_host_that_sends_its_logs_too_slowly_is_not_waited_for(clearing: Clearing) -> None:
    clearing.advance(600, log_parts(1000))
    assert clearing.ended
    assert not_none(clearing.agent.lost_logs).within == (Cause(Code.LOGS_TOO_SLOW),)


def test_a_host_that_sends_fast_enough_is_waited_for_within_limits(clearing: Clearing) -> None:
    """16 KiB/s are."""
    clearing.advance(600, log_parts(100_000))
    assert not clearing.ended
    copy = (clearing.copies / LOG).stat()
    assert copy.st_size == 12_000_000
    assert copy.st_blocks * 512 < LIMIT + 200_000


def test_a_host_sends_the_logs_of_its_own_tasks_alone(clearing: Clearing) -> None:
    clearing.advance(60, lambda: protocol.LogData("worker-9.log", 0, b"x"))
    assert [each.name for each in clearing.copies.iterdir() if each.name != LOG] == []


def test_a_client_is_searched_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of a folder of PATH may hang later."""
    folders = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setenv("PATH", ":".join(map(str, folders)))
    for folder in reversed(folders):
        write_program(folder / "client", f"#!/bin/sh\necho {folder.name} >&2\n")
        connection = open_connection(["client"], "job-1", Code.SSH_NOT_STARTED)
        connection.process.wait()
        connection.read_stderr()
        assert connection.stderr_text == "second"
        connection.close()


def test_a_login_names_the_processes_that_do_not_end(clearing: Clearing) -> None:
    said = f"echo 'Welcome! {job_processes.TASKS_ALIVE} 12 345' >&2"
    connection = open_connection(["sh", "-c", said], "job-1", Code.SSH_NOT_STARTED)
    connection.process.wait()
    connection.read_stderr()
    assert not_none(connection.tasks_alive(job_processes.EXIT_TASKS_ALIVE, "h1")).text == "12 345"
    assert connection.tasks_alive(1, "h1") is None
    for seconds, has_ended in ((0.0, False), (11.0, True)):  # they may end until the lease is over
        clearing.now += seconds
        clearing.agent.on_exit(connection, job_processes.EXIT_TASKS_ALIVE)
        assert (clearing.ended != []) is has_ended
    assert not_none(clearing.agent.error).code is Code.FORMER_TASKS_ALIVE
    connection.close()
