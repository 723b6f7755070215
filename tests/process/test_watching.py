"""What `status` and `ps` say of a job that runs for long, and which jobs `ps` lists."""

from __future__ import annotations

from pathlib import Path

from harness.command import Distrun
from harness.waiting import wait_until

STEPS = (
    "pause=0.1; test $DISTRUN_TASK = worker:1 && pause=0.4; i=0; "
    "while [ ! -e {go} ]; do i=$((i+1)); echo step $i/9000 loss 0.$i; sleep $pause; done"
)


def test_status_and_ps_say_how_far_it_is_and_which_task_is_behind(
    distrun: Distrun, tmp_path: Path
) -> None:
    script = STEPS.format(go=tmp_path / "go")
    job = distrun.detached(script, workers=3)
    wait_until(lambda: (distrun.status()["behind"] or "").startswith("worker:1"), timeout=60)
    wait_until(lambda: distrun.status()["seconds_left"] is not None, timeout=60)
    found = distrun.status()
    assert found["seconds_left"] > 1
    for task in found["tasks"]:
        assert 0 < task["progress_at"] - task["started_at"] < 60
        assert 0 < task["last_output_at"] - task["started_at"] < 60
    text = distrun("status").stdout
    assert "worker:1 is behind: step " in text
    assert " left\n" in text
    assert " s ago" in text
    listed = distrun("ps")
    assert " s ago" in listed.stdout
    assert f"distrun: {job}: worker:1 is behind: step" in listed.stderr
    (tmp_path / "go").touch()
    assert distrun("wait", job).returncode == 0
    ended = distrun.status(job)
    assert (ended["behind"], ended["seconds_left"], ended["progress_at"]) == (None,) * 3
    assert "ago" not in distrun("status", job).stdout


def test_a_task_without_progress_shows_when_it_printed(distrun: Distrun, tmp_path: Path) -> None:
    job = distrun.detached(f"echo hello; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    wait_until(lambda: distrun("status").stdout.count(" s ago") == 2, timeout=30)
    (tmp_path / "go").touch()
    distrun("wait", job)


def test_ps_lists_some_jobs(distrun: Distrun) -> None:
    jobs = []
    for name, code in (("a", 0), ("b", 3), ("c", 0), ("d", 4)):
        distrun.launch(f"exit {code}", name=name)
        jobs.append(distrun.status()["job_id"])

    def ids(*args: str) -> list[str]:
        return str(distrun("ps", "-q", *args).stdout).split()

    assert ids() == []
    assert ids("-a") == jobs
    assert ids("-n", "2") == jobs[2:]
    assert ids("--failed") == [jobs[1], jobs[3]]
    assert ids("--failed", "-n", "1") == [jobs[3]]
    assert distrun("ps", "-n", "0").returncode == 2
    assert distrun("ps", "--failed").stdout.splitlines()[1].startswith(jobs[1])


def test_a_success_after_restarts_says_what_they_cost(distrun: Distrun) -> None:
    script = (
        "for i in 1 2 3 4 5 6 7 8; do echo step $i/8, loss: 0.$i; sleep 0.3; done; "
        "test $DISTRUN_ATTEMPT = 1"
    )
    done = distrun.launch(script, restart={"max": 2, "backoff": "100ms"})
    assert done.returncode == 0
    last = done.stderr.splitlines()[-1]
    assert " succeeded in " in last
    assert " · after 1 restart" in last
    assert "without a step" in last
    assert " restart" not in distrun.launch("exit 0").stderr.splitlines()[-1]
