"""Where no process can be made, nothing stays open of what was prepared for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.agent.probe.forked_call import ForkedCall
from distrun.agent.protocol import Code
from distrun.agent.protocol.causes import CauseError
from distrun.supervisor.hosts import local
from distrun.supervisor.hosts.reach import Login, Purpose
from distrun.supervisor.hosts.ssh import open_connection
from harness.agents import MakeHost, script, with_stub

# An agent that can make no process while there is a file `full` beside it.
FULL = """\
import errno, os, sys
sys.path.insert(0, sys.argv.pop(1))
forked = os.fork
def fork():
    if os.path.exists({full!r}):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return forked()
os.fork = fork
from {{module}} import main
main()
"""


def connect_by_fork(_: Loop) -> None:
    local.become_supervisor()
    local.LocalReach().open("job-a", Login(Purpose.AGENT))


CASES: dict[str, Callable[[Loop], object]] = {
    "a call in a child": lambda loop: ForkedCall(loop, protocol.Report, 0.0, print),
    "the agent": connect_by_fork,
    "an ssh client": lambda _: open_connection(["no-such-ssh"], "job-a", Code.SSH_NOT_STARTED),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_stays_open(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(local, "_inherited_limit", None)
    before = descriptors("self")
    for _ in range(2):
        with closing(Loop()) as loop, suppress(OSError, CauseError):
            CASES[case](loop)
    assert descriptors("self") == before


def test_an_agent_that_can_start_nothing_keeps_nothing_open(
    make_host: MakeHost, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    stub = FULL.format(full=str(full))
    host = make_host(changed=partial(with_stub, stub))
    notify = {"notify": True}
    host.run("worker:0", "true", **notify)
    host.expect(protocol.TaskEnded)
    full.touch()
    argv = script(tmp_path, "program.py", "")
    before = pipes(host.pid)
    for _ in range(2):
        host.start("worker:0", *argv, **notify)
        assert host.expect(protocol.TaskNotStarted).cause.errno == errno.EAGAIN
    assert pipes(host.pid) == before
    full.unlink()
    host.run("worker:0", "true", **notify)  # and it goes on once there is room
    host.expect(protocol.TaskEnded)


def pipes(pid: int) -> list[str]:
    """Its pipes and sockets: the files of logs are opened and closed as they are needed."""
    return [each for each in descriptors(pid) if ": pipe" in each or ": socket" in each]


def descriptors(pid: int | str) -> list[str]:
    """What a process has open, without what is closed by the time that it is looked at."""
    found = []
    for each in sorted(os.listdir(f"/proc/{pid}/fd")):
        with suppress(FileNotFoundError):
            found.append(f"{each}: {os.readlink(f'/proc/{pid}/fd/{each}')}")
    return found
