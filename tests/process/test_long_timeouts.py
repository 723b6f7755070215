"""Time limits of more than 24 days: the system calls that wait do not accept them."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import distrun as package
from harness.command import Distrun
from harness.processes import is_connected
from harness.waiting import wait_until

LONG = "60d"
LIMITS = {"start": LONG, "run": "99999999h", "stall": LONG, "grace": LONG, "link": LONG}


def test_a_job_may_have_long_timeouts_and_be_waited_for_with_one(distrun: Distrun) -> None:
    job = distrun.detached("until test -e go; do sleep 0.02; done; exit 3", timeouts=LIMITS)
    waits = [
        distrun.start("wait", "--timeout", limit, job, stderr=-3) for limit in (LONG, "99999999h")
    ]
    with ThreadPoolExecutor() as pool:
        results = [
            pool.submit(package.job(job).wait, timeout=limit) for limit in (60 * 86400.0, math.inf)
        ]
        wait_until(lambda: all(is_connected(each.pid) for each in waits))
        (distrun.cwd / "go").touch()
        assert [each.wait(30) for each in waits] == [3, 3]
        assert [each.result(30).exit_code for each in results] == [3, 3]


def test_a_job_waits_for_a_restart_for_a_long_time_and_can_be_killed(distrun: Distrun) -> None:
    restart = {"backoff": LONG, "backoff_max": LONG}
    job = distrun.detached("exit 3", restart=restart, timeouts=LIMITS)
    wait_until(lambda: "start again in" in distrun("events", job).stdout)
    assert distrun("kill", job).returncode == 0
    assert distrun("wait", job).returncode == 137
