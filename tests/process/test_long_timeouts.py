"""Time limits of more than 24 days: the system calls that wait do not accept them."""

from __future__ import annotations

import math
import subprocess

import pytest

import distrun as package
from harness.command import Distrun
from harness.waiting import wait_until

LONG = "60d"
LIMITS = {"start": LONG, "run": "99999999h", "stall": LONG, "grace": LONG, "link": LONG}


def test_a_job_with_long_timeouts_runs_to_its_end(distrun: Distrun) -> None:
    done = distrun.launch("sleep 0.3; exit 3", timeouts=LIMITS)
    assert done.returncode == 3, done.stderr


def test_a_job_with_long_timeouts_can_be_killed(distrun: Distrun) -> None:
    job = distrun.detached("exec sleep 1000", timeouts=LIMITS)
    assert distrun("kill", job).returncode == 0
    assert distrun("wait", job).returncode == 137


def test_a_job_waits_for_a_restart_for_a_long_time(distrun: Distrun) -> None:
    restart = {"backoff": LONG, "backoff_max": LONG}
    job = distrun.detached("exit 3", restart=restart, timeouts={"stall": LONG})
    wait_until(lambda: "start again in" in distrun("events", job).stdout)
    assert distrun("kill", job).returncode == 0
    assert distrun("wait", job).returncode == 137


def test_a_wait_may_have_a_long_timeout(distrun: Distrun) -> None:
    job = distrun.detached("until test -e go; do sleep 0.02; done; exit 3")
    waits = [
        distrun.start("wait", "--timeout", limit, job, stderr=-3) for limit in (LONG, "99999999h")
    ]
    with pytest.raises(subprocess.TimeoutExpired):
        waits[0].wait(1)
    (distrun.cwd / "go").touch()
    assert [each.wait(30) for each in waits] == [3, 3]


@pytest.mark.parametrize("seconds", [60 * 86400.0, math.inf])
def test_a_program_may_wait_for_a_long_time(distrun: Distrun, seconds: float) -> None:
    job = package.job(distrun.detached("sleep 1; exit 3"))
    assert job.wait(timeout=seconds).exit_code == 3
