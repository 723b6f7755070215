"""Jobs that hang, with real processes: noticed, shown where, ended or started again."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from harness.command import Distrun, recorded_events

HANGS = """
    import os, socket, sys, threading, time

    def wait_for_ever():
        threading.Event().wait()

    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
    print("it begins", flush=True)
    """
STALL = 8
"""Seconds for timeouts.stall: enough for a busy machine."""


@pytest.fixture
def launch_program(distrun: Distrun) -> Callable[..., Any]:
    """Launch a program that is to stall; its argument is STALL."""

    def launch(body: str, **keys: Any) -> Any:
        (distrun.cwd / "train.py").write_text(textwrap.dedent(HANGS) + textwrap.dedent(body))
        program = {"script": "train.py", "args": [str(STALL)]}
        return distrun.launch("", program=program, timeouts={"stall": f"{STALL}s"}, **keys)

    return launch


def test_a_job_that_hangs_starts_again_and_then_ends_and_tells_where_each_task_stood(
    distrun: Distrun, launch_program: Callable[..., Any]
) -> None:
    done = launch_program(
        """
        if os.environ["DISTRUN_TASK"] == "worker:1":
            wait_for_ever()
        else:
            here, there = socket.socketpair()
            here.recv(1)
        """,
        restart={"max": 1, "backoff": "50ms"},
    )
    assert done.returncode == 75, done.stderr
    assert f"no progress within timeouts.stall, {STALL} s" in done.stderr
    assert distrun("logs", "--grep", "it begins").stdout.count("\n") == 4
    job = distrun.status()
    assert {task["attempt"] for task in job["tasks"]} == {1}
    told = [each for each in recorded_events(distrun) if each["event"] == "VerdictReached"]
    assert [each["verdict"]["kind"] for each in told] == ["stalled", "stalled"]
    verdict = job["verdict"]
    assert (verdict["kind"], verdict["task"]) == ("stalled", None)
    evidence = {each["task"]: each["text"] for each in verdict["evidence"]}
    assert "in wait_for_ever" in evidence["worker:1"]
    assert "train.py" in evidence["worker:0"]
    assert "in wait_for_ever" in distrun("logs", "-t", "worker:1").stdout


def test_steps_keep_a_silent_job_alive_and_lines_do_not_one_that_had_steps(
    distrun: Distrun, launch_program: Callable[..., Any]
) -> None:
    done = launch_program(
        """
        for step in range(12):  # longer than timeouts.stall in all
            notify.send(b"STEP=%d" % step)
            time.sleep(0.12 * float(sys.argv[1]))
        if os.environ["DISTRUN_TASK"] == "worker:1":
            while True:
                print("still waiting", flush=True)
                time.sleep(0.1)
        wait_for_ever()
        """
    )
    assert done.returncode == 75, done.stderr
    assert {task["progress"].get("STEP") for task in distrun.status()["tasks"]} == {11}
