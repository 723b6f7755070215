"""A defect of distrun ends the job with 70, and its tasks, at once; it is told as distrun's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from harness.changed_package import ChangedPackage
from harness.command import Distrun, recorded_events
from harness.processes import alive
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
SUPERVISOR = "supervisor/supervisor"
PLACES = {
    "a report": ("supervisor/hosts/host", "Host.handle", "TypeError"),
    "a timer": ("supervisor/planning", "Planning._count_wait", "RecursionError"),
    "the transitions": ("lifecycle/transitions", "step", "KeyError"),
    "the record": ("job/record", "EventLog.append", "UnicodeEncodeError.mro()[1]"),
    "a command's request": ("supervisor/clients", "Clients._accept", "AssertionError"),
    "a link's check": ("supervisor/hosts/report_checker", "ReportChecker.find_fault", "IndexError"),
    "an exit of Python's own": ("supervisor/running_tasks", "RunningTasks.end", "SystemExit"),
}


@pytest.fixture
def package(distrun: Distrun) -> ChangedPackage:
    changed = ChangedPackage(distrun.cwd)
    distrun.argv = changed.argv
    return changed


def launch(distrun: Distrun, spec: Path) -> tuple[subprocess.Popen[str], set[psutil.Process]]:
    """Start a job; return its launch, and its processes."""
    process = distrun.start(
        "launch", spec, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 2, timeout=30, what="tasks are up")
    root = psutil.Process(process.pid)
    return process, {root, *root.children(recursive=True)}


@pytest.mark.parametrize(
    ("place", "once"),
    [*((each, True) for each in PLACES if each != "the record"), ("the record", False)],
)
def test_a_defect_in_the_supervisor_ends_the_job(
    distrun: Distrun, package: ChangedPackage, place: str, once: bool
) -> None:
    module, target, error = PLACES[place]
    go = distrun.cwd / "go"
    package.plant(module, target, go, error, once=once)
    process, processes = launch(distrun, distrun.write_spec(SCRIPT))
    job = distrun.status()
    go.touch()
    waiting = distrun("wait", job["job_id"], timeout=30)
    _, printed = process.communicate(timeout=30)
    assert process.returncode == 70, printed
    wait_until(lambda: not any(map(alive, processes)), timeout=10, what="nothing is left")
    go.unlink(missing_ok=True)
    log = distrun.home / "jobs" / job["job_id"] / "supervisor.log"
    assert "defect" in printed
    assert "Traceback" not in printed
    assert str(log) in printed.replace("\n", " ")
    assert "planted" in log.read_text()
    assert "Traceback" in log.read_text()
    if place == "the record" and not once:
        return  # nothing can be recorded
    assert waiting.returncode == 70, waiting.stderr
    ended = distrun.status(job["job_id"])
    assert (ended["state"], ended["exit_code"], ended["origin"]) == ("failed", 70, "distrun")
    assert str(log) in distrun("status", job["job_id"]).stdout.replace("\n", " ")
    if once:  # the record is complete
        assert not [task for task in ended["tasks"] if task["state"] in ("running", "starting")]
        assert ended["tasks"][0]["signal"] == "SIGKILL", "the exit of what was stopped is known"


def test_a_defect_in_an_agent_is_distruns(distrun: Distrun, package: ChangedPackage) -> None:
    go = distrun.cwd / "go"
    package.plant("agent/tasks/runner", "TaskRunner.on_child_exit", go, once=True)
    process, processes = launch(distrun, distrun.write_spec(SCRIPT))
    job = distrun.status()
    go.touch()
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 70, printed
    wait_until(lambda: not any(map(alive, processes)), timeout=10, what="nothing is left")
    go.unlink(missing_ok=True)
    assert "agent" in printed
    assert "planted" in printed
    assert "host_lost" not in printed
    log = distrun.home / "jobs" / job["job_id"] / "supervisor.log"
    assert "Traceback" in log.read_text()
    assert distrun.status(job["job_id"])["exit_code"] == 70
    assert [each for each in recorded_events(distrun) if each["event"] == "HostFault"]
