"""Jobs that hang, with real processes: noticed, shown where, ended or started again."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from harness.command import Distrun

HANGS = """
    import os, socket, sys, threading, time

    def wait_for_ever():
        threading.Event().wait()

    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
    print("it begins", flush=True)
    """
PATIENCE = (2, 10, 40)
"""Seconds for timeouts.stall: the later ones only on a machine too busy for the first."""


@pytest.fixture
def launch_patiently(distrun: Distrun) -> Callable[..., Any]:
    """Launch a program that is to stall, until `came_so_far()` says that it had time for more.

    Its argument is the seconds of timeouts.stall; more keys of the spec as keywords.
    """

    def launch(body: str, came_so_far: Callable[[], bool], **keys: Any) -> tuple[Any, int]:
        (distrun.cwd / "train.py").write_text(textwrap.dedent(HANGS) + textwrap.dedent(body))
        for seconds in PATIENCE:
            program = {"script": "train.py", "args": [str(seconds)]}
            timeouts = {"stall": f"{seconds}s"}
            done = distrun.launch("", program=program, timeouts=timeouts, **keys)
            if came_so_far():
                break
        return done, seconds

    return launch


def test_a_job_that_hangs_ends_and_tells_where_each_task_stood(
    distrun: Distrun, launch_patiently: Any
) -> None:
    def both_began() -> bool:
        return bool(distrun("logs", "--grep", "it begins").stdout.count("\n") == 2)

    done, seconds = launch_patiently(
        """
        if os.environ["DISTRUN_TASK"] == "worker:1":
            wait_for_ever()
        else:
            here, there = socket.socketpair()
            here.recv(1)
        """,
        both_began,
    )
    assert done.returncode == 75, done.stderr
    assert f"no progress within timeouts.stall, {seconds} s" in done.stderr
    job = distrun.status()
    verdict = job["verdict"]
    assert (verdict["kind"], verdict["task"]) == ("stalled", None)
    evidence = {each["task"]: each["text"] for each in verdict["evidence"]}
    assert "in wait_for_ever" in evidence["worker:1"]
    assert "train.py" in evidence["worker:0"]
    assert "in wait_for_ever" in distrun("logs", "-t", "worker:1").stdout


def test_a_job_that_hangs_starts_again(distrun: Distrun, launch_patiently: Any) -> None:
    def both_began_twice() -> bool:
        return bool(distrun("logs", "--grep", "it begins").stdout.count("\n") == 4)

    done, _ = launch_patiently(
        """
        if os.environ["DISTRUN_ATTEMPT"] == "0":
            wait_for_ever()
        """,
        both_began_twice,
        restart={"max": 1, "backoff": "50ms"},
    )
    assert done.returncode == 0, done.stderr
    job = distrun.status()
    assert {task["attempt"] for task in job["tasks"]} == {1}
    told = [json.loads(line) for line in distrun("events", "--json").stdout.splitlines()]
    (found,) = [each for each in told if each["event"] == "VerdictReached"]
    assert found["verdict"]["kind"] == "stalled"


def test_steps_keep_a_silent_job_alive_and_lines_do_not_one_that_had_steps(
    distrun: Distrun, launch_patiently: Any
) -> None:
    def steps() -> set[int | None]:
        return {task["progress"].get("STEP") for task in distrun.status()["tasks"]}

    done, _ = launch_patiently(
        """
        for step in range(12):  # longer than timeouts.stall in all
            notify.send(b"STEP=%d" % step)
            time.sleep(0.15 * float(sys.argv[1]))
        if os.environ["DISTRUN_TASK"] == "worker:1":
            while True:
                print("still waiting", flush=True)
                time.sleep(0.1)
        wait_for_ever()
        """,
        lambda: steps() == {11},
    )
    assert done.returncode == 75, done.stderr
    assert steps() == {11}
