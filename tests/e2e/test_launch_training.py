"""Real training under `distrun launch`: deaths of every kind, preemption, resuming.

These need TensorFlow, for it swallows SIGTERM, starts threads and holds ports as no script does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.e2e
PATIENCE = 240.0


@pytest.fixture
def train(distrun, small_mnist, tmp_path):
    """Start training in the background; a function of more arguments for the job."""
    spec = tmp_path / "mnist.yaml"
    spec.write_text(
        "strategy: multi_worker_mirrored\ncluster: {worker: 2}\nprogram: {script: mnist}\n"
    )
    # fmt: off
    arguments = [
        "--data-dir", str(small_mnist), "--checkpoint-dir", str(tmp_path / "saved"),
        "--steps-per-epoch", "20", "--checkpoint-every", "4",
    ]
    # fmt: on

    def start(*more: str) -> subprocess.Popen[str]:
        with open(distrun.cwd / "said", "wb") as said:
            return distrun.start("launch", spec, "--", *arguments, *more, stdout=said, stderr=said)

    return start


@pytest.fixture
def said(distrun):
    """How often a pattern stands in what launch has shown so far."""

    def count(pattern: str) -> int:
        text = (distrun.cwd / "said").read_text(errors="replace")
        return len(re.findall(pattern, text, re.MULTILINE))

    return count


def job_of(distrun) -> dict:
    return json.loads(distrun("status", "--json").stdout)["job"]


@pytest.mark.parametrize("victim", ["launch", "supervisor", "agent"])
def test_a_death_in_mid_epoch_leaves_nothing_and_a_new_launch_resumes(
    distrun, train, said, wait_until, alive, tmp_path, victim
):
    launch = train("--epochs", "10000")
    wait_until(lambda: said(r"^worker:\d \| epoch 1/") == 2, PATIENCE, "both trained an epoch")
    job = job_of(distrun)
    processes = [psutil.Process(launch.pid)]
    processes += processes[0].children(recursive=True)
    assert len(processes) >= 6  # launch, supervisor, guard, agent, two workers
    pids = {
        "launch": launch.pid,
        "supervisor": job["supervisor_pid"],
        "agent": job["hosts"][0]["agent_pid"],
    }
    os.kill(pids[victim], signal.SIGKILL)
    wait_until(lambda: not any(map(alive, processes)), 3.0, "nothing is left")
    assert Path(tmp_path / "saved").is_dir()
    if victim == "launch":  # the same checkpoint serves all three: one is enough to read it
        resumed = train("--epochs", "1")
        assert resumed.wait(PATIENCE) == 0
        assert said(r"^worker:\d \| resumed from ") == 2


def test_a_preempted_worker_saves_on_both_and_a_new_launch_resumes(
    distrun, train, said, wait_until
):
    launch = train("--epochs", "10000")
    wait_until(lambda: said(r"^worker:\d \| epoch 1/") == 2, PATIENCE, "both trained an epoch")
    pids = {task["task"]: task["pid"] for task in job_of(distrun)["task_states"]}
    os.kill(pids["worker:1"], signal.SIGTERM)
    assert launch.wait(PATIENCE) == 42
    assert said(r"^worker:\d \| preempted at .*: saved") == 2
    assert said(r"^  first  worker:\d exited 42 ") == 1
    assert said(r"^  then   worker:\d exited 42") == 1
    again = train("--epochs", "1")
    assert again.wait(PATIENCE) == 0
    assert said(r"^worker:\d \| resumed from ") == 2


def test_ctrl_c_gives_training_time_to_save(distrun, train, said, wait_until):
    launch = train("--epochs", "10000")
    wait_until(lambda: said(r"^worker:\d \| epoch 1/") == 2, PATIENCE, "both trained an epoch")
    launch.send_signal(signal.SIGINT)
    assert launch.wait(PATIENCE) == 130
    assert said(r"^worker:\d \| preempted at .*: saved") == 2
