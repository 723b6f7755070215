"""The job on two workers: collectives, saving and preemption."""

import os
import signal
from pathlib import Path

import pytest

from harness.training import Process, Workers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

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
def test_learns_mnist_as_in_the_tutorials(workers: Workers) -> None:
    with workers(2, "--data-dir", str(MNIST.parent)) as (first, second):
        assert (first.finish(300), second.finish()) == (0, 0)
    assert results(first) == results(second)
    losses = [row["loss"] for row in first.epochs]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    assert first.epochs[-1]["accuracy"] >= 0.93
    assert first.epochs[-1]["test_accuracy"] >= 0.93


def test_a_dead_peer_is_one_line_and_no_traceback(workers: Workers, small_mnist: Path) -> None:
    with workers(2, "--data-dir", str(small_mnist), "--steps-per-epoch", "100000") as pair:
        pair[0].wait_for("images a step")
        pair[1].wait_for("images a step")
        pair[1].send(signal.SIGKILL)
        pair[0].wait_for(r"error: worker:0 lost its cluster")
        assert pair[0].finish() == 1
    assert "Traceback" not in pair[0].output


def test_workers_of_different_runs_do_not_train_together(
    workers: Workers, small_mnist: Path, tmp_path: Path
) -> None:
    different = [["--seed", "1"], ["--seed", "2", "--model", "cnn"]]
    with workers(2, "--data-dir", str(small_mnist), each=different) as pair:
        for process in pair:
            process.wait_for(r"the workers differ in model \(small_cnn, cnn\), seed \(1, 2\):")
            assert process.finish() == 65
