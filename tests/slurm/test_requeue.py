"""Jobs that Slurm interrupts: they save, go back to the queue, and continue."""

from __future__ import annotations

from harness.command import Distrun, recorded_events
from harness.slurm import Cluster
from harness.slurm_fixtures import Submit, WriteSlurmSpec
from harness.slurm_jobs import job_of, wait_for

SAVES = """\
trap 'echo saved; exit 0' TERM
echo attempt $DISTRUN_ATTEMPT
[ $DISTRUN_ATTEMPT = 1 ] && exit
sleep 60 & wait
"""


def test_before_the_time_limit_tasks_save_and_the_job_goes_on_in_the_next_allocation(
    submit: Submit, slurm: Cluster, distrun: Distrun, slurm_spec: WriteSlurmSpec
) -> None:
    settings = {"time": "1m", "signal_before_end": "59s", "requeue": True}
    job_id = submit(slurm_spec(SAVES, slurm=settings))
    wait_for(distrun, job_id, "running")
    waited = distrun("wait", job_id)
    assert waited.returncode == 0, waited.stderr
    output = distrun("logs", job_id).stdout
    assert output.count("saved") == 2
    kinds = [each["event"] for each in recorded_events(distrun, job_id)]
    assert [each for each in kinds if each.startswith("Job") and each != "JobPlanned"] == [
        *("JobQueued", "JobCreated", "JobEnded", "JobQueued", "JobResumed", "JobEnded"),
    ]


def test_a_preempted_job_saves_and_continues(
    submit: Submit, slurm: Cluster, distrun: Distrun, slurm_spec: WriteSlurmSpec
) -> None:
    job_id = submit(slurm_spec(SAVES, slurm={"requeue": True, "exclusive": True}))
    wait_for(distrun, job_id, "running")
    urgent = slurm.run(
        "sbatch", "--parsable", "-p", "urgent", "-N4", "--exclusive", "--wrap=sleep 1"
    )
    slurm.wait_for_state(urgent, "COMPLETED")
    waited = distrun("wait", job_id)
    assert waited.returncode == 0, waited.stderr
    assert distrun("logs", job_id).stdout.count("saved") == 2
    assert [task["attempt"] for task in job_of(distrun, job_id)["task_states"]] == [1, 1]
