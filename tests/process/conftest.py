"""Specs written by the tests, what a job says of itself, and terminals to look at."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from harness.command import Detach, Distrun, FindVictim, Launch, Status, WriteSpec
from harness.requirements import AS_ROOT, skip
from harness.terminal import OpenTerminal, Terminal
from harness.waiting import wait_until


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
def detached(distrun: Distrun, write_spec: WriteSpec) -> Detach:
    """Start a job in the background; its id."""

    def start(script: str, *args: str, **keys: Any) -> str:
        done = distrun("launch", "-d", write_spec(script, **keys), *args)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        return str(done.stdout.strip())

    return start


@pytest.fixture
def launched(distrun: Distrun, write_spec: WriteSpec) -> Launch:
    """Launch a job in the foreground; returns once each task's script runs."""

    def start(script: str, workers: int = 2, **keys: Any) -> subprocess.Popen[str]:
        spec = write_spec(f"touch up-$DISTRUN_TASK; {script}", workers, **keys)
        process = distrun.start("launch", spec, stdout=subprocess.DEVNULL, stderr=-1, text=True)
        up = "its tasks run"
        wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == workers, what=up)
        return process

    return start


@pytest.fixture
def victim_of(status: Status) -> FindVictim:
    """Find the process to kill: `launch`, `supervisor`, `agent` or its `guard`."""

    def find(who: str, launch: subprocess.Popen[Any] | None) -> int:
        if who == "launch":
            assert launch is not None
            return launch.pid
        job = status()
        if who == "supervisor":
            return int(job["supervisor_pid"])
        agent = int(job["hosts"][0]["agent_pid"])
        return agent if who == "agent" else psutil.Process(agent).ppid()

    return find


@pytest.fixture
def terminal(distrun: Distrun, tmp_path: Path) -> Iterator[OpenTerminal]:
    """Run distrun in a terminal: `terminal("launch", spec, columns=80, rows=24)`."""
    opened: list[Terminal] = []

    def run(*args: Any, columns: int = 80, rows: int = 24, **options: Any) -> Terminal:
        argv = [*distrun.argv, *map(str, args)]
        opened.append(Terminal(argv, str(tmp_path), columns, rows, **options))
        return opened[-1]

    yield run
    for each in opened:
        each.close()
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(10)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder in which every user of this machine can do everything, unlike `tmp_path`."""
    folder = Path(tempfile.mkdtemp(prefix="public-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        skip("mounting a small disk needs root", AS_ROOT)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
