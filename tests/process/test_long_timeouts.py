"""Time limits of more than 24 days: the system calls that wait do not accept them."""

from __future__ import annotations

import math
import signal
from typing import Any

import pytest

import distrun as package
from harness.command import Distrun
from harness.waiting import wait_until

LONG = "60d"
LIMITS = [
    {"run": LONG},
    {"start": LONG, "stall": LONG},
    {"start": LONG, "run": "99999999h", "stall": LONG, "grace": LONG, "link": LONG},
]


@pytest.mark.parametrize("timeouts", LIMITS)
def test_a_job_with_long_timeouts_runs_to_its_end(
    timeouts: dict[str, str], distrun: Distrun
) -> None:
    done = distrun.launch("sleep 0.3; exit 3", timeouts=timeouts)
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("timeouts", LIMITS)
def test_a_job_with_long_timeouts_can_be_killed(timeouts: dict[str, str], distrun: Distrun) -> None:
    job = distrun.detached("exec sleep 1000", timeouts=timeouts)
    assert distrun("kill", job).returncode == 0
    assert distrun("wait", job).returncode == 137


def test_a_job_waits_for_a_role_for_a_long_time(distrun: Distrun) -> None:
    roles: dict[str, Any] = {
        "worker": {"count": 1, "after": ["server"]},
        "server": {"command": ["sleep", "1000"], "ready": {"line": "ready"}},
    }
    spec = distrun.write_spec("exit 0", cluster=roles, timeouts={"start": LONG, "stall": LONG})
    launch = distrun.start("launch", spec)
    wait_until(lambda: "server:0  running" in distrun("status").stdout)
    launch.send_signal(signal.SIGINT)
    assert launch.wait(30) == 130


def test_a_job_waits_for_a_restart_for_a_long_time(distrun: Distrun) -> None:
    restart = {"backoff": LONG, "backoff_max": LONG}
    job = distrun.detached("exit 3", restart=restart, timeouts={"stall": LONG})
    wait_until(lambda: "start again in" in distrun("events", job).stdout)
    assert distrun("kill", job).returncode == 0
    assert distrun("wait", job).returncode == 137


@pytest.mark.parametrize("limit", [LONG, "99999999h"])
def test_a_wait_may_have_a_long_timeout(limit: str, distrun: Distrun) -> None:
    done = distrun("wait", "--timeout", limit, distrun.detached("sleep 1.5; exit 3"))
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("seconds", [60 * 86400.0, 1e300, math.inf])
def test_a_program_may_wait_for_a_long_time(distrun: Distrun, seconds: float) -> None:
    job = package.job(distrun.detached("sleep 1.5; exit 3"))
    assert job.wait(timeout=seconds).exit_code == 3
