"""`kill` and `wait` say that a job has ended only when they have verified that."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from distrun.agent import protocol
from distrun.agent.linux import labels, processes
from distrun.agent.protocol.channel import LENGTH
from distrun.events import JobEnded, Origin, Outcome, Result
from distrun.jobstore import JobFolder, JobStore
from distrun.record import EventLog
from harness.command import Distrun, Status, recorded_events
from harness.processes import alive, survivors
from harness.values import not_none
from harness.waiting import SOON, wait_until

IGNORES_TERM = 'trap "" TERM; echo >>up; while :; do sleep 0.1; done'
# Holds a job's lock and ends each channel at its first message, as a supervisor of an earlier
# version that does not understand it.
OTHER_VERSION = """
import sys
from pathlib import Path
from distrun import jobstore
folder = jobstore.create(jobstore.JobFolder(Path(sys.argv[1])), b"name: x\\n")
server = folder.listen()
server.setblocking(True)
print("ready", flush=True)
while True:
    client, _ = server.accept()
    client.recv(1)
    client.close()
"""


def family_of(status: Status, job: str) -> tuple[int, int, int, int]:
    """The supervisor, the guard, the agent, and the first task."""
    shown = status(job)
    guard = processes.children(shown["supervisor_pid"])[0]
    agent = processes.children(guard)[0]
    return shown["supervisor_pid"], guard, agent, shown["tasks"][0]["pid"]


def kill_all(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def lose(status: Status, job: str) -> int:
    """Kill supervisor, guard and agent at once. Returns the task that lives on."""
    supervisor, guard, agent, task = family_of(status, job)
    kill_all(guard, agent, supervisor)
    wait_until(lambda: status(job)["state"] == "lost")
    assert alive(task)
    return task


def started_kill(distrun: Distrun, job: str, *options: str) -> subprocess.Popen[str]:
    """Start `distrun kill`; returns once the supervisor has recorded the request."""
    kill = distrun.start("kill", job, *options, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(e["event"] == "StopRequested" for e in recorded_events(distrun, job)))
    return kill


@pytest.mark.parametrize("with_agent", [False, True])
def test_kill_ends_what_a_supervisor_leaves_that_dies_meanwhile(
    with_agent: bool, distrun: Distrun
) -> None:
    job = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    supervisor, guard, agent, pid = family_of(distrun.status, job)
    task = psutil.Process(pid)  # its number may be another's soon
    kill = started_kill(distrun, job, "--grace", "60s")
    kill_all(supervisor, *((guard, agent) if with_agent else ()))
    said = kill.communicate(timeout=SOON)[1]
    assert kill.returncode == 0
    assert f"the supervisor of job {job} died; ended " in said
    assert not alive(task)
    assert not survivors(job)
    shown = distrun.status(job)
    assert (shown["state"], shown["tasks"][0]["state"]) == ("stopped", "stopped")
    assert distrun("wait", job).returncode == 137


def test_kill_ends_what_a_job_has_left_that_has_ended(distrun: Distrun) -> None:
    job = distrun.detached("exit 0", workers=1)
    assert distrun("wait", job).returncode == 0
    token = (distrun.home / "jobs" / job / "token").read_text()
    marks = {"DISTRUN_JOB_ID": job, "DISTRUN_TASK": "worker:0", "DISTRUN_TOKEN": token}
    label = labels.of_attempt(job, "worker:0", 0)
    words = ["prlimit", f"--locks={label}:", "sleep", "600"]
    left = subprocess.Popen(words, env={**os.environ, **marks}, start_new_session=True)
    wait_until(lambda: labels.read(left.pid) == label)
    done = distrun("kill", job)
    assert left.wait(SOON) == -signal.SIGTERM
    assert done.returncode == 0
    assert "had already succeeded; ended 1 processes of the job" in done.stderr
    assert distrun.status(job)["state"] == "succeeded"


def test_kill_all_ends_lost_jobs_and_what_ended_ones_have_left(distrun: Distrun) -> None:
    lost, ended, running = (distrun.detached(IGNORES_TERM, workers=1) for _ in range(3))
    wait_until(lambda: (distrun.cwd / "up").read_text().count("\n") == 3)
    tasks = [
        lose(distrun.status, lost),
        lose(distrun.status, ended),
        distrun.status(running)["tasks"][0]["pid"],
    ]
    cause = protocol.Cause(protocol.Code.SUPERVISOR_DIED)
    outcome = Outcome(result=Result.FAILED, exit_code=70, origin=Origin.DISTRUN, cause=cause)
    log = EventLog(str(distrun.home / "jobs" / ended / "events.jsonl"))
    log.append(JobEnded(at=time.time(), outcome=outcome))
    log.close()
    kept = distrun("clean", "--all")
    assert kept.stdout == ""
    assert f"job {ended} is kept: its tasks may still run here" in kept.stderr
    done = distrun("kill", "--all")
    assert done.returncode == 0, done.stderr
    assert not any(map(alive, tasks))
    assert [distrun.status(each)["state"] for each in (lost, ended)] == ["stopped", "failed"]
    again = distrun("kill", "--all")
    assert (again.returncode, again.stderr) == (0, "")


@contextlib.contextmanager
def supervisor_of_another_version(home: Path) -> Iterator[str]:
    folder = home / "jobs" / "other-abc234"
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER_VERSION, os.fspath(folder)], stdout=subprocess.PIPE
    )
    try:
        assert not_none(process.stdout).readline() == b"ready\n"
        yield folder.name
    finally:
        process.kill()
        process.communicate()


def test_the_end_of_a_channel_is_not_the_end_of_the_job(distrun: Distrun) -> None:
    with supervisor_of_another_version(distrun.home) as job:
        killed = distrun("kill", job)
        assert killed.returncode == 69
        assert "lives, and does not understand this command" in killed.stderr
        assert "has ended" not in killed.stderr
        waited = distrun("wait", job, "--timeout", "500ms")
        assert waited.returncode == 124, waited.stderr


FRAMES = {
    "another version": {"type": "Watch", "version": 999},
    "a kind of a later version": {"type": "StopGently", "version": 999},
    "an unknown kind": {"type": "StopGently"},
    "another form": {"type": "StopJob", "version": protocol.PROTOCOL, "signal": 15},
}


@pytest.mark.parametrize("which", FRAMES)
def test_a_request_that_a_supervisor_does_not_understand_is_answered(
    which: str, distrun: Distrun
) -> None:
    job = distrun.detached("exec sleep 600", workers=1)
    connection = not_none(JobStore(distrun.home).find(job).connect())
    connection.setblocking(True)
    connection.settimeout(SOON)
    body = json.dumps(FRAMES[which]).encode()
    connection.sendall(LENGTH.pack(len(body)) + body)
    answer = b""
    while block := connection.recv(1 << 16):
        answer += block
    connection.close()
    text = json.loads(answer[LENGTH.size :])
    differs = "999" in str(FRAMES[which])
    assert (text["type"], text["exit_code"]) == ("Refused", 69)
    assert ("request_version_differs" in str(text)) is differs
    assert distrun.status(job)["state"] == "running"
    assert distrun("kill", job).returncode == 0


ASKING = {
    "kill": ["kill"],
    "logs": ["logs", "-f"],
    "events": ["events", "-f"],
    "status": ["status", "--watch"],
    "stacks": ["stacks"],
}


@pytest.mark.parametrize("command", ASKING)
def test_a_command_shows_the_answer_of_a_supervisor_of_another_version(
    command: str, distrun: Distrun
) -> None:
    job = distrun.detached("exec sleep 600", workers=1)
    changed = distrun.cwd / "sitecustomize.py"
    changed.write_text("import distrun.agent.protocol.channel as channel\nchannel.PROTOCOL = 999\n")
    sources = os.environ["PYTHONPATH"]
    code = "import sitecustomize, sys; from distrun.__main__ import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *ASKING[command], job],
        env={**os.environ, "PYTHONPATH": f"{distrun.cwd}{os.pathsep}{sources}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SOON,
    )
    assert done.returncode == 69, done.stderr
    assert "another version of distrun" in done.stderr
    assert distrun("kill", job).returncode == 0


def test_several_jobs_are_told_apart_and_the_worst_exit_counts(distrun: Distrun) -> None:
    runs, lost = (
        distrun.detached("exec sleep 600", workers=1),
        distrun.detached(IGNORES_TERM, workers=1, name="x"),
    )
    wait_until((distrun.cwd / "up").exists)
    task = lose(distrun.status, lost)
    with supervisor_of_another_version(distrun.home) as other:
        done = distrun("kill", other, lost, runs)
    assert done.returncode == 69
    assert f"the supervisor of job {other}" in done.stderr
    assert f"the supervisor of job {lost} had died; ended " in done.stderr
    assert f"job {runs} has ended" in done.stderr
    assert not alive(task)


def test_two_kills_at_once_of_a_lost_job(distrun: Distrun) -> None:
    job = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = lose(distrun.status, job)
    kills = [distrun.start("kill", job, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [each.communicate(timeout=SOON)[1] for each in kills]
    assert [each.returncode for each in kills] == [0, 0], said
    assert not alive(task)
    assert sum(e["event"] == "JobEnded" for e in recorded_events(distrun, job)) == 1


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "its first line is torn": lambda text: text[:20],
    "a line is no event": lambda text: text.replace(b"TaskStarted", b"TaskStart\0d"),
    "it is empty": lambda _: b"",
}


@pytest.mark.parametrize(
    ("damage", "has_hosts"),
    [("its first line is torn", False), ("a line is no event", True), ("it is empty", True)],
)
def test_what_a_damaged_record_does_not_tell_is_not_taken_for_ended(
    damage: str, has_hosts: bool, distrun: Distrun
) -> None:
    job = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = lose(distrun.status, job)
    record = distrun.home / "jobs" / job / "events.jsonl"
    record.write_bytes(DAMAGE[damage](record.read_bytes()))
    if has_hosts:
        spec = record.with_name("spec.json")
        spec.write_text(spec.read_text().replace('"name": "localhost"', '"name": "h1"'))
    done = distrun("kill", job)
    assert not alive(task), "the token tells whose it is"
    assert done.returncode == (69 if has_hosts else 0), done.stderr
    assert ("it is not known where its tasks may run" in done.stderr) is has_hosts
    assert "Traceback" not in done.stderr


def test_a_job_whose_folder_is_removed_while_kill_waits(distrun: Distrun) -> None:
    job = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    supervisor, guard, agent, task = family_of(distrun.status, job)
    kill = started_kill(distrun, job, "--grace", "60s")
    shutil.rmtree(distrun.home / "jobs" / job)
    kill_all(supervisor, guard, agent)
    said = kill.communicate(timeout=SOON)[1]
    assert kill.returncode == 69
    assert "was removed" in said
    assert not alive(task)


def test_wait_does_not_end_with_a_channel(distrun: Distrun) -> None:
    """A supervisor may close a channel and live; and it may die, and leave tasks."""
    with supervisor_of_another_version(distrun.home) as job:
        folder = JobFolder(distrun.home / "jobs" / job)
        wait = distrun.start("wait", job, stderr=subprocess.PIPE, text=True)
        connection = not_none(wait_until(folder.connect))
        connection.close()
        with pytest.raises(subprocess.TimeoutExpired):
            wait.wait(0.5)
    said = wait.communicate(timeout=SOON)[1]
    assert wait.returncode in (69, 70), said


def test_wait_tells_that_tasks_of_a_lost_job_still_run(distrun: Distrun) -> None:
    job = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    lose(distrun.status, job)
    done = distrun("wait", job)
    assert done.returncode == 70
    assert f"its tasks still run; to end them: distrun kill {job}" in done.stderr
    assert distrun("kill", job).returncode == 0
