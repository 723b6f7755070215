"""Real training: first saves that are interrupted, and the real MNIST as in the tutorials."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Distrun, Status
from harness.interrupted_saves import interrupted_saves
from harness.preloaded import PreloadedPython
from harness.training import Process, workers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
PATIENCE = 240.0
INDEX = "ckpt-1.index"


def is_ps(pid: int) -> bool:
    return b"DISTRUN_TASK=ps:0" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.parametrize(
    ("strategy", "cluster", "is_chosen", "torn"),
    [
        ("multi_worker_mirrored", "{chief: 1, worker: 1}", lambda name, _: name == INDEX, True),
        (
            "parameter_server",
            "{chief: 1, worker: 1, ps: 1}",
            lambda name, pid: name.startswith("ckpt-1_temp/") and is_ps(pid),
            False,
        ),
    ],
    ids=["chief", "ps"],
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
