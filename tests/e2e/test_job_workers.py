"""The job on two workers. With TensorFlow: collectives, saving together and preemption are its."""

import os
import re
import signal
from pathlib import Path

import pytest
from job_harness import Process, wait_until, workers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

MNIST = Path(
    os.environ.get("DISTRUN_TEST_MNIST")
    or Path(__file__).parents[2].parent / "shared" / "data" / "mnist.npz"
)


def results(process: Process) -> list[dict[str, float]]:
    """The epochs' numbers without the times, which each worker measures for itself."""
    return [
        {key: row[key] for key in row if key not in {"speed", "seconds"}} for row in process.epochs
    ]


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if "temp" in path.name]


@pytest.mark.mnist
@pytest.mark.skipif(not MNIST.exists(), reason=f"the real MNIST is not at {MNIST}")
def test_learns_mnist_as_in_the_tutorials():
    with workers(2, "--data-dir", str(MNIST.parent)) as (first, second):
        assert (first.finish(300), second.finish()) == (0, 0)
    assert results(first) == results(second)
    losses = [row["loss"] for row in first.epochs]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    assert first.epochs[-1]["accuracy"] >= 0.93
    assert first.epochs[-1]["test_accuracy"] >= 0.93


def test_killed_in_mid_epoch_it_resumes_from_the_checkpoint(small_mnist, tmp_path):
    # It saves at every step: the signal most likely comes in the middle of saving.
    arguments = [
        "--data-dir", str(small_mnist), "--checkpoint-dir", str(tmp_path),
        "--checkpoint-every", "1",
    ]  # fmt: skip
    with workers(2, *arguments, "--steps-per-epoch", "100000") as pair:
        wait_until((tmp_path / "checkpoint").exists)  # written last, when a checkpoint is whole
        for process in pair:
            process.send(signal.SIGKILL)
        assert [process.finish() for process in pair] == [-signal.SIGKILL, -signal.SIGKILL]
    # As if it had been killed while the other worker saved:
    (tmp_path / "workertemp_worker_1").mkdir(exist_ok=True)
    with workers(2, *arguments, "--steps-per-epoch", "30", "--epochs", "1") as pair:
        resumed = [job.wait_for(r"resumed from .* epoch 1, after step (\d+)") for job in pair]
        assert [process.finish() for process in pair] == [0, 0]
    assert resumed[0][1] == resumed[1][1]
    assert int(resumed[0][1]) > 0
    assert results(pair[0]) == results(pair[1])
    assert leftovers(tmp_path) == []


def test_sigterm_to_one_worker_saves_on_both_at_the_same_step(small_mnist, tmp_path):
    arguments = ["--data-dir", str(small_mnist), "--checkpoint-dir", str(tmp_path)]
    with workers(2, *arguments, "--steps-per-epoch", "100000") as pair:
        for process in pair:
            process.wait_for("images a step")
        pair[1].send(signal.SIGTERM)
        saved = [job.wait_for(r"preempted at (epoch 1, after step \d+): saved") for job in pair]
        assert [process.finish() for process in pair] == [42, 42]
    assert saved[0][1] == saved[1][1]
    assert leftovers(tmp_path) == []
    step = re.search(r"\d+$", saved[0][1])
    assert step
    with workers(
        2, *arguments, "--steps-per-epoch", str(int(step[0]) + 2), "--epochs", "1"
    ) as pair:
        resumed = [process.wait_for(r"resumed from .*: (.*)$") for process in pair]
        assert [process.finish() for process in pair] == [0, 0]
    assert resumed[0][1] == resumed[1][1] == saved[0][1]
    assert results(pair[0]) == results(pair[1])


def test_a_dead_peer_is_one_line_and_no_traceback(small_mnist):
    with workers(2, "--data-dir", str(small_mnist), "--steps-per-epoch", "100000") as pair:
        pair[0].wait_for("images a step")
        pair[1].wait_for("images a step")
        pair[1].send(signal.SIGKILL)
        pair[0].wait_for(r"error: worker:0 lost its cluster")
        assert pair[0].finish() == 1
    assert "Traceback" not in pair[0].output


def test_workers_of_different_runs_do_not_train_together(small_mnist, tmp_path):
    seeds = [["--seed", "1"], ["--seed", "2"]]
    with workers(2, "--data-dir", str(small_mnist), each=seeds) as pair:
        for process in pair:
            process.wait_for(r"error: the workers differ in seed \(1, 2\)")
            assert process.finish() == 65
