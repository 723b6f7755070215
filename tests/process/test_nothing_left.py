"""Commands leave no process and no folder, however they end, nor does what ssh starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrun.agent.linux import processes
from harness.command import Distrun
from harness.waiting import wait_until

HANGS = """\
#!/bin/sh
# A wrapper whose processes leave its session, as some conda and container wrappers do.
setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &
echo $$ >> {pids}
sleep 600
"""


class Started:
    """A command whose program writes the ids of its processes into a file."""

    def __init__(self, folder: Path, distrun: Distrun, *words: str) -> None:
        self._pids = folder / "pids"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distrun", *words],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.found = wait_until(self._find, what="the program runs")

    def _find(self) -> list[processes.Process]:
        text = self._pids.read_text() if self._pids.exists() else ""
        found = [each for each in map(processes.find, map(int, text.split())) if each is not None]
        return found if len(found) == 2 else []

    def has_left_nothing(self) -> bool:
        left = []
        for was in self.found:
            now = processes.find(was.pid)
            if now is not None and now.started == was.started and not now.is_zombie:
                left.append(now)
        return not left and not os.listdir(self.temporary)


def write_hanging(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(HANGS.format(pids=folder / "pids"))
    path.chmod(0o755)
    return path


def write_spec(folder: Path, command: str) -> None:
    (folder / "train.py").write_text("print(1)\n")
    spec: dict[str, object] = {"strategy": "multi_worker_mirrored", "cluster": {"worker": 1}}
    if command in ("doctor", "launch over ssh"):
        proxy = write_hanging(folder, "proxy")
        ssh = {"options": {"ProxyCommand": str(proxy)}, "connect_timeout": "10m"}
        spec |= {"hosts": ["hx"], "ssh": ssh, "program": {"command": ["true"], "sync": "off"}}
    else:
        write_hanging(folder, "py")
        spec |= {"program": {"script": "train.py", "python": "./py"}}
    (folder / "job.yaml").write_text(json.dumps(spec))


COMMANDS = {
    "doctor": ("doctor",),
    "launch over ssh": ("launch",),
    "plan": ("plan",),
    "validate": ("validate",),
}


@pytest.fixture
def started(request: pytest.FixtureRequest, distrun: Distrun) -> Iterator[Started]:
    write_spec(distrun.cwd, request.param)
    found = Started(distrun.cwd, distrun, *COMMANDS[request.param], "job.yaml")
    yield found
    for each in found.found:
        processes.send(each, signal.SIGKILL)


@pytest.mark.parametrize(
    ("started", "how"),
    [
        *(("doctor", signal.SIGKILL), ("launch over ssh", signal.SIGINT), ("plan", signal.SIGHUP)),
        *(("validate", "group"), ("doctor", "inner")),
    ],
    indirect=["started"],
)
def test_a_command_that_a_signal_ends(started: Started, how: signal.Signals | str) -> None:
    """A signal for the command, or SIGKILL for its group or for the process inside."""
    pid = started.process.pid
    if isinstance(how, signal.Signals):
        os.kill(pid, how)
    elif how == "group":
        os.killpg(pid, signal.SIGKILL)
    else:
        (inner,) = processes.children(pid)
        os.kill(inner, signal.SIGKILL)
    is_killed = how in (signal.SIGKILL, "group")
    number = how if isinstance(how, signal.Signals) else signal.SIGKILL
    assert started.process.wait(60) == (-number if is_killed else 128 + number)
    wait_until(started.has_left_nothing)


def test_an_interpreter_that_hangs(distrun: Distrun) -> None:
    write_spec(distrun.cwd, "plan")
    started = Started(distrun.cwd, distrun, "plan", "job.yaml")
    assert started.process.wait(60) == 0
    assert started.has_left_nothing()
