"""A stop while hundreds of tasks start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from harness.command import Distrun, Json
from harness.processes import is_connected
from harness.values import not_none
from harness.waiting import SOON, wait_until

MANY = 200
STARTED = 10
AT_MOST_AFTER_STOP = 8
"""The starts that an agent may have received before the order to stop."""


def events_of(home: Path) -> list[Json]:
    """The events in the record of the only job, without a line that is being written."""
    (record,) = home.glob("jobs/*/events.jsonl")
    lines = record.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def count(events: list[Json], kind: str) -> int:
    return sum(event["event"] == kind for event in events)


def test_a_stop_precedes_further_starts(distrun: Distrun, distrun_home: Path) -> None:
    spec = distrun.write_spec("exec sleep 1000", workers=MANY)
    launch = distrun.start("launch", spec, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def started() -> bool:
        folders = list(distrun_home.glob("jobs/*/events.jsonl"))
        return bool(folders) and count(events_of(distrun_home), "TaskStarted") >= STARTED

    wait_until(started, interval=0.002)
    (host,) = (e for e in events_of(distrun_home) if e["event"] == "HostReady")
    os.kill(host["agent_pid"], signal.SIGSTOP)
    # All tasks could start in the time that the command takes to connect.
    supervisor = events_of(distrun_home)[0]["supervisor_pid"]
    os.kill(supervisor, signal.SIGSTOP)
    killing = distrun.start("kill", stderr=subprocess.PIPE)
    wait_until(lambda: is_connected(killing.pid), interval=0.002)
    os.kill(supervisor, signal.SIGCONT)
    _, told = killing.communicate(timeout=SOON)
    assert killing.returncode == 0, told
    launch.wait(60)
    wait_until(lambda: count(events_of(distrun_home), "JobEnded"), what="the job's end")
    events = events_of(distrun_home)
    asked = next(n for n, event in enumerate(events) if event["event"] == "StopRequested")
    assert count(events[asked:], "TaskStarted") <= AT_MOST_AFTER_STOP
    all_started = count(events, "TaskStarted")
    assert all_started < MANY
    (canceled,) = (event for event in events if event["event"] == "StartsCanceled")
    assert len(canceled["tasks"]) + all_started == MANY
    tasks = distrun.status()["tasks"]
    assert {task["state"] for task in tasks} == {"stopped"}
    assert sum(task["pid"] is not None for task in tasks) == all_started
    assert "never started" in not_none(launch.stderr).read().decode()
    assert "were not started" in distrun.asked("events")
