"""distrun's package is replaced or removed while a job runs: the job goes on as before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.changed_package import ChangedPackage
from harness.command import Distrun
from harness.processes import alive
from harness.waiting import wait_until

# Worker 1 does what the file `go` says, in its first attempt.
SCRIPT = """
touch up-$DISTRUN_TASK-$DISTRUN_ATTEMPT
echo "1/10 [==>...........................] - loss: 0.1"
until test -e go; do sleep 0.05; done
if [ $DISTRUN_TASK = worker:1 ] && [ $DISTRUN_ATTEMPT = 0 ]; then
    . ./go
fi
echo "2/10 [==>...........................] - loss: 0.1"
"""
FAILURE = "echo 'Traceback (most recent call last):' >&2; echo 'ValueError: bad' >&2; exit 3"
CASES: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "success": ("exit 0", "broken", {}, 0),
    "failure": (FAILURE, "replaced", {}, 3),
    "restart": (FAILURE, "removed", {"restart": {"max": 1, "backoff": "100ms"}}, 0),
}


def upgrade(package: ChangedPackage, how: str) -> None:
    if how != "broken":
        package.folder.rename(package.folder.with_name("gone"))
    if how == "replaced":  # by modules that fit nothing of before
        for path in package.folder.with_name("gone").rglob("*.py"):
            new = package.folder / path.relative_to(package.folder.with_name("gone"))
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_text("raise RuntimeError('of a later version')\n")
    elif how == "broken":  # in place, as an editable installation
        shutil.rmtree(package.folder / "__pycache__", ignore_errors=True)
        for path in package.folder.rglob("*.py"):
            path.write_text("raise RuntimeError('of a later version')\n")


@pytest.fixture
def package(distrun: Distrun) -> ChangedPackage:
    changed = ChangedPackage(distrun.cwd)
    distrun.argv = changed.argv
    return changed


def go(folder: Path, what: str) -> None:
    (folder / "go.new").write_text(what)
    os.rename(folder / "go.new", folder / "go")


def started(distrun: Distrun, spec: Path, *options: str) -> subprocess.Popen[str]:
    process = distrun.start(
        "launch", spec, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(list(distrun.cwd.glob("up-*-0"))) == 2, timeout=30, what="tasks are up")
    return process


@pytest.mark.parametrize("case", CASES)
def test_a_job_in_the_foreground_ends_as_its_tasks_do(
    distrun: Distrun, package: ChangedPackage, case: str
) -> None:
    what, how, keys, code = CASES[case]
    process = started(distrun, distrun.write_spec(SCRIPT, **keys))
    upgrade(package, how)
    go(distrun.cwd, what)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == code, printed
    assert "Traceback" not in printed.replace("| Traceback", "")
    assert "of a later version" not in printed
    if case == "failure":
        assert "ValueError: bad" in printed


def test_a_detached_job_needs_nothing_from_the_moment_that_launch_has_returned(
    distrun: Distrun, package: ChangedPackage
) -> None:
    spec = distrun.write_spec(SCRIPT, restart={"max": 1, "backoff": "100ms"})
    argv = [*distrun.argv, "launch", str(spec), "-d"]
    job = subprocess.run(argv, cwd=distrun.cwd, capture_output=True, text=True, check=True)
    upgrade(package, "removed")
    go(distrun.cwd, FAILURE)
    waiting = distrun("wait", job.stdout.strip())
    assert waiting.returncode == 0, waiting.stderr
    assert "defect" not in distrun("status").stdout


def test_a_job_is_stopped_as_ever(distrun: Distrun, package: ChangedPackage) -> None:
    process = started(distrun, distrun.write_spec(SCRIPT))
    family = psutil.Process(process.pid).children(recursive=True)
    upgrade(package, "replaced")
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert "Traceback" not in printed
    assert not any(map(alive, family))
