"""Jobs that Slurm interrupts: they save, go back to the queue, and continue."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from harness.command import Distrun, recorded_events
from harness.slurm import Cluster
from harness.slurm_fixtures import Submit, WriteSlurmSpec
from harness.slurm_jobs import job_of, wait_for
from harness.waiting import wait_until

PATIENCE = 240.0
LINE = re.compile(r"^epoch (\d+)/\d+.*?test_accuracy ([\d.]+)", re.MULTILINE)
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
    settings = {"requeue": True, "exclusive": True}
    job_id = submit(slurm_spec(SAVES, slurm=settings, timeouts={"link": "2s"}))
    wait_for(distrun, job_id, "running")
    slurm.run(
        *("sbatch", "-p", "urgent", "-N4", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    )
    waited = distrun("wait", job_id)
    assert waited.returncode == 0, waited.stderr
    assert distrun("logs", job_id).stdout.count("saved") == 2
    assert [task["attempt"] for task in job_of(distrun, job_id)["task_states"]] == [1, 1]


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
            *("--epochs", "12", "--checkpoint-every", "4"),
        ]
        program = {"script": "mnist", "args": arguments}
        return slurm_spec("", name=name, program=program, **keys)

    job_id = submit(spec("train", slurm={"requeue": True, "cpus_per_task": 2}))
    number = job_of(distrun, job_id)["slurm"]["job"]
    for count in (2, 5):
        wait_until(partial(has_epochs, distrun, job_id, count), PATIENCE, f"{count} epochs")
        # As Slurm does `signal_before_end`.
        slurm.run("scancel", "--batch", "--signal=TERM", number)
    undisturbed = spec("alone", hosts=["localhost"])
    alone = distrun.start("launch", undisturbed, stdout=subprocess.DEVNULL)
    waited = distrun("wait", job_id, timeout=PATIENCE)
    assert waited.returncode == 0, waited.stderr
    found = epochs(distrun, job_id)
    assert list(found) == list(range(1, 13))
    assert "resumed from" in distrun("logs", job_id, "-t", "worker:0", "--raw").stdout
    assert len(job_of(distrun, job_id)["resumptions"]["at"]) == 2

    assert alone.wait(PATIENCE) == 0
    assert found[12] == pytest.approx(epochs(distrun, "alone")[12], abs=0.05)
