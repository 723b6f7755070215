"""Two workers learn the real MNIST as in TensorFlow's tutorials."""

import os
from pathlib import Path

import pytest

from harness.preloaded import PreloadedPython
from harness.training import Process, workers

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
def test_learns_mnist_as_in_the_tutorials(preloaded: PreloadedPython) -> None:
    with workers(preloaded, 2, "--data-dir", str(MNIST.parent)) as (first, second):
        assert (first.finish(300), second.finish()) == (0, 0)
    assert results(first) == results(second)
    losses = [row["loss"] for row in first.epochs]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    assert first.epochs[-1]["accuracy"] >= 0.93
    assert first.epochs[-1]["test_accuracy"] >= 0.93
