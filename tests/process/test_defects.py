"""Defects of distrun, and a package that is replaced while a job runs."""

import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from harness.changed_package import ChangedPackage
from harness.command import Distrun, recorded_events
from harness.processes import alive, captured, descendants
from harness.values import not_none
from harness.waiting import wait_until

# Worker 1 fails once `go` exists; the other one, and its daemon, would run on.
SCRIPT = """
touch up-$DISTRUN_TASK
if [ $DISTRUN_TASK = worker:1 ]; then
    until test -e go; do sleep 0.05; done
    exit 3
fi
trap '' TERM
setsid sleep 600 &
while :; do sleep 1; done
"""
PLACES = {
    "the record": ("job/record", "EventLog.append", "UnicodeEncodeError.mro()[1]"),
    "an exit of Python's own": ("supervisor/running_tasks", "RunningTasks.end", "SystemExit"),
    "an agent": ("agent/tasks/runner", "TaskRunner.on_child_exit", "TypeError"),
}


@pytest.fixture
def package(distrun: Distrun) -> ChangedPackage:
    changed = ChangedPackage(distrun.cwd)
    distrun.argv = changed.argv
    return changed


@pytest.mark.parametrize("place", PLACES)
def test_a_defect_ends_the_job(distrun: Distrun, package: ChangedPackage, place: str) -> None:
    module, target, error = PLACES[place]
    go = distrun.cwd / "go"
    package.plant(module, target, go, error, once=place != "the record")
    process = distrun.start("launch", distrun.write_spec(SCRIPT), stdout=-3, stderr=-1, text=True)
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 2, timeout=30, what="tasks are up")
    processes = {psutil.Process(process.pid), *descendants(process.pid)}
    job = distrun.status()["job_id"]
    go.touch()
    waiting = distrun("wait", job, timeout=30)
    _, printed = process.communicate(timeout=30)
    assert process.returncode == 70, printed
    wait_until(lambda: not any(map(alive, processes)), timeout=10, what="nothing is left")
    go.unlink(missing_ok=True)
    log = distrun.home / "jobs" / job / "supervisor.log"
    assert "Traceback" in log.read_text()
    assert "Traceback" not in printed
    if place == "an agent":
        for word in ("agent", "planted"):
            assert word in printed
        assert "host_lost" not in printed
        assert "HostFault" in [each["event"] for each in recorded_events(distrun)]
    else:
        assert "planted" in log.read_text()
        assert "defect" in printed
        assert str(log) in printed.replace("\n", " ")
    if place == "the record":
        return  # nothing can be recorded
    assert waiting.returncode == 70, waiting.stderr
    ended = distrun.status(job)
    assert (ended["state"], ended["exit_code"], ended["origin"]) == ("failed", 70, "distrun")
    assert not [task for task in ended["tasks"] if task["state"] in ("running", "starting")]
    if place != "an agent":
        assert str(log) in distrun.asked("status", job).replace("\n", " ")
        assert ended["tasks"][0]["signal"] == "SIGKILL", "the exit of what was stopped is known"


# Worker 1 does what the file `go` says, in its first attempt.
COUNTS = """
echo "1/10 [==>...........................] - loss: 0.1"
until test -e go; do sleep 0.05; done
if [ $DISTRUN_TASK = worker:1 ] && [ $DISTRUN_ATTEMPT = 0 ]; then
    . ./go
fi
echo "2/10 [==>...........................] - loss: 0.1"
"""
FAILURE = "echo 'Traceback (most recent call last):' >&2; echo 'ValueError: bad' >&2; exit 3"


def test_modules_that_a_launch_imports_late_are_compiled_for_the_next_one(
    distrun: Distrun, package: ChangedPackage
) -> None:
    for folder in list(package.folder.rglob("__pycache__")):
        shutil.rmtree(folder)
    distrun.launch("exit 0")
    compiled = {each.name.partition(".")[0] for each in package.folder.rglob("*.pyc")}
    assert compiled >= {"launched_job", "supervisor", "runner"}


def break_in_place(package: ChangedPackage) -> None:
    """Write other modules into the files, as an editable installation does."""
    shutil.rmtree(package.folder / "__pycache__", ignore_errors=True)
    for path in package.folder.rglob("*.py"):
        path.write_text("raise RuntimeError('of a later version')\n")


def has_held(launch: subprocess.Popen[str]) -> bool:
    """Whether the supervisor has read more than its imports; the launch has done so before it."""
    supervisor = psutil.Process(launch.pid).children()[0]
    return bool(supervisor.io_counters().read_chars > 2 << 20)


def go(folder: Path, what: str) -> None:
    (folder / "go.new").write_text(what)
    os.rename(folder / "go.new", folder / "go")


def started(distrun: Distrun, name: str) -> subprocess.Popen[str]:
    script = f"touch {name}-$DISTRUN_TASK-$DISTRUN_ATTEMPT\n{COUNTS}"
    spec = distrun.write_spec(script, name=name)
    return distrun.start("launch", spec, stdout=-1, stderr=subprocess.PIPE, text=True)


def test_foreground_jobs_end_or_are_stopped(distrun: Distrun, package: ChangedPackage) -> None:
    failing = started(distrun, "failing")
    stopped = started(distrun, "stopped")
    wait_until(lambda: len(list(distrun.cwd.glob("*-worker:*-0"))) == 4, what="tasks are up")
    family = psutil.Process(stopped.pid).children(recursive=True)
    for launch in (failing, stopped):
        wait_until(partial(has_held, launch), timeout=30, what="the package is held")
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


def test_a_detached_job_needs_nothing_any_more(distrun: Distrun, package: ChangedPackage) -> None:
    spec = distrun.write_spec(COUNTS, restart={"max": 1, "backoff": "100ms"})
    argv = [*distrun.argv, "launch", str(spec), "-d"]
    job = captured(argv, cwd=distrun.cwd, check=True)
    package.folder.rename(package.folder.with_name("gone"))
    go(distrun.cwd, FAILURE)
    distrun.checked("wait", job.stdout.strip())
    assert "defect" not in distrun.asked("status")


def test_followers_of_a_job_need_nothing_either(distrun: Distrun, package: ChangedPackage) -> None:
    job = distrun.detached(COUNTS)
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


def test_a_package_that_is_broken_or_of_another_version_is_no_defect(distrun: Distrun) -> None:
    distrun.launch("true", workers=1)
    (distrun.cwd / "site").mkdir()
    path = os.pathsep.join(filter(None, (f"{distrun.cwd}/site", os.environ.get("PYTHONPATH"))))
    for words, module, package in (
        ("validate job.yaml", "yaml", "PyYAML"), ("report", "jinja2", "jinja2"),
    ):  # fmt: skip
        file = distrun.cwd / "site" / f"{module}.py"
        file.write_text("raise ImportError('cannot import name soft_unicode')\n")
        done = distrun(*words.split(), env={**os.environ, "PYTHONPATH": path})
        file.unlink()
        assert done.returncode == 69
        told = f"the package {module} of {sys.executable} cannot be used: cannot import name soft_"
        assert done.stderr.startswith(f"distrun: {told}")
        assert done.stderr.endswith(f" -m pip install --upgrade --force-reinstall {package}\n")
