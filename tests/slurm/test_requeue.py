"""Jobs that Slurm interrupts: they save, go back to the queue, and continue."""

from __future__ import annotations

import re

from harness.command import Distrun, recorded_events
from harness.slurm import Cluster
from harness.slurm_fixtures import SAVES, InAllocation, Submit, WriteSlurmSpec, wait_for
from harness.waiting import SOON


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
