"""A supervisor or an agent that lives and does nothing: no command waits for it for ever."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable

import pytest

from harness.command import Distrun
from harness.processes import survivors
from harness.terminal import OpenTerminal, Terminal
from harness.tracing import hanging
from harness.waiting import wait_until

CTRL_C = "\x03"
SLEEPS = "echo ready $DISTRUN_TASK; exec sleep 600"


def nothing_left(job_id: str) -> Callable[[], bool]:
    return lambda: not survivors(job_id)


@pytest.fixture
def window(distrun: Distrun, terminal: OpenTerminal) -> Terminal:
    """A launch in the foreground, whose two tasks run."""
    opened = terminal("launch", distrun.write_spec(SLEEPS))
    wait_until(lambda: opened.read().count("ready") == 2, timeout=30)
    return opened


def shows(window: Terminal, text: str) -> bool:
    return text in window.text()


def press_ctrl_c_three_times(window: Terminal) -> None:
    for said in ("stopping job", "killing it at once"):
        window.type(CTRL_C)
        wait_until(functools.partial(shows, window, said), timeout=30)
    window.type(CTRL_C)
    wait_until(window.ended, timeout=30)


def test_kill_tells_how_to_end_a_job_whose_supervisor_hangs(distrun: Distrun) -> None:
    job, other = distrun.detached(SLEEPS, name="hangs"), distrun.detached(SLEEPS, name="ends")
    pid = distrun.status(job)["supervisor_pid"]
    with hanging(pid):
        done = distrun("kill", job, other, "--grace", "100ms", timeout=60)
        assert done.returncode == 70
        assert f"job {other} has ended" in done.stderr
        assert f"waiting for its supervisor (process {pid}), which has not answered" in done.stderr
        assert f"the supervisor of job {job} (process {pid}) does not answer" in done.stderr
        command = re.search(r"to end it and all its tasks: (.*)", done.stderr)
        assert command is not None
        assert command[1] == f"kill -KILL {pid}; distrun kill {job}"
        subprocess.run(["kill", "-KILL", str(pid)], check=True)
    assert distrun("kill", job, timeout=60).returncode == 0
    wait_until(nothing_left(job), timeout=30)


def test_kill_shows_the_tasks_that_it_waits_for(distrun: Distrun) -> None:
    job = distrun.detached(SLEEPS)
    with hanging(distrun.victim_of("agent", None)):
        kill = distrun.start("kill", job, "--grace", "100ms", stderr=subprocess.PIPE, text=True)
        assert kill.stderr is not None
        line = kill.stderr.readline()
    assert line.startswith(f"distrun: job {job}: waiting for worker:0, worker:1 to end")
    assert kill.stderr.read() == f"distrun: job {job} has ended\n"
    assert kill.wait(30) == 0
    kill.stderr.close()


def test_a_third_ctrl_c_ends_a_supervisor_that_hangs(distrun: Distrun, window: Terminal) -> None:
    job, pid = distrun.status()["job_id"], distrun.status()["supervisor_pid"]
    with hanging(pid):
        press_ctrl_c_three_times(window)
        assert window.process.returncode == 130
        said = " ".join(window.text().split())
        assert f"the supervisor of job {job} did not answer and was killed" in said
        assert said.endswith("nothing of the job is left")
        assert nothing_left(job)()


def test_a_third_ctrl_c_returns_while_a_host_hangs(distrun: Distrun, window: Terminal) -> None:
    job = distrun.status()["job_id"]
    with hanging(distrun.victim_of("agent", None)):
        press_ctrl_c_three_times(window)
        assert window.process.returncode == 130
        said = " ".join(window.text().split())
        waiting = "waiting for worker:0 on localhost, worker:1 on localhost"
        assert f"job {job} has not ended yet: {waiting}" in said
        assert f"to wait for that: distrun kill {job}" in said
        assert not nothing_left(job)()
    wait_until(nothing_left(job), timeout=30)
    assert distrun.status()["state"] == "stopped"
