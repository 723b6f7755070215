"""Real training: a worker that restarts alone, first saves that are interrupted, and the real MNIST
as in the tutorials.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun, Status
from harness.interrupted_saves import interrupted_saves
from harness.preloaded import PreloadedPython
from harness.training import Process, workers
from harness.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
PATIENCE = 240.0
STEPS = 700


def test_a_parameter_servers_worker_comes_back_alone_while_the_chief_trains_on(
    distrun: Distrun, small_mnist: Path
) -> None:
    (distrun.cwd / "job.yaml").write_text(
        "strategy: parameter_server\ncluster: {chief: 1, worker: 2, ps: 1}\n"
        "program: {script: mnist}\nrestart: {max: 1, backoff: 100ms}\n"
    )
    launch = distrun.start(
        *("launch", "job.yaml", "--", "--data-dir", str(small_mnist), "--epochs", "1"),
        *("--steps-per-epoch", str(STEPS), "--checkpoint-dir", "saved", "--checkpoint-every", "10"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def tasks() -> dict[str, Any]:
        if distrun("status").returncode:
            return {}
        return {task["task"]: task for task in distrun.status()["tasks"]}

    def trains() -> bool:
        return int(tasks().get("chief:0", {"progress": {}})["progress"].get("STEP", 0)) >= 20

    wait_until(trains, PATIENCE)
    os.kill(tasks()["worker:1"]["pid"], signal.SIGKILL)
    assert launch.wait(PATIENCE) == 0, distrun("logs").stdout[-4000:]
    attempts = {name: task["attempt"] for name, task in tasks().items()}
    assert attempts == {"chief:0": 0, "worker:0": 0, "worker:1": 1, "ps:0": 0}
    log = distrun("logs", "-t", "worker:1", "--raw").stdout
    addresses = re.findall(r"worker:1 serves at (\S+)", log)
    assert len(addresses) == 2, log
    assert addresses[0] == addresses[1]
    # A step whose worker died is given to another: done at least once, and none is lost.
    last = distrun("logs", "-t", "chief", "--raw").stdout
    told = re.search(rf"{STEPS} steps scheduled, optimizer.iterations (\d+): no update lost", last)
    assert told, last
    assert int(told[1]) >= STEPS


# First saves that are interrupted -----------------------------------------------------------------


INDEX = "ckpt-1.index"


def is_ps(pid: int) -> bool:
    return b"DISTRUN_TASK=ps:0" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.parametrize(
    ("strategy", "cluster", "is_chosen", "torn"),
    [
        ("multi_worker_mirrored", "{chief: 1, worker: 1}", lambda name, _: name == INDEX, True),
        (
            "multi_worker_mirrored",
            "{worker: 2}",
            lambda name, _: name == f"workertemp_worker_1/{INDEX}",
            False,
        ),
        (
            "parameter_server",
            "{chief: 1, worker: 1, ps: 1}",
            lambda name, _: name == INDEX,
            True,
        ),
        (
            "parameter_server",
            "{chief: 1, worker: 1, ps: 1}",
            lambda name, pid: name.startswith("ckpt-1_temp/") and is_ps(pid),
            False,
        ),
    ],
    ids=["chief", "worker1", "chief-of-ps", "ps"],
)
def test_the_job_restarts_after_a_first_save_that_was_killed(
    strategy: str,
    cluster: str,
    is_chosen: Callable[[str, int], bool],
    torn: bool,
    distrun: Distrun,
    small_mnist: Path,
    status: Status,
) -> None:
    distrun.cwd.joinpath("job.yaml").write_text(
        f"strategy: {strategy}\ncluster: {cluster}\n"
        "program: {script: mnist}\nrestart: {max: 1, backoff: 100ms}\n"
    )
    arguments = [
        "--data-dir", str(small_mnist), "--checkpoint-dir", "saved",
        "--steps-per-epoch", "8", "--checkpoint-every", "4", "--epochs", "1",
    ]  # fmt: skip
    with interrupted_saves(distrun.cwd / "saved", is_chosen) as saves:
        done = distrun("launch", "job.yaml", "--", *arguments, timeout=PATIENCE)
    assert saves.victim
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert status()["restarts"] == 1
    anew = "training starts anew" in done.stdout
    assert anew or not torn
    # If it was no chief that died, the chief may have completed its own checkpoint.
    assert anew or "resumed from" in done.stdout or not torn
    assert "epoch 1/1  step 8 " in done.stdout


# The real MNIST -----------------------------------------------------------------------------------


MNIST = Path(
    os.environ.get("DISTRUN_TEST_MNIST")
    or Path(__file__).parents[2].parent / "shared" / "data" / "mnist.npz"
)


def results(process: Process) -> list[dict[str, float]]:
    """The numbers of the epochs, without the times, which each worker measures itself."""
    return [
        {key: row[key] for key in row if key not in {"speed", "seconds"}} for row in process.epochs
    ]


@pytest.mark.mnist
@pytest.mark.skipif(
    not MNIST.exists(), reason=f"the real MNIST is not at {MNIST} (put mnist.npz there)"
)
def test_learns_mnist_as_in_the_tutorials(preloaded: PreloadedPython) -> None:
    with workers(preloaded, 2, "--data-dir", str(MNIST.parent)) as (first, second):
        assert (first.finish(300), second.finish()) == (0, 0)
    assert results(first) == results(second)
    losses = [row["loss"] for row in first.epochs]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    assert first.epochs[-1]["accuracy"] >= 0.93
    assert first.epochs[-1]["test_accuracy"] >= 0.93
