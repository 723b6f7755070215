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

import psutil
import pytest

from distrun.agent import protocol
from distrun.agent.linux import syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code
from distrun.events import HostLost
from distrun.spec.loader import load
from distrun.spec.model import SlurmNode, Spec
from distrun.supervisor.hosts.inquiry import Inquiries, Inquiry, Question
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.hosts.srun import SrunReach
from distrun.supervisor.hosts.ssh import SshReach
from harness.command import Distrun
from harness.processes import alive, descendants
from harness.waiting import wait_until

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
SRUN = """#!/bin/sh
while [ "$1" != /bin/sh ]; do shift; done
exec "$@"
"""
SCONTROL = """#!/bin/sh
echo >> {folder}/asked
read -r _ < {folder}/gate
echo 'JobId=5 JobState=TIMEOUT'
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


def slow_slurm(folder: Path, spec_file: str) -> None:
    """Slurm ends the steps on two nodes, and is asked once why, by no loop."""
    spec = load(spec_file)
    loop, observer, pool = make_pool(folder, spec)
    given = SlurmNode(job="5", cores=1)
    pool.connect({name: SrunReach(name, given, spec) for name in ("h1", "h2", "h3")})
    hellos, faults = observer.reports[protocol.Hello], observer.reports[protocol.Fault]
    loop.turn_until(lambda: len(hellos) == 3)
    loop.longest = 0.0
    for name in ("h1", "h2"):
        os.kill(hellos[name].pid, signal.SIGTERM)
    stops: list[Cause] = []
    pool.find_interruption(Cause(Code.SUPERVISOR_SIGNALLED), stops.append)
    loop.turn_until((folder / "asked").exists)
    began = time.monotonic()
    loop.turn_until(lambda: time.monotonic() > began + 2 * LONGEST_TURN)
    assert not faults
    assert not stops
    assert len(pool) == 3
    (folder / "gate").write_text("go on\n")
    loop.turn_until(lambda: len(faults) == 2 and bool(stops))
    causes = [stops[0], *(each.cause for each in faults.values())]
    assert {each.code for each in causes} == {Code.SLURM_TIME_LIMIT}
    pool.order_all(protocol.Shutdown())
    loop.turn_until(lambda: not len(pool))
    assert (folder / "asked").read_text() == "\n"
    assert loop.longest < LONGEST_TURN


def given_up(_folder: Path, _spec_file: str) -> None:
    """What an inquiry has started ends with it."""
    answers: list[Cause | None] = []

    def ask() -> Cause:
        os.spawnlp(os.P_WAIT, "sleep", "sleep", "600")
        raise AssertionError("it was ended before")

    inquiry = Inquiry(Loop(), ask, answers.append, "job-1")

    def started() -> set[psutil.Process]:
        return descendants(os.getpid())

    wait_until(lambda: len(started()) == 2)
    both = started()
    inquiry._give_up()
    assert answers == [None]
    wait_until(lambda: not any(map(alive, both)))


def answered(_folder: Path, _spec_file: str) -> None:
    """An answer arrives whole; a failure is none."""
    cause = Cause(Code.BANNER_MISSING, name="h", within=(Cause(Code.SSH_FAILED),))

    def fail() -> Cause:
        raise ValueError

    loop = Loop()
    inquiries = Inquiries(loop, "job-1")
    for ask, expected in ((lambda: cause, cause), (fail, None)):
        answers: list[Cause | None] = []
        for _ in range(2):
            inquiries.ask(Question(ask.__name__, ask), answers.append)
        deadline = time.monotonic() + 20
        while not answers and time.monotonic() < deadline:
            loop.turn(1.0)
        assert answers == [expected] * 2


@pytest.mark.parametrize("what", [slow_query, slow_slurm, given_up, answered])
def test_a_question_stops_nothing_else(
    distrun: Distrun,
    what: Callable[[Path, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    os.mkfifo(tmp_path / "gate")
    for name, text in (("ssh", SSH), ("srun", SRUN), ("scontrol", SCONTROL)):
        program = programs / name
        program.write_text(text.format(folder=tmp_path))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    spec_file = str(distrun.write_spec("true", workers=1, hosts=["h1"]))
    # This process may have threads, which no supervisor has.
    command = [sys.executable, "-W", "error", __file__, what.__name__, str(tmp_path), spec_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
