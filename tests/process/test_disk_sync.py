"""What must survive the machine is on the disk: plan, verdict and end. A slow one does no harm.

The command line runs with the calls that matter recorded: its supervisor is a fork of it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from harness.command import Distrun

RECORDED = """
import os, sys, time
calls, seconds = sys.argv.pop(1), float(sys.argv.pop(1))
sync, write = os.fsync, os.write

def note(text):
    with open(calls, "a") as file:
        print(text, file=file)

def recorded_sync(descriptor):
    time.sleep(seconds)
    sync(descriptor)
    note("synced " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

def recorded_write(descriptor, data):
    for event in ("JobPlanned", "VerdictReached", "JobEnded"):
        if b'"event":"%b"' % event.encode() in bytes(data).replace(b": ", b":"):
            where = os.readlink(f"/proc/self/fd/{descriptor}")
            note(("told " if where.startswith("socket") else "written ") + event)
    return write(descriptor, data)

os.fsync, os.write = recorded_sync, recorded_write
from distrun.__main__ import main
main()
"""


@pytest.fixture
def calls(distrun: Distrun) -> Path:
    """Where the calls of `distrun` are recorded."""
    calls = distrun.cwd / "calls"
    distrun.argv = (sys.executable, "-c", RECORDED, str(calls), "0")  # type: ignore[assignment]
    return calls


def test_plan_verdict_and_end_are_synced_and_the_end_before_it_is_told(
    distrun: Distrun, calls: Path
) -> None:
    """Each attempt waits for what is synced because of the event before it."""
    wait = "until sed -n '/{}/,$p' calls | grep -q '{}'; do sleep 0.05; done; "
    planned = wait.format("JobPlanned", "synced jobs")
    script = f"if test $DISTRUN_ATTEMPT = 0; then {planned} exit 3; fi; "
    script += wait.format("written VerdictReached", "synced events")
    spec = distrun.write_spec(script, restart={"max": 1, "backoff": "10ms"})
    done = distrun("launch", spec, stdin=None)
    assert done.returncode == 0, done.stderr
    lines = calls.read_text().splitlines()
    (folder,) = (distrun.home / "jobs").iterdir()
    lasting = {"spec.yaml", "spec.json", "plan.json", "events.jsonl", "token", folder.name, "jobs"}
    of_plan = lines[lines.index("written JobPlanned") : lines.index("written VerdictReached")]
    assert lasting == {each.removeprefix("synced ") for each in of_plan if "synced " in each}
    end = lines[lines.index("written JobEnded") :]
    assert end.index("synced events.jsonl") < end.index("told JobEnded")


def test_a_slow_disk_holds_up_no_task_and_the_end_for_some_seconds(
    distrun: Distrun, calls: Path
) -> None:
    argv = distrun.argv
    distrun.argv = (*argv[:-1], "600")
    begun = time.monotonic()
    launched = distrun("launch", "-d", distrun.write_spec("exec sleep 600"), stdin=None, timeout=60)
    assert launched.returncode == 0, launched.stderr
    assert distrun.status()["state"] == "running"
    assert distrun("kill", stdin=None, timeout=60).returncode == 0
    assert time.monotonic() - begun < 100
    assert distrun.status()["state"] == "stopped"
    log = next((distrun.home / "jobs").glob("*/supervisor.log"))
    assert "may not be on disk: the disk has not finished within 10 s" in log.read_text()
