"""`kill -9` of launch, supervisor, agent and guard, or their hanging: nothing is left."""

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun
from harness.processes import alive, descendants, hanging, survivors
from harness.terminal import OpenTerminal, Terminal
from harness.waiting import SOON, wait_until

HIDERS = """
setsid sleep 600 &
timeout 600 sleep 600 &
env -i sleep 600 &
env -i setsid sleep 600 &
(setsid sh -c 'sleep 600 & sleep 600' &)
(trap '' TERM; setsid sleep 600 &)
trap '' TERM
while :; do sleep 1; done
"""


def family_of(pid: int) -> set[psutil.Process]:
    return {psutil.Process(pid), *descendants(pid)}


@pytest.mark.parametrize(
    ("victims", "code", "cause"),
    [
        (["supervisor"], 70, "was killed by SIGKILL; its tasks have been ended"),
        (["guard"], 69, "the guard of its agent, the process that started the agent, was killed"),
        (["supervisor", "agent"], 70, ""), (["launch"], -9, ""),
    ],
)  # fmt: skip
def test_deaths_leave_nothing(distrun: Distrun, victims: list[str], code: int, cause: str) -> None:
    launch = distrun.launched(HIDERS)
    # Each task's own processes are there too, not only its shell.
    wait_until(lambda: len(family_of(launch.pid)) >= 16, what="each has 8 processes")
    processes = family_of(launch.pid)
    for pid in [distrun.victim_of(who, launch) for who in victims]:
        os.kill(pid, signal.SIGKILL)
    _, said = launch.communicate(timeout=60)
    wait_until(lambda: not any(map(alive, processes)), 30.0, "nothing is left")
    assert launch.returncode == code
    assert cause in said
    assert "Traceback" not in said
    assert "received SIGTERM" not in said


def test_a_supervisor_that_gets_sigterm_stops_its_job(distrun: Distrun) -> None:
    launch = distrun.launched("exec sleep 600", workers=1)
    os.kill(distrun.victim_of("supervisor", launch), signal.SIGTERM)
    _, said = launch.communicate(timeout=60)
    assert (launch.returncode, "SIGTERM" in said) == (143, True)


def test_what_is_suspended_hangs_no_command_even_with_a_full_queue(distrun: Distrun) -> None:
    job = distrun.detached("exec sleep 600", workers=1)
    folder = os.open(distrun.status()["folder"], os.O_RDONLY)
    task = distrun.status()["tasks"][0]["pid"]
    for pid in (task, *(distrun.victim_of(who, None) for who in ("agent", "supervisor"))):
        os.kill(pid, signal.SIGSTOP)
    with contextlib.ExitStack() as commands:  # which gave up
        commands.callback(os.close, folder)
        while True:
            command = commands.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            command.setblocking(False)
            try:
                command.connect(f"/proc/self/fd/{folder}/control.sock")
            except BlockingIOError:
                break
    assert distrun.status()["state"] == "running"
    assert distrun("wait", "--timeout", "100ms", job, timeout=60).returncode == 124
    assert distrun("kill", job, timeout=60).returncode == 0
    assert distrun.status()["state"] == "stopped"


def test_an_agent_that_was_stopped_still_reports_the_exit_of_a_task(distrun: Distrun) -> None:
    """Its guard resumes it, and the supervisor both."""
    script = "until test -e go-$DISTRUN_ATTEMPT; do sleep 0.02; done; exit 3"
    launch = distrun.launched(script, workers=1, restart={"max": 1, "backoff": "10ms"})
    for attempt, victims in enumerate((["agent"], ["guard", "agent"])):
        wait_until(lambda: distrun.status()["tasks"][0]["attempt"] == attempt)  # noqa: B023
        for pid in [distrun.victim_of(who, launch) for who in victims]:
            os.kill(pid, signal.SIGSTOP)
        (distrun.cwd / f"go-{attempt}").touch()
    assert launch.wait(60) == 3


def test_a_dead_supervisors_tasks_are_told_of_to_their_ends(distrun: Distrun) -> None:
    """What the agent had nobody to tell to; also of a task that was to start again."""
    script = (
        "test $DISTRUN_TASK = worker:1 && trap 'exit 7' TERM; touch up-$DISTRUN_TASK; "
        "test $DISTRUN_TASK = worker:0 && exit 0; sleep 600 & wait"
    )
    distrun("launch", "-d", distrun.write_spec(script, workers=3, restart={"max": 3}))
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 3, timeout=30)
    wait_until(lambda: distrun.status()["tasks"][0]["state"] == "succeeded", timeout=30)
    following = distrun.start("events", "-f", stderr=-1, text=True)
    os.kill(distrun.status()["supervisor_pid"], signal.SIGKILL)
    assert "died: the result of the job is unknown" in following.communicate(timeout=60)[1]
    assert following.returncode == 70

    def ends() -> list[tuple[str, int | None, str | None]] | None:
        job = distrun.status()
        tasks = [(t["state"], t["exit_code"], t["signal"]) for t in job["tasks"]]
        return tasks if job["state"] == "lost" and "lost" not in str(tasks) else None

    assert wait_until(ends, timeout=30) == [
        ("succeeded", 0, None), ("stopped", 7, None), ("stopped", None, "SIGTERM"),
    ]  # fmt: skip
    assert '"lost"' in distrun.asked("ps", "-a", "--json")


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


def press_ctrl_c_three_times(window: Terminal) -> None:
    for said in ("stopping job", "killing it at once"):
        window.type(CTRL_C)
        window.shows(said)
    window.type(CTRL_C)
    window.finish()


def test_kill_tells_how_to_end_a_job_whose_supervisor_hangs(distrun: Distrun) -> None:
    job, other = distrun.detached(SLEEPS, name="hangs"), distrun.detached(SLEEPS, name="ends")
    pid = distrun.status(job)["supervisor_pid"]
    with hanging(pid):
        said = distrun.told(70, "kill", job, other, "--grace", "100ms")
        assert f"job {other} has ended" in said
        assert f"waiting for its supervisor (process {pid})" in said
        command = re.search(r"to end it and all its tasks: (.*)", said)
        assert command is not None
        assert command[1] == f"kill -KILL {pid}; distrun kill {job}"
        subprocess.run(["kill", "-KILL", str(pid)], check=True)
    assert distrun("kill", job).returncode == 0
    wait_until(nothing_left(job), timeout=30)


def test_a_third_ctrl_c_ends_a_supervisor_that_hangs(distrun: Distrun, window: Terminal) -> None:
    job, pid = distrun.status()["job_id"], distrun.status()["supervisor_pid"]
    with hanging(pid):
        press_ctrl_c_three_times(window)
        assert window.process.returncode == 130
        assert " ".join(window.text().split()).endswith("nothing of the job is left")
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
        kill = distrun.start("kill", job, stderr=subprocess.PIPE, text=True)
        assert kill.stderr is not None
        line = kill.stderr.readline()
    assert line.startswith(f"distrun: job {job}: waiting for worker:0, worker:1 to end")
    assert kill.stderr.read() == f"distrun: job {job} has ended\n"
    assert kill.wait(30) == 0
    wait_until(nothing_left(job), timeout=30)
    assert distrun.status()["state"] == "stopped"


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().removesuffix("\0").split("\0")


def environment(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0").decode()


def test_it_and_its_agent_have_names(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert (os.getsid(pid), os.readlink(f"/proc/{pid}/fd/0")) == (pid, os.devnull)
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
