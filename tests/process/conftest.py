"""Specs written by the tests, what a job says of itself, and terminals to look at."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

WriteSpec = Callable[..., Path]
Status = Callable[..., dict[str, Any]]


@pytest.fixture
def write_spec(tmp_path: Path) -> WriteSpec:
    """Write a spec of `workers` that run a shell script; more keys as keywords."""

    def write(script: str, workers: int = 2, name: str = "job", **keys: Any) -> Path:
        document = {
            "name": name,
            "strategy": "multi_worker_mirrored",
            "cluster": {"worker": workers},
            "program": {"command": ["sh", "-c", script]},
            **keys,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.fixture
def status(distrun: Any) -> Status:
    """What `status --json` says of a job, the newest by default."""

    def ask(*job: str) -> dict[str, Any]:
        done: subprocess.CompletedProcess[str] = distrun("status", "--json", *job)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["job"]

    return ask


@pytest.fixture
def detached(distrun: Any, write_spec: WriteSpec) -> Callable[..., str]:
    """Start a job in the background; its id."""

    def start(script: str, *args: str, **keys: Any) -> str:
        done = distrun("launch", "-d", write_spec(script, **keys), *args)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        return done.stdout.strip()

    return start


@pytest.fixture
def victim_of(status: Status) -> Callable[..., int]:
    """Find the process to kill: `launch`, `supervisor`, `agent` or its `guard`."""

    def find(who: str, launch: subprocess.Popen[Any] | None) -> int:
        job = status()
        if who == "launch":
            return launch.pid
        if who == "supervisor":
            return job["supervisor_pid"]
        agent = job["hosts"][0]["agent_pid"]
        return agent if who == "agent" else psutil.Process(agent).ppid()

    return find


class Terminal:
    """A command with a terminal of its own, as in a window."""

    def __init__(self, argv: list[str], cwd: str, columns: int, rows: int) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        environ = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**environ, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.seen = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> str:
        """All it has shown so far."""
        try:
            while block := os.read(self.master, 65536):
                self.seen += self._decoder.decode(block)
        except (BlockingIOError, OSError):
            pass
        return self.seen

    def text(self) -> str:
        """What it has shown so far, without colours, with plain newlines."""
        return re.sub("\x1b\\[[0-9;]*m", "", self.read()).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> bool:
        has_ended = self.process.poll() is not None
        self.read()
        return has_ended

    def close(self) -> None:
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


@pytest.fixture
def terminal(distrun: Any, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Run distrun in a window: `terminal("launch", spec, columns=80, rows=24)`."""
    opened = []

    def run(*args: Any, columns: int = 80, rows: int = 24) -> Terminal:
        argv = [*distrun.argv, *map(str, args)]
        opened.append(Terminal(argv, str(tmp_path), columns, rows))
        return opened[-1]

    yield run
    for each in opened:
        each.close()
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(10)
