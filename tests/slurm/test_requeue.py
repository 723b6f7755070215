"""Jobs that Slurm interrupts: they save, go back to the queue, and continue."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from harness.command import Distrun, recorded_events
from harness.slurm import Cluster
from harness.slurm_fixtures import InAllocation, Submit, WriteSlurmSpec
from harness.slurm_jobs import SAVES, SECONDS, job_of, wait_for
from harness.waiting import wait_until

PATIENCE = 240.0
LINE = re.compile(r"^epoch (\d+)/\d+.*?test_accuracy ([\d.]+)", re.MULTILINE)


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
    number = job_of(distrun, limited)["slurm"]["job"]
    slurm.run("scontrol", "update", f"jobid={number}", "endtime=now+60")
    urgent = ("-p", "urgent", "-N2", "--nodelist=h[3-4]", "--exclusive", "--output=/dev/null")
    slurm.run("sbatch", *urgent, "--wrap=sleep 1")
    for job_id in (preempted, limited):
        waited = distrun("wait", job_id)
        assert waited.returncode == 0, waited.stderr
        assert distrun("logs", job_id).stdout.count("saved") == 2
        assert [task["attempt"] for task in job_of(distrun, job_id)["tasks"]] == [1, 1]
        kinds = [each["event"] for each in recorded_events(distrun, job_id)]
        assert [each for each in kinds if each.startswith("Job") and each != "JobPlanned"] == [
            *("JobQueued", "JobCreated", "JobEnded", "JobQueued", "JobResumed", "JobEnded"),
        ]
    assert "Slurm preempted job" in distrun("events", preempted).stdout
    said = interactive.communicate(timeout=SECONDS)[1]
    assert interactive.returncode == 69
    assert re.search(r"cause .*Slurm ended it at the time limit of job \d+", said)
    assert "ask for more time (`slurm.time`, or --time)" in said


def epochs(distrun: Distrun, job_id: str) -> dict[int, float]:
    """The test accuracy after each epoch."""
    found = LINE.findall(distrun("logs", job_id, "-t", "worker:0", "--raw").stdout)
    return {int(number): float(accuracy) for number, accuracy in found}


def has_epochs(distrun: Distrun, job_id: str, count: int) -> bool:
    return len(epochs(distrun, job_id)) >= count


@pytest.mark.e2e
def test_training_in_three_allocations_ends_as_well_as_in_one(
    submit: Submit,
    slurm: Cluster,
    distrun: Distrun,
    slurm_spec: WriteSlurmSpec,
    small_mnist: Path,
    tmp_path: Path,
) -> None:
    def spec(name: str, **keys: object) -> Path:
        arguments = [
            *("--data-dir", str(small_mnist), "--checkpoint-dir", str(tmp_path / name)),
            *("--model", "cnn", "--batch-size", "16", "--steps-per-epoch", "16"),
            *("--epochs", "8", "--checkpoint-every", "4"),
        ]
        program = {"script": "mnist", "args": arguments}
        return slurm_spec("", name=name, program=program, **keys)

    job_id = submit(spec("train", slurm={"requeue": True, "cpus_per_task": 2}))
    number = job_of(distrun, job_id)["slurm"]["job"]
    for count in (2, 4):
        wait_until(partial(has_epochs, distrun, job_id, count), PATIENCE, f"{count} epochs")
        # As Slurm does `signal_before_end`.
        slurm.run("scancel", "--batch", "--signal=TERM", number)
    undisturbed = spec("alone", hosts=["localhost"])
    alone = distrun.start("launch", undisturbed, stdout=subprocess.DEVNULL)
    waited = distrun("wait", job_id, timeout=PATIENCE)
    assert waited.returncode == 0, waited.stderr
    found = epochs(distrun, job_id)
    assert list(found) == list(range(1, 9))
    assert "resumed from" in distrun("logs", job_id, "-t", "worker:0", "--raw").stdout
    assert len(job_of(distrun, job_id)["resumptions"]["at"]) == 2

    assert alone.wait(PATIENCE) == 0
    assert found[8] == pytest.approx(epochs(distrun, "alone")[8], abs=0.05)
