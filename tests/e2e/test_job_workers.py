"""The job on two workers: when one dies, and when they were started differently."""

import signal
from pathlib import Path

import pytest

from harness.training import Workers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


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
            process.wait_for(r"the workers differ in model, seed:")
            assert process.finish() == 65
