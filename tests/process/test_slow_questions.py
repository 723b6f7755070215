"""What ssh and Slurm are asked about a host takes time; the other hosts do not wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrun.agent import protocol
from distrun.agent.linux import syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code
from distrun.job.events import HostLost
from distrun.spec.loader import load
from distrun.spec.model import Spec
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.hosts.ssh import SshReach
from harness.command import Distrun

LONGEST_TURN = 1.0
"""Seconds. A host counts as lost after 2.5 heartbeats."""
SSH = """#!/bin/sh
case " $* " in
*" -V "*) echo 'OpenSSH_9.2p1' >&2; exit 0;;
*" -G "*) touch {folder}/asked; read -r _ < {folder}/gate
          printf 'hostname 10.0.0.7\\nuserknownhostsfile /known\\n'
          exit 0;;
esac
cat >&2 <<'WORDS'
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /known:7
Host key for 10.0.0.7 has changed and you have requested strict checking.
Host key verification failed.
WORDS
exit 255
"""


class Observer:
    def __init__(self) -> None:
        self.unreachable: dict[str, Cause] = {}
        self.reports: dict[type, dict[str, Any]] = {protocol.Hello: {}, protocol.Fault: {}}

    def on_report(self, host: str, report: Any) -> None:
        self.reports[type(report)][host] = report

    def on_event(self, event: Any) -> None:
        assert isinstance(event, HostLost), event

    def on_unreachable(self, causes: Any) -> None:
        self.unreachable.update(causes)


class MeasuredLoop(Loop):
    """A supervisor's loop around a pool; it measures its turns."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0

    def turn_until(self, is_done: Callable[[], bool], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not is_done():
            assert time.monotonic() < deadline
            syscalls.wait_until_ready([self._selector.fileno()], seconds=0.05)
            began = time.monotonic()
            self.turn(0.0)
            self.longest = max(self.longest, time.monotonic() - began)


def make_pool(folder: Path, spec: Spec) -> tuple[MeasuredLoop, Observer, HostPool]:
    loop, observer = MeasuredLoop(), Observer()
    pool = HostPool(loop, spec, "job-1", folder, (), observer)
    loop.watch_signals((signal.SIGCHLD,), lambda _: pool.check_exits())
    return loop, observer, pool


def slow_query(folder: Path, spec_file: str) -> None:
    """The loop of a process with one thread, as a supervisor is."""
    spec = load(spec_file)
    loop, observer, pool = make_pool(folder, spec)
    pool.connect({"h1": SshReach("h1", spec)})
    loop.turn_until((folder / "asked").exists)
    began = time.monotonic()
    loop.turn_until(lambda: time.monotonic() > began + 2 * LONGEST_TURN)
    assert not observer.unreachable
    assert len(pool) == 1
    (folder / "gate").write_text("go on\n")
    loop.turn_until(lambda: bool(observer.unreachable))
    found = observer.unreachable["h1"]
    assert found.code is Code.HOST_KEY_CHANGED
    assert "ssh-keygen -f /known -R 10.0.0.7" in found.commands, found
    assert loop.longest < LONGEST_TURN
    loop.turn_until(lambda: not len(pool))


def test_a_question_stops_nothing_else(
    distrun: Distrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    os.mkfifo(tmp_path / "gate")
    (programs / "ssh").write_text(SSH.format(folder=tmp_path))
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    spec_file = str(distrun.write_spec("true", workers=1, hosts=["h1"]))
    # This process may have threads, which no supervisor has.
    command = [sys.executable, "-W", "error", __file__, str(tmp_path), spec_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    slow_query(Path(sys.argv[1]), sys.argv[2])
