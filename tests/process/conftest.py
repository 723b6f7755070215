"""Specs written by the tests, what a job says of itself, and terminals to look at."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.requirements import AS_ROOT, skip
from harness.terminal import OpenTerminal, Terminal


@pytest.fixture
def chooser() -> random.Random:
    """Chances that another run can have again: with the SEED that is shown when a test fails."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"SEED={seed}")
    return random.Random(seed)


REPORTS = """\
import os, socket, sys, time
to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
to.sendto(sys.argv[1].encode(), "\\0" + os.environ["DISTRUN_NOTIFY"][1:])
print("reported", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
"""


@pytest.fixture
def reporting(distrun: Distrun) -> Callable[..., Path]:
    """Write a spec whose tasks report these values and run until a file `go` exists.

    They are not to listen at an address, however long they run: that would be a warning.
    """

    def write(values: str, workers: int = 2, **keys: Any) -> Path:
        program = {"command": [sys.executable, "-c", REPORTS, values], "tf_config": "mine"}
        return distrun.write_spec("", workers, program=program, **keys)

    return write


@pytest.fixture
def terminal(distrun: Distrun) -> Iterator[OpenTerminal]:
    """Run distrun in a terminal: `terminal("launch", spec, columns=80, rows=24)`."""
    opened: list[Terminal] = []

    def run(*args: Any, columns: int = 80, rows: int = 24, **options: Any) -> Terminal:
        words, cwd = [*map(str, args)], str(distrun.cwd)
        opened.append(Terminal(words, cwd, columns, rows, popen=distrun.popen, **options))
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
