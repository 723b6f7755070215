"""distrun's package is replaced or removed while a job runs: the job goes on as before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from harness.changed_package import ChangedPackage
from harness.command import Distrun
from harness.processes import alive
from harness.values import not_none
from harness.waiting import wait_until

# Worker 1 does what the file `go` says, in its first attempt.
SCRIPT = """
echo "1/10 [==>...........................] - loss: 0.1"
until test -e go; do sleep 0.05; done
if [ $DISTRUN_TASK = worker:1 ] && [ $DISTRUN_ATTEMPT = 0 ]; then
    . ./go
fi
echo "2/10 [==>...........................] - loss: 0.1"
"""
FAILURE = "echo 'Traceback (most recent call last):' >&2; echo 'ValueError: bad' >&2; exit 3"


def break_in_place(package: ChangedPackage) -> None:
    """Write other modules into the files, as an editable installation does."""
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


def started(distrun: Distrun, name: str) -> subprocess.Popen[str]:
    script = f"touch {name}-$DISTRUN_TASK-$DISTRUN_ATTEMPT\n{SCRIPT}"
    spec = distrun.write_spec(script, name=name)
    return distrun.start("launch", spec, stdout=-1, stderr=subprocess.PIPE, text=True)


def test_jobs_in_the_foreground_end_as_their_tasks_do_or_are_stopped(
    distrun: Distrun, package: ChangedPackage
) -> None:
    failing = started(distrun, "failing")
    stopped = started(distrun, "stopped")
    wait_until(lambda: len(list(distrun.cwd.glob("*-worker:*-0"))) == 4, what="tasks are up")
    family = psutil.Process(stopped.pid).children(recursive=True)
    break_in_place(package)
    stopped.send_signal(signal.SIGINT)
    for process, code in ((stopped, 130), (failing, 3)):
        _, printed = process.communicate(timeout=60)
        go(distrun.cwd, FAILURE)
        assert process.returncode == code, printed
        assert "Traceback" not in printed.replace("| Traceback", "")
        assert "of a later version" not in printed
    assert "ValueError: bad" in printed
    assert not any(map(alive, family))


def test_a_detached_job_needs_nothing_from_the_moment_that_launch_has_returned(
    distrun: Distrun, package: ChangedPackage
) -> None:
    spec = distrun.write_spec(SCRIPT, restart={"max": 1, "backoff": "100ms"})
    argv = [*distrun.argv, "launch", str(spec), "-d"]
    job = subprocess.run(argv, cwd=distrun.cwd, capture_output=True, text=True, check=True)
    package.folder.rename(package.folder.with_name("gone"))
    go(distrun.cwd, FAILURE)
    waiting = distrun("wait", job.stdout.strip())
    assert waiting.returncode == 0, waiting.stderr
    assert "defect" not in distrun.asked("status")


def test_commands_that_follow_a_job_need_nothing_either(
    distrun: Distrun, package: ChangedPackage
) -> None:
    job = distrun.detached(SCRIPT)
    codes = {"attach": 3, "logs -f": 0, "events -f": 0}
    followers = {
        verb: distrun.start(*verb.split(), job, stdout=-1, stderr=subprocess.STDOUT, text=True)
        for verb in codes
    }
    shown = {verb: not_none(each.stdout).readline() for verb, each in followers.items()}
    break_in_place(package)
    go(distrun.cwd, FAILURE)
    for verb, code in codes.items():
        printed = shown[verb] + followers[verb].communicate(timeout=60)[0]
        assert followers[verb].returncode == code, printed
        assert "ValueError: bad" in printed
        assert "of a later version" not in printed
