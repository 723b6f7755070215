"""`kill` and `wait` say that a job has ended only when they have verified that."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from distrun.agent.linux import labels
from distrun.agent.protocol.channel import LENGTH
from distrun.job.folder import JobStore
from harness.command import Distrun, recorded_events
from harness.processes import alive, survivors
from harness.values import not_none
from harness.waiting import SOON, wait_until

IGNORES_TERM = 'trap "" TERM; echo >>up; while :; do sleep 0.1; done'
# Holds a job's lock and ends each channel at its first message, as a supervisor of an earlier
# version that does not understand it.
OTHER_VERSION = """
import sys
from pathlib import Path
from typing import Any
from distrun.job import folder as job_folder
folder = job_folder.create(job_folder.JobFolder(Path(sys.argv[1])), b"name: x\\n")
server = folder.listen()
server.setblocking(True)
print("ready", flush=True)
while True:
    client, _ = server.accept()
    client.recv(1)
    client.close()
"""


@pytest.mark.parametrize("with_agent", [False, True])
def test_kill_ends_what_a_supervisor_leaves_that_dies_meanwhile(
    with_agent: bool, distrun: Distrun
) -> None:
    job = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    names = ("supervisor", *(("guard", "agent") if with_agent else ()))
    victims = [distrun.victim_of(who, None) for who in names]
    task = psutil.Process(distrun.status(job)["tasks"][0]["pid"])  # its number may be reused
    kill = distrun.start("kill", job, "--grace", "60s", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(e["event"] == "StopRequested" for e in recorded_events(distrun, job)))
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    said = kill.communicate(timeout=SOON)[1]
    assert kill.returncode == 0
    assert f"the supervisor of job {job} died; ended " in said
    assert not alive(task)
    assert not survivors(job)
    shown = distrun.status(job)
    assert (shown["state"], shown["tasks"][0]["state"]) == ("stopped", "stopped")
    assert distrun("wait", job).returncode == 137


def test_kill_all_ends_lost_jobs_and_what_ended_ones_have_left(distrun: Distrun) -> None:
    ended = distrun.detached("exit 0", workers=1)
    lost = distrun.detached(IGNORES_TERM, workers=1)
    running = distrun.detached("exec sleep 600", workers=1)
    wait_until((distrun.cwd / "up").exists)
    tasks = [distrun.lose(lost), distrun.status(running)["tasks"][0]["pid"]]
    assert distrun("wait", ended).returncode == 0
    token = (distrun.home / "jobs" / ended / "token").read_text()
    marks = {"DISTRUN_JOB_ID": ended, "DISTRUN_TASK": "worker:0", "DISTRUN_TOKEN": token}
    label = labels.of_attempt(ended, "worker:0", 0)
    words = ["prlimit", f"--locks={label}:", "sleep", "600"]
    left = subprocess.Popen(words, env={**os.environ, **marks}, start_new_session=True)
    wait_until(lambda: labels.read(left.pid) == label)
    kept = distrun("clean", "--all")
    assert kept.stdout == ""
    assert f"job {ended} is kept: its tasks may still run here" in kept.stderr
    done = distrun("kill", "--all")
    assert left.wait(SOON) == -signal.SIGTERM
    assert done.returncode == 0, done.stderr
    assert "had already succeeded; ended 1 processes of the job" in done.stderr
    assert f"the supervisor of job {lost} had died; ended " in done.stderr
    assert not any(map(alive, tasks))
    assert [distrun.status(each)["state"] for each in (lost, ended)] == ["stopped", "succeeded"]
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


def answer_to(distrun: Distrun, job: str, request: dict[str, Any]) -> dict[str, Any]:
    connection = not_none(JobStore(distrun.home).find(job).connect())
    connection.settimeout(SOON)
    body = json.dumps(request).encode()
    connection.sendall(LENGTH.pack(len(body)) + body)
    with connection, connection.makefile("rb") as answer:
        return dict(json.loads(answer.read()[LENGTH.size :]))


def test_a_request_that_a_supervisor_does_not_understand_is_answered_and_shown(
    distrun: Distrun,
) -> None:
    job = distrun.detached("exec sleep 600", workers=1)
    for request in ({"type": "Watch", "version": 999}, {"type": "NoSuchKind"}):
        answer = answer_to(distrun, job, request)
        assert (answer["type"], answer["exit_code"]) == ("Refused", 69)
        assert ("request_version_differs" in str(answer)) is ("version" in request)
    later = "import distrun.agent.protocol.channel as channel; channel.PROTOCOL = 999; "
    code = f"{later}import sys; from distrun.__main__ import main; sys.exit(main())"
    distrun.argv = (sys.executable, "-c", code)
    for words in (["kill"], ["logs", "-f"], ["stacks"]):
        done = distrun(*words, job)
        assert done.returncode == 69, done.stderr
        assert "another version of distrun" in done.stderr
    distrun.argv = (sys.executable, "-m", "distrun")
    assert distrun.status(job)["state"] == "running"
    assert distrun("kill", job).returncode == 0


def test_several_jobs_are_told_apart_and_the_worst_exit_counts(distrun: Distrun) -> None:
    runs = distrun.detached("exec sleep 600", workers=1)
    lost = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = distrun.lose(lost)
    waited = distrun("wait", lost)
    assert waited.returncode == 70
    assert f"its tasks still run; to end them: distrun kill {lost}" in waited.stderr
    with supervisor_of_another_version(distrun.home) as other:
        done = distrun("kill", other, lost, runs)
        waited = distrun("wait", other, "--timeout", "500ms")
    assert done.returncode == 69
    assert f"the supervisor of job {other} (process " in done.stderr
    assert "lives, and does not understand this command" in done.stderr
    assert f"job {other} has ended" not in done.stderr
    assert waited.returncode == 124, "the end of a channel is not the end of the job"
    assert f"job {runs} has ended" in done.stderr
    assert not alive(task)


def test_two_kills_at_once_of_a_lost_job(distrun: Distrun) -> None:
    job = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = distrun.lose(job)
    kills = [distrun.start("kill", job, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [each.communicate(timeout=SOON)[1] for each in kills]
    assert [each.returncode for each in kills] == [0, 0], said
    assert not alive(task)
    assert sum(e["event"] == "JobEnded" for e in recorded_events(distrun, job)) == 1


@pytest.mark.parametrize(("kept", "has_hosts"), [(20, False), (0, True)])
def test_what_a_damaged_record_does_not_tell_is_not_taken_for_ended(
    kept: int, has_hosts: bool, distrun: Distrun
) -> None:
    job = distrun.detached(IGNORES_TERM, workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = distrun.lose(job)
    record = distrun.home / "jobs" / job / "events.jsonl"
    record.write_bytes(record.read_bytes()[:kept])
    if has_hosts:
        spec = record.with_name("spec.json")
        spec.write_text(spec.read_text().replace('"name": "localhost"', '"name": "h1"'))
    done = distrun("kill", job)
    assert not alive(task), "the token tells whose it is"
    assert done.returncode == (69 if has_hosts else 0), done.stderr
    assert ("it is not known where its tasks may run" in done.stderr) is has_hosts
    assert "Traceback" not in done.stderr
