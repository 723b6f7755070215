"""Where no process can be made, nothing stays open of what was prepared for it."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from distrun.agent import protocol
from distrun.supervisor.hosts import local
from harness.agents import MakeHost, script

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


def test_an_agent_that_can_start_nothing_keeps_nothing_open(
    make_host: MakeHost, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    stub = FULL.format(full=str(full))
    host = make_host(command=partial(local.isolated_python, stub=stub))
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
