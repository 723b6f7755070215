"""What is suspended (SIGSTOP) is said of a job that seems to run: by `status`, `ps` and `wait`."""

from __future__ import annotations

import json
import os
import signal

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

SLEEPS = "echo ready $DISTRUN_TASK; exec sleep 600"


@pytest.mark.parametrize("whose", ["supervisor", "worker:1"])
def test_commands_say_what_is_suspended(distrun: Distrun, whose: str) -> None:
    job = distrun.detached(SLEEPS)
    before = distrun.status(job)
    pids = {task["task"]: task["pid"] for task in before["tasks"]}
    pid = int(pids.get(whose) or before["supervisor_pid"])
    assert not before["suspended"]
    assert "suspended" not in distrun("status", job).stdout
    assert "suspended" not in distrun("wait", "--timeout", "0s", job).stderr
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: distrun.status(job)["suspended"])
        found = distrun.status(job)
        assert found["supervisor_suspended"] == (whose == "supervisor")
        told = {task["task"] for task in found["tasks"] if task["suspended"]}
        assert told == {whose} - {"supervisor"}
        shown = distrun("status", job).stdout
        waited = distrun("wait", "--timeout", "100ms", job)
        assert waited.returncode == 124
        for said in (shown, waited.stderr):
            if whose == "supervisor":
                assert f"its supervisor (process {pid}, suspended)" in said
                assert f"kill -CONT {pid}" in said
            else:
                assert "worker:1 is suspended" in said
        assert shown.count("running (suspended)") == len(told)
        assert "running (suspended)" in distrun("ps").stdout
        assert [row["suspended"] for row in json.loads(distrun("ps", "--json").stdout)["jobs"]] == [
            True
        ]
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not distrun.status(job)["suspended"])
    assert "suspended" not in distrun("ps").stdout
    distrun("kill", job, "--grace", "100ms")
