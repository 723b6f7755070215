"""What happens to a job whose surroundings fail: stopped processes, clocks, disks, homes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.command import Distrun, recorded_events
from harness.values import not_none
from harness.waiting import wait_until

SOON = {"max": 3, "backoff": "50ms"}


def test_a_job_stopped_for_a_while_goes_on_as_if_nothing_had_been(distrun: Distrun) -> None:
    """SIGSTOP to supervisor and agent while a task fails, and for longer than the backoff."""
    script = (
        "touch up-$DISTRUN_ATTEMPT; test $DISTRUN_ATTEMPT = 1 && exit 0; "
        "while ! test -e go; do sleep 0.02; done; touch gone; exit 1"
    )
    spec = distrun.write_spec(script, workers=1, restart=SOON)
    launch = distrun.start("launch", spec, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until((distrun.cwd / "up-0").exists, timeout=30)
    wait_until(lambda: distrun.status()["state"] == "running", timeout=30)
    ours = [distrun.victim_of(who, launch) for who in ("supervisor", "agent", "guard")]
    for pid in ours:
        os.kill(pid, signal.SIGSTOP)
    try:
        (distrun.cwd / "go").touch()
        wait_until((distrun.cwd / "gone").exists, timeout=30)
        stopped = time.monotonic()
        wait_until(lambda: time.monotonic() - stopped > 0.5, what="longer than the backoff")
        assert not (distrun.cwd / "up-1").exists()
    finally:
        for pid in ours:
            os.kill(pid, signal.SIGCONT)
    assert launch.wait(60) == 0, not_none(launch.stderr).read()


@pytest.mark.parametrize("command", [(), ("logs", "-f")], ids=["launch", "logs -f"])
def test_output_is_shown_after_the_record_was_removed(
    distrun: Distrun, distrun_home: Path, command: tuple[str, ...]
) -> None:
    script = "echo before; until test -e go; do sleep 0.02; done; echo after; sleep 1; echo last"
    spec = distrun.write_spec(script, workers=1)
    if command:
        assert distrun("launch", "-d", spec).returncode == 0
    shown = distrun.start(
        *(command or ("launch", spec)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert not_none(shown.stdout).readline() == "worker:0 | before\n"
    shutil.rmtree(distrun_home / "jobs")
    (distrun.cwd / "go").touch()
    output, said = shown.communicate(timeout=60)
    assert output == "worker:0 | after\nworker:0 | last\n"
    assert shown.returncode == 0
    if not command:
        assert "was removed while the job ran\n" in said


def test_a_home_that_vanishes_before_a_restart_is_the_stated_cause(
    distrun: Distrun, distrun_home: Path
) -> None:
    script = "touch up-$DISTRUN_TASK; while ! test -e go; do sleep 0.02; done; exit 1"
    launch = distrun.start(
        "launch", distrun.write_spec(script, restart=SOON),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 2, timeout=30)
    shutil.rmtree(distrun_home / "jobs")
    (distrun.cwd / "go").touch()
    _, said = launch.communicate(timeout=60)
    assert launch.returncode == 69, said
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


FULL = {
    "a task that does not": "trap '' PIPE; while :; do echo some output; done 2>/dev/null",
    "another program, and a task that fails of it": (
        "cat /dev/zero > disk/filler 2>/dev/null; echo lost || exit 9"
    ),
}


@pytest.mark.parametrize("script", FULL.values(), ids=FULL)
def test_on_a_full_disk_the_job_fails_with_that_as_its_cause(
    distrun: Distrun, small_disk: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk))
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


def test_a_record_that_was_removed_is_no_death_of_the_supervisor(
    distrun: Distrun, distrun_home: Path
) -> None:
    job = distrun.detached("exec sleep 1000", workers=1)
    (distrun_home / "jobs" / job / "events.jsonl").unlink()
    assert distrun("kill", job).returncode == 0
    waited = distrun("wait", job)
    assert waited.returncode == 69
    assert "is missing: the result of the job is unknown" in waited.stderr
