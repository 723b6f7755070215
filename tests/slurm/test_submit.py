"""`distrun submit`: what it refuses, what it queues, what the login node sees, interruptions."""

import re
from pathlib import Path
from typing import Any

from harness.command import Distrun, recorded_events
from harness.slurm import Cluster
from harness.slurm_fixtures import SAVES, InAllocation, Submit, WriteSlurmSpec, wait_for
from harness.waiting import SOON, wait_until


def until(gate: Path) -> str:
    return f"echo on $SLURMD_NODENAME; while [ ! -e {gate} ]; do sleep 0.1; done"


def test_a_job_is_followed_from_the_login_node_to_its_end(
    submit: Submit, slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    gate = distrun.cwd / "gate"
    steps = [f"step {n} loss {n}" for n in (1, 2)]
    command = f"printf '%s\\n' '{steps[0]}' '{steps[1]}'; {until(gate)}"
    job_id = submit(slurm_spec(command, name="my job"))
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
    assert "it is not a Python program" in distrun("stacks", job_id).stdout  # by srun, on its node
    wait_until(lambda: distrun.status(job_id)["tasks"][1]["progress"].get("STEP") == 2, SOON)
    distrun.told(124, "wait", job_id, "--timeout", "500ms")
    gate.touch()
    distrun.checked("wait", job_id)
    shown = [f"{n} | {line}" for n in (0, 1) for line in (f"on h{n + 1}", *steps)]
    for each in (followed, attached):
        out, _ = each.communicate(timeout=SOON)
        assert sorted(out.splitlines()) == [f"worker:{line}" for line in shown]
        assert each.returncode == 0
    assert f"| {steps[1]}" not in (distrun.home / "jobs" / job_id / "batch.log").read_text()
    kinds = [event["event"] for event in recorded_events(distrun, job_id)]
    assert kinds[:2] == ["JobQueued", "JobCreated"]
    assert kinds[-1] == "JobEnded"
    assert distrun("kill", job_id).stderr.strip() == f"distrun: job {job_id} had already succeeded"


def test_a_job_that_waits_says_why_and_can_be_killed_cancelled_or_fail(
    submit: Submit, slurm: Cluster, distrun: Distrun, slurm_spec: WriteSlurmSpec
) -> None:
    held = slurm_spec("true", slurm={"options": {"hold": True}})
    cancelled, queued = submit(held), distrun.checked("submit", held)
    killed = queued.stdout.strip()
    assert "Slurm has no estimate of its start yet" in queued.stderr
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
    assert "cancelled in Slurm (scancel)" in distrun.told(143, "wait", cancelled)
    assert distrun.status(cancelled)["state"] == "stopped"

    waited = distrun.told(69, "wait", fails)
    assert "(FAILED)" in waited
    log = distrun.home / "jobs" / fails / "batch.log"
    assert f"; no such module; what it printed: {log}" in waited
    assert log.read_text() == "no such module\n"
    assert distrun.status(fails)["state"] == "failed"
    wait_until(lambda: not slurm.run("squeue", "-h"))


def test_a_job_that_begins_or_runs_is_killed_gracefully_and_scancel_is_no_requeue(
    submit: Submit, slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    setup = [f"touch {distrun.cwd}/begun", "sleep 60"]
    begins = submit(slurm_spec("true", slurm={"setup": setup, "requeue": True}))
    runs, cancelled = (submit(slurm_spec(SAVES, slurm={"requeue": True})) for _ in range(2))
    number = wait_for(distrun, cancelled, "running")["slurm"]["job"]
    slurm.run("scancel", number)
    assert distrun("wait", cancelled).returncode in (69, 143)
    assert str(recorded_events(distrun, cancelled)).count("'JobQueued'") == 1
    slurm.wait_for_state(number, "CANCELLED")
    distrun.checked("resume", cancelled)
    distrun.checked("wait", cancelled)
    wait_until((distrun.cwd / "begun").exists)
    assert distrun.status(begins)["state"] == "preparing"
    wait_for(distrun, runs, "running")
    for job_id in (begins, runs):
        distrun.checked("kill", job_id)
        job = distrun.status(job_id)
        assert (job["state"], job["exit_code"]) == ("stopped", 137)
    assert distrun.asked("logs", runs).count("saved") == 2
    wait_until(lambda: slurm.run("squeue", "-h", "-t", "PENDING,RUNNING") == "")


def test_a_kept_script_works(slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun) -> None:
    spec = slurm_spec("echo argument $0", slurm={"time": "290s", "setup": ["export A=1"]})
    printed = distrun.checked("submit", spec, "--dry-run", "--", "a b")
    assert "#SBATCH --time=5\n" in printed.stdout
    script = distrun.cwd / "kept.sh"
    script.write_text(printed.stdout)
    number = slurm.run("sbatch", "--parsable", str(script))
    slurm.wait_for_state(number, "COMPLETED")
    distrun.checked("wait", f"job-{number}")
    assert "worker:1 | argument a b" in distrun.asked("logs")


def test_refused_before_queue(slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun) -> None:
    def refusal(code: int, **keys: Any) -> str:
        return distrun.told(code, "submit", slurm_spec("true", **keys))

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


def test_a_job_whose_first_node_dies_at_once_runs_on_other_nodes_or_says_so(
    submit: Submit, slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    ids = {}
    for requeue in (True, False):
        begun = distrun.cwd / f"begun-{requeue}"
        # Only the first time.
        setup = [f"[ -e {begun} ] || {{ touch {begun}; sleep 60; }}"]
        keys = {"requeue": requeue, "setup": setup, "options": {"nodelist": "h1"}}
        if requeue:
            keys["options"] = {}
        ids[requeue] = submit(slurm_spec("echo done", workers=1, slurm=keys))
        wait_until(begun.exists)
    slurm.power_off(slurm.nodes[0])
    # Slurm would find it out after SlurmdTimeout.
    slurm.run("scontrol", "update", "nodename=h1", "state=down", "reason=died")
    distrun.checked("wait", ids[True])
    assert "Slurm marked a node of the job as failed" in distrun.told(69, "wait", ids[False])
    assert [task["host"] for task in distrun.status(ids[True])["tasks"]] != ["h1"]
    assert [event["event"] for event in recorded_events(distrun, ids[False])] == ["JobQueued"]


def test_jobs_that_slurm_interrupts_save_and_go_on_in_their_next_allocation(
    submit: Submit,
    in_allocation: InAllocation,
    slurm: Cluster,
    distrun: Distrun,
    slurm_spec: WriteSlurmSpec,
) -> None:
    """One by the time limit, one by a preemption; a third, in salloc, only says what ended it."""
    interactive = in_allocation(["-N1"], "launch", slurm_spec("sleep 60", 1, name="interactive"))
    first, last = {"nodelist": "h[1-2]"}, {"nodelist": "h[3-4]"}
    settings = {"time": "10m", "signal_before_end": "5s", "requeue": True, "options": first}
    limited = submit(slurm_spec(SAVES, slurm=settings))
    settings = {"requeue": True, "exclusive": True, "options": last}
    preempted = submit(slurm_spec(SAVES, slurm=settings))
    wait_until(lambda: "interactive" in distrun.asked("ps"))
    for job_id in (limited, preempted, "interactive"):
        wait_for(distrun, job_id, "running")
    number = slurm.run("squeue", "-h", "-t", "RUNNING", "-n", "distrun", "-o", "%i")
    # Not `now`: Slurm refuses an end in the second in which the job began.
    slurm.run("scontrol", "update", f"jobid={number}", "endtime=now+2")
    # slurmctld looks at time limits every 30 s, and sends the signal up to 30 s too early: of
    # the 60 s that this leaves, also to the next allocation, some are always before it.
    number = distrun.status(limited)["slurm"]["job"]
    slurm.run("scontrol", "update", f"jobid={number}", "endtime=now+60")
    urgent = ("-p", "urgent", "-N2", "--nodelist=h[3-4]", "--exclusive", "--output=/dev/null")
    slurm.run("sbatch", *urgent, "--wrap=sleep 1")
    for job_id in (preempted, limited):
        distrun.checked("wait", job_id)
        assert distrun.asked("logs", job_id).count("saved") == 2
        assert [task["attempt"] for task in distrun.status(job_id)["tasks"]] == [1, 1]
        kinds = [each["event"] for each in recorded_events(distrun, job_id)]
        assert [each for each in kinds if each.startswith("Job") and each != "JobPlanned"] == [
            *("JobQueued", "JobCreated", "JobEnded", "JobQueued", "JobResumed", "JobEnded"),
        ]
    assert "Slurm preempted job" in distrun.asked("events", preempted)
    said = interactive.communicate(timeout=SOON)[1]
    assert interactive.returncode == 69
    assert re.search(r"cause .*Slurm ended it at the time limit of job \d+", said)
    assert "ask for more time (`slurm.time`, or --time)" in said
