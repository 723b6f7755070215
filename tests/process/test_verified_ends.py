"""`kill` and `wait` say that a job has ended only when they have verified that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
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
    """Other jobs are ended all the same, and the worst exit code counts."""
    lost = distrun.detached(IGNORES_TERM, workers=1)
    runs = distrun.detached("exec sleep 600", workers=1)
    wait_until((distrun.cwd / "up").exists)
    task = distrun.lose(lost)
    waited = distrun("wait", lost)
    assert waited.returncode == 70
    assert f"its tasks still run; to end them: distrun kill {lost}" in waited.stderr
    for request in ({"type": "Watch", "version": 999}, {"type": "NoSuchKind"}):
        answer = answer_to(distrun, runs, request)
        assert (answer["type"], answer["exit_code"]) == ("Refused", 69)
        assert ("request_version_differs" in str(answer)) is ("version" in request)
    later = "import distrun.agent.protocol.channel as channel; channel.PROTOCOL = 999; "
    code = f"{later}import sys; from distrun.__main__ import main; sys.exit(main())"
    usual, distrun.argv = distrun.argv, (sys.executable, "-c", code)
    for words in (["logs", "-f", runs], ["stacks", runs], ["kill", runs, lost]):
        done = distrun(*words)
        assert done.returncode == 69, done.stderr
        assert "another version of distrun" in done.stderr
    distrun.argv = usual
    assert f"the supervisor of job {lost} had died; ended " in done.stderr
    assert not alive(task)
    assert distrun.status(runs)["state"] == "running"
    assert distrun("kill", runs).returncode == 0


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
