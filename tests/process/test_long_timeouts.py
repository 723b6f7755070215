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


def test_a_job_waits_for_a_restart_for_a_long_time_and_can_be_killed(distrun: Distrun) -> None:
    restart = {"backoff": LONG, "backoff_max": LONG}
    job = distrun.detached("exit 3", restart=restart, timeouts=LIMITS, workers=1)
    waiting = distrun.start("wait", "--timeout", "99999999h", job, stderr=-3)
    wait_until(lambda: "again in" in distrun.asked("events", job))
    with ThreadPoolExecutor() as pool:
        results = [
            pool.submit(package.job(job).wait, timeout=limit) for limit in (60 * 86400.0, math.inf)
        ]
        wait_until(lambda: is_connected(waiting.pid))
        assert distrun("kill", job).returncode == 0
        assert waiting.wait(30) == 137
        assert [each.result(30).exit_code for each in results] == [137, 137]
