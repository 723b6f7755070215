"""A defect of distrun ends the job with 70, and its tasks, at once; it is told as distrun's."""

from __future__ import annotations

import psutil
import pytest

from harness.changed_package import ChangedPackage
from harness.command import Distrun, recorded_events
from harness.processes import alive, descendants
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
def test_a_defect_ends_the_job_and_is_told_as_distruns(
    distrun: Distrun, package: ChangedPackage, place: str
) -> None:
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
