"""`distrun stacks`, and the verdict on a job that hangs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil

from distrun.agent.tasks import stacks
from harness.command import Distrun, recorded_events
from harness.hanging import ACCEPTS, hanging_script
from harness.terminal import OpenTerminal
from harness.waiting import wait_until


def test_the_task_that_hangs_is_found_in_one_command(
    distrun: Distrun, terminal: OpenTerminal
) -> None:
    hanging = distrun.detached(hanging_script(distrun.cwd), workers=3)
    wait_until(lambda: distrun.asked("logs", hanging).count("hangs") == 3)
    shown = distrun("stacks").stdout.splitlines()
    assert shown[0] == "worker:1: load_batch, hang.py:6"
    assert f"worker:0, worker:2: {ACCEPTS}, called from all_reduce, hang.py:11" in shown
    asked = json.loads(distrun("stacks", hanging, "-t", "worker:0", "--json").stdout)
    assert [entry["tasks"] for entry in asked["entries"]] == [["worker:0"]]
    (process,) = asked["processes"]
    pids = {task["task"]: task["pid"] for task in distrun.status()["tasks"]}
    assert process["pid"] == pids["worker:0"]
    assert process["threads"][0]["frames"][1]["line"] == 11
    window = terminal("stacks", columns=40)
    wait_until(window.ended)
    assert max(map(len, window.text().splitlines())) <= 40
    # One that is suspended is shown, and stays so. Nothing has been stopped.
    os.kill(pids["worker:1"], signal.SIGSTOP)
    assert distrun("stacks").stdout.startswith("worker:1: load_batch, hang.py:6")
    assert psutil.Process(pids["worker:1"]).status() == psutil.STATUS_STOPPED
    os.kill(pids["worker:1"], signal.SIGCONT)
    assert distrun("stacks", "-t", "worker:7").returncode == 2
    assert distrun("kill").returncode == 0
    ended = distrun("stacks")
    assert (ended.returncode, "has ended: nothing of it runs" in ended.stderr) == (2, True)


def test_no_process_stays_suspended_by_a_py_spy_that_takes_too_long(tmp_path: Path) -> None:
    """It pauses a process while it reads: killed then, on a busy machine, it does not resume it."""
    hanging = tmp_path / "py-spy"
    find = 'while [ "$1" != --pid ]; do shift; done'
    hanging.write_text(f"#!/bin/sh\n{find}\nkill -STOP $2\nexec sleep 100\n")
    hanging.chmod(0o755)
    program = os.open(hanging, os.O_RDONLY)
    process = psutil.Popen(["sleep", "100"])
    try:
        answer = stacks._dump_process(program, process.pid, 1.0, [])
        assert answer == {"error": "py-spy took longer than 1 s"}
        wait_until(lambda: process.status() == psutil.STATUS_SLEEPING)
    finally:
        process.kill()
        process.wait()
        os.close(program)


def test_what_is_no_python_program_is_told(distrun: Distrun) -> None:
    distrun.detached("sleep 100", workers=1)
    shown = distrun("stacks")
    assert shown.stdout.strip() == "worker:0: it is no Python program"
    assert distrun("kill").returncode == 0


def test_a_stall_starts_the_job_again_then_ends_it_and_names_the_task_that_stood_elsewhere(
    distrun: Distrun,
) -> None:
    keys = {"restart": {"max": 1, "backoff": "50ms"}, "timeouts": {"stall": "3s", "grace": "1s"}}
    done = distrun.launch(hanging_script(distrun.cwd), workers=3, **keys)
    assert done.returncode == 75
    assert (
        "no progress within timeouts.stall, 3 s; unlike the others, worker:1 stood at load_batch, "
        "hang.py:6 (stalled)"
    ) in done.stderr
    job, recorded = distrun.status(), recorded_events(distrun)
    assert {task["attempt"] for task in job["tasks"]} == {1}
    assert (job["verdict"]["kind"], job["verdict"]["task"]) == ("stalled", None)
    places = [each["places"] for each in recorded if each["event"] == "TimedOut"]
    assert [place["tasks"] for place in places[-1]] == [["worker:1"], ["worker:0", "worker:2"]]
    assert distrun("report", "-o", "page.html").returncode == 0
    page = (distrun.cwd / "page.html").read_text()
    assert "load_batch, hang.py" in page.partition("Where the tasks stood when the job stalled")[2]
