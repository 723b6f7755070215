"""The supervisor is a fork of the launch command, without what the command has to itself."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.processes import alive, descendants
from harness.waiting import SOON, wait_until


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().removesuffix("\0").split("\0")


def environment(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0").decode()


def test_it_and_its_agent_are_told_from_the_command(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold nothing that the command has open, and the agent writes to the job's log."""
    monkeypatch.setenv("PYTHON", "python3")  # means nothing to Python itself
    reading, writing = os.pipe()
    options = {"pass_fds": [writing], "stdout": subprocess.PIPE, "stderr": writing, "text": True}
    launch = distrun.start("launch", "-d", distrun.write_spec("exec sleep 600"), **options)
    os.close(writing)
    job = launch.communicate(timeout=SOON)[0].strip()
    with os.fdopen(reading) as pipe:
        pipe.read()  # to its end: nobody else has the other one
    pid = distrun.status(job)["supervisor_pid"]
    assert arguments(pid) == [f"distrun: supervisor of {job}"]
    assert environment(pid) == f"DISTRUN_JOB_ID={job}"
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    family = {each.pid: arguments(each.pid) for each in descendants(pid)}
    agents = [each for each, name in family.items() if name == [f"distrun: agent of {job}"]]
    assert len(agents) == 2, family  # the agent and its guard
    token = (distrun.home / "jobs" / job / "token").read_text()
    for each in agents:
        assert environment(each) == f"DISTRUN_JOB_ID={job}\0DISTRUN_TOKEN={token}"
        assert os.readlink(f"/proc/{each}/fd/2").endswith(f"{job}/supervisor.log")
    assert distrun("kill", job).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_a_command_that_has_no_job_yet(distrun: Distrun, number: int) -> None:
    command = distrun.start("launch", "-", stdin=subprocess.PIPE)  # the spec comes by hand

    def waits() -> bool:
        names = [arguments(each.pid)[0] for each in descendants(command.pid)]
        return sorted(names) == ["distrun: agent", "distrun: supervisor"]

    wait_until(waits, SOON)
    family = descendants(command.pid)
    command.send_signal(number)
    assert command.wait(SOON) in (-number, 128 + number)  # how early it is decides
    wait_until(lambda: not any(map(alive, family)), SOON)


def test_modules_of_others_do_not_reach_it(distrun: Distrun) -> None:
    """They are imported by the command, as PYTHONPATH asks."""
    shadows = distrun.cwd / "shadows"
    shadows.mkdir()
    code = f"import os; open({str(distrun.cwd / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    code += Path(os.__file__).with_name("socket.py").read_text()
    (shadows / "socket.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": f"{shadows}:{os.environ['PYTHONPATH']}"}
    launched = distrun.start("launch", "-d", distrun.write_spec("exec sleep 600"), env=env)
    assert launched.wait(SOON) == 0
    ran_in = [int(line) for line in (distrun.cwd / "pids").read_text().split()]
    pid = distrun.status()["supervisor_pid"]
    assert launched.pid in ran_in
    assert pid not in ran_in
    assert "-I" in arguments(pid)
    distrun("kill")
