"""The commands on a detached job. Each command is a process of its own."""

import itertools
import json
import os
import shlex
import shutil
from types import SimpleNamespace

import pytest

from harness.command import Distrun
from harness.parts.cli import wait as wait_command
from harness.parts.job import control
from harness.parts.lifecycle import JobState
from harness.parts.records import JobFolder
from harness.processes import survivors
from harness.requirements import AS_ROOT, skip
from harness.waiting import SOON, wait_until


def test_a_detached_job_may_end_at_once_and_wait_has_a_failure(distrun: Distrun) -> None:
    """The job may end before or after the launch has seen all its tasks start."""
    jobs = [distrun.detached(f"exit {code}", workers=1) for code in (0, 7, 3)]
    assert "exit code 7" in distrun.told(7, "wait", "--timeout", "60s", *jobs).splitlines()[-1]
    assert [distrun("wait", job).returncode for job in jobs] == [0, 7, 3]


def test_the_timeout_of_wait_is_for_all_jobs_together(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [distrun.detached("exit 0", workers=1) for _ in range(2)]
    clock = SimpleNamespace(monotonic=itertools.count(step=3.0).__next__)
    waits: list[float] = []
    waited = control.wait_for_final_state

    def wait(folder: JobFolder, seconds: float) -> JobState:
        waits.append(seconds)
        return waited(folder, SOON)

    monkeypatch.setattr(wait_command, "time", clock)
    monkeypatch.setattr(control, "wait_for_final_state", wait)
    distrun.asked("wait", "--timeout", "60s", *jobs)
    assert waits == [57.0, 54.0]


def test_kill_grace_and_signal(distrun: Distrun) -> None:
    script = (
        "trap '' TERM; trap 'exit 9' INT; touch up-$DISTRUN_JOB_ID; while :; do sleep 0.1; done"
    )

    def start() -> None:
        job_id = distrun.detached(script, timeouts={"grace": "1h"}, workers=1)
        wait_until((distrun.cwd / f"up-{job_id}").exists, timeout=30)

    start()
    assert distrun("kill", "--grace", "300ms").returncode == 0
    assert {task["signal"] for task in distrun.status()["tasks"]} == {"SIGKILL"}
    start()
    assert distrun("kill", "--signal", "INT").returncode == 0
    assert {task["exit_code"] for task in distrun.status()["tasks"]} == {9}


def test_the_error_for_an_unknown_job_or_task_lists_those_that_there_are(distrun: Distrun) -> None:
    distrun.told(2, "status", "nothing")
    distrun.launch('for i in 1 2 3; do echo "$DISTRUN_TASK $i"; done')
    job = distrun.status()
    for private in (job["folder"], f"{job['folder']}/logs"):
        assert os.stat(private).st_mode & 0o777 == 0o700
    other = distrun.home / "jobs" / "photos"  # a folder that is no job
    other.mkdir()
    (other / "holiday.jpg").touch()
    for command, name in (("status", "nothing"), ("kill", "photos")):
        said = distrun.told(2, command, name)
        assert f"'{name}'" in said
        assert job["job_id"] in said
    only = distrun.asked("logs", "-t", "worker:1", "-n", "2")
    assert only == "worker:1 | worker:1 2\nworker:1 | worker:1 3\n"
    assert distrun.asked("logs", "-t", "worker").count("\n") == 6
    assert "worker:0, worker:1" in distrun.told(2, "logs", "-t", "ps:0")


EMPTY = [
    *("launch ''", "run ''", "status ''", "kill ''", "clean ''", "resume ''", "kill job ''", "''"),
    *("logs -t ''", "logs --grep ''", "launch job.yaml --name ''", "launch job.yaml --set ''"),
    *("report -o ''", "run --env '' x.py", "kill --grace ''", "kill --signal ''"),
]


def test_running_jobs_are_not_ended_by_wrong_usage(distrun: Distrun) -> None:
    """An empty word is mostly a variable of the shell that is not set."""
    first, second = (distrun.detached("exec sleep 600", workers=1) for _ in range(2))
    assert all(job in distrun.told(2, "kill") for job in (first, second))
    for line in EMPTY:
        said = distrun.told(2, *shlex.split(line))
        assert said.splitlines()[-1].startswith(("Error: ", "distrun: ")), line
    assert distrun("wait", "--timeout", "200ms", first).returncode == 124
    jobs = json.loads(distrun.asked("ps", "-a", "--json"))["jobs"]
    assert {job["job_id"]: job["state"] for job in jobs} == {first: "running", second: "running"}
    assert all(f"{first} is running, too" in distrun.told(0, "kill", "job") for _ in range(2))
    assert distrun("kill", "--all").returncode == 0
    assert survivors(first) == survivors(second) == []


def test_a_supervisor_in_another_process_namespace(distrun: Distrun) -> None:
    if os.geteuid() or shutil.which("unshare") is None:
        skip("a process namespace needs root and unshare", AS_ROOT)
    job = distrun.detached("exec sleep 600")
    shown = json.loads(distrun.elsewhere("status", "--json").stdout)["job"]
    assert (shown["state"], shown["supervisor_pid"]) == ("running", None)
    refused = distrun.elsewhere("resume", job)
    assert refused.returncode == 2
    assert "running (supervisor: in another process namespace)" in refused.stderr
    done = distrun.elsewhere("kill", job)
    assert (done.returncode, done.stderr) == (0, f"distrun: job {job} has ended\n")
