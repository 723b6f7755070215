"""What happens to a job whose surroundings fail: stopped processes, clocks, disks, homes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.command import Distrun, recorded_events
from harness.values import not_none

SOON = {"max": 3, "backoff": "50ms"}


def test_output_is_shown_after_the_record_was_removed_until_a_restart_fails_of_that(
    distrun: Distrun, distrun_home: Path
) -> None:
    script = (
        "echo before; until test -e go; do sleep 0.02; done; echo after; sleep 1; echo last; exit 1"
    )
    spec = distrun.write_spec(script, workers=1, restart=SOON)
    launch = distrun.start(
        "launch", spec, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert not_none(launch.stdout).readline() == "worker:0 | before\n"
    logs = distrun.start("logs", "-f", stdout=-1, text=True)
    assert not_none(logs.stdout).readline() == "worker:0 | before\n"
    shutil.rmtree(distrun_home / "jobs")
    (distrun.cwd / "go").touch()
    for shown, code in ((logs, 0), (launch, 69)):
        output, said = shown.communicate(timeout=60)
        assert output == "worker:0 | after\nworker:0 | last\n"
        assert shown.returncode == code, said
    assert "could not be started" in said
    assert "Traceback" not in said


WITH_JUMPING_CLOCK = """
import itertools, time
real, jumps = time.time, itertools.cycle((0, -86400, 86400, -3600))
time.time = lambda: real() + next(jumps)
from distrun.__main__ import main
main()
"""


def test_a_clock_that_jumps_moves_no_deadline(distrun: Distrun) -> None:
    """By a day with every look at it; backoff and timeouts go by another clock."""
    spec = distrun.write_spec(
        "test $DISTRUN_ATTEMPT = 1 || exit 3",
        restart={"max": 1, "backoff": "300ms"},
        timeouts={"run": "1h", "stall": "1h"},
    )
    words = [sys.executable, "-c", WITH_JUMPING_CLOCK, "launch", str(spec)]
    done = subprocess.run(
        words, cwd=distrun.cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    record = recorded_events(distrun)
    times = [event["at"] for event in record]
    assert times != sorted(times), "it did not jump"
    assert all(event["lived_seconds"] >= 0 for event in record if event["event"] == "TaskExited")
    assert {task["attempt"] for task in distrun.status()["tasks"]} == {1}


def test_on_a_full_disk_the_job_fails_with_that_as_its_cause(
    distrun: Distrun, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk))
    script = "trap '' PIPE; while :; do echo some output; done 2>/dev/null"
    done = distrun.launch(script, restart=SOON)
    assert done.returncode == 69, done.stderr
    cause = r"^job \S+ failed: .*(is full|No space left)"
    assert re.search(cause, done.stderr, re.MULTILINE), done.stderr
    job = distrun.status()
    assert job["state"] == "failed", "its record tells of its end"
    assert job["outcome"]["exit_code"] == 69
    assert re.search(r"is full|No space left", job["outcome"]["cause"])
    assert distrun("wait").returncode == 69


def test_a_job_that_cannot_be_created_leaves_nothing(
    distrun: Distrun, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk))
    spec = distrun.write_spec("true")
    for inodes in (2, 5, 9):
        remount = f"remount,nr_inodes={inodes}"
        subprocess.run(["mount", "-o", remount, str(small_disk)], check=True)
        done = distrun("launch", spec)
        assert done.returncode == 69, done.stderr
        assert "No space left on device" in done.stderr
        if "cannot be created" in done.stderr:
            assert not list(small_disk.glob("jobs/*"))
        else:  # there was room for the record
            assert distrun("wait").returncode == 69
        for path in small_disk.iterdir():
            shutil.rmtree(path)
