"""`distrun submit`: what it refuses, what it queues, and what the login node sees of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.command import Distrun, recorded_events
from harness.slurm import Cluster
from harness.slurm_fixtures import SAVES, Submit, WriteSlurmSpec, wait_for
from harness.waiting import SOON, wait_until


def until(gate: Path) -> str:
    """A script that prints its node and ends when the file is there."""
    return f"echo on $SLURMD_NODENAME; while [ ! -e {gate} ]; do sleep 0.1; done"


def test_a_job_is_followed_from_the_login_node_to_its_end(
    submit: Submit, slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    gate = distrun.cwd / "gate"
    job_id = submit(slurm_spec(until(gate), name="my job"))
    assert slurm.run("squeue", "-h", "-o", "%j") == "my job"
    job = wait_for(distrun, job_id, "running")
    assert job["slurm"]["state"] == "RUNNING"
    assert [task["host"] for task in job["tasks"]] == ["h1", "h2"]
    listed = distrun("ps")
    assert job_id in listed.stdout
    assert "running" in listed.stdout
    followed, attached = (
        distrun.start(*command, job_id, stdout=-1, text=True)
        for command in (("logs", "-f"), ("attach",))
    )
    assert "it is no Python program" in distrun("stacks", job_id).stdout  # by srun, on its node
    timed_out = distrun("wait", job_id, "--timeout", "500ms")
    assert timed_out.returncode == 124
    gate.touch()
    distrun.checked("wait", job_id)
    for each in (followed, attached):
        out, _ = each.communicate(timeout=SOON)
        assert sorted(out.splitlines()) == ["worker:0 | on h1", "worker:1 | on h2"]
        assert each.returncode == 0
    kinds = [event["event"] for event in recorded_events(distrun, job_id)]
    assert kinds[:2] == ["JobQueued", "JobCreated"]
    assert kinds[-1] == "JobEnded"
    assert distrun("kill", job_id).stderr.strip() == f"distrun: job {job_id} had already succeeded"


def test_a_job_that_waits_says_why_and_can_be_killed_cancelled_or_fail(
    submit: Submit, slurm: Cluster, distrun: Distrun, slurm_spec: WriteSlurmSpec
) -> None:
    held = slurm_spec("true", slurm={"options": {"hold": True}})
    killed, cancelled = submit(held), submit(held)
    fails = submit(slurm_spec("true", slurm={"setup": ["echo no such module; exit 3"]}))
    job = distrun.status(killed)
    assert (job["state"], job["running"]) == ("pending", True)
    assert job["slurm"]["reason"] == "JobHeldUser"
    assert "pending in Slurm as job" in distrun.asked("status", killed)
    assert distrun.asked("ps").count("pending") >= 2
    distrun.checked("kill", killed)
    job = distrun.status(killed)
    assert (job["state"], job["exit_code"]) == ("stopped", 137)
    slurm.run("scancel", distrun.status(cancelled)["slurm"]["job"])
    waited = distrun("wait", cancelled)
    assert waited.returncode == 143
    assert "cancelled in Slurm (scancel)" in waited.stderr
    assert distrun.status(cancelled)["state"] == "stopped"
    assert not slurm.run("squeue", "-h")

    waited = distrun("wait", fails)
    assert waited.returncode == 69
    assert "(FAILED)" in waited.stderr
    log = distrun.home / "jobs" / fails / "batch.log"
    assert str(log) in waited.stderr
    assert log.read_text() == "no such module\n"
    assert distrun.status(fails)["state"] == "failed"


def test_a_job_that_begins_or_runs_is_killed_gracefully(
    submit: Submit, slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    setup = [f"touch {distrun.cwd}/begun", "sleep 60"]
    begins = submit(slurm_spec("true", slurm={"setup": setup, "requeue": True}))
    runs = submit(slurm_spec(SAVES, slurm={"requeue": True}))
    wait_until((distrun.cwd / "begun").exists)
    assert distrun.status(begins)["state"] == "preparing"
    wait_for(distrun, runs, "running")
    for job_id in (begins, runs):
        distrun.checked("kill", job_id)
        job = distrun.status(job_id)
        assert (job["state"], job["exit_code"]) == ("stopped", 137)
    assert distrun.asked("logs", runs).count("saved") == 2
    wait_until(lambda: slurm.run("squeue", "-h", "-t", "PENDING,RUNNING") == "")


def test_a_kept_script_can_be_given_to_sbatch(
    slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    spec = slurm_spec("echo argument $0", slurm={"time": "290s", "setup": ["export A=1"]})
    printed = distrun.checked("submit", spec, "--dry-run", "--", "a b")
    assert "#SBATCH --time=0-00:05:00" in printed.stdout
    script = distrun.cwd / "kept.sh"
    script.write_text(printed.stdout)
    number = slurm.run("sbatch", "--parsable", str(script))
    slurm.wait_for_state(number, "COMPLETED")
    distrun.checked("wait", f"job-{number}")
    assert "worker:1 | argument a b" in distrun.asked("logs")


def test_what_can_be_known_is_refused_before_it_queues(
    slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    def refusal(code: int, **keys: Any) -> str:
        done = distrun("submit", slurm_spec("true", **keys))
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        return str(done.stderr)

    assert "names no file" in refusal(65, program={"script": "missing.py"})
    assert "names machines" in refusal(65, hosts=["h1"])
    assert "is not here" in refusal(69, program={"command": [f"{distrun.cwd}/missing"]})
    assert "invalid partition" in refusal(69, slurm={"partition": "missing"})
    assert "(2 h 00 m) is more than the default partition" in refusal(69, slurm={"time": "2h"})
    assert "not available" in refusal(69, slurm={"cpus_per_task": 100})
    assert "does not support" in refusal(65, slurm={"options": {"array": "1-3"}})
    assert "slurm.time" in refusal(65, slurm={"options": {"time": 5}})
    assert distrun.asked("ps", "-a", "--json").count("job_id") == 0
    assert not slurm.run("squeue", "-h")


def test_a_running_job_that_scancel_ends_is_not_queued_again(
    submit: Submit, slurm: Cluster, distrun: Distrun, slurm_spec: WriteSlurmSpec
) -> None:
    job_id = submit(slurm_spec("sleep 60", slurm={"requeue": True}))
    number = wait_for(distrun, job_id, "running")["slurm"]["job"]
    slurm.run("scancel", number)
    waited = distrun("wait", job_id)
    assert waited.returncode in (69, 143)
    kinds = [event["event"] for event in recorded_events(distrun, job_id)]
    assert kinds.count("JobQueued") == 1
    slurm.wait_for_state(number, "CANCELLED")
    distrun.checked("resume", job_id)
    assert distrun.status(job_id)["running"]
    distrun.checked("kill", job_id)
