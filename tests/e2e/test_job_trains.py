"""The job in one process and on two workers: it trains, saves, resumes, and tells what ends it."""

import signal
from pathlib import Path

import pytest

from harness.interrupted_saves import interrupted_saves
from harness.requirements import skip
from harness.training import Alone, Workers, notified

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
SMALL = ("--model", "cnn")
"""Its checkpoints are a twentieth of the default model's."""


def test_trains_and_tells_its_progress(
    alone: Alone, small_mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with notified() as (notify, told), alone(
        "--data-dir", str(small_mnist), "--epochs", "2", "--steps-per-epoch", "12",
        DISTRUN_NOTIFY=notify, TMPDIR=str(tmp_path),
    ) as job:  # fmt: skip
        assert job.finish() == 0
        seen = told()
    first, second = job.epochs
    assert second["loss"] < first["loss"]
    assert (first["epoch"], second["epoch"], first["step"]) == (1, 2, 12)
    assert any("default: replicas 1, 64 images a step" in line for line in job.lines)
    for number in (1, 2):
        last = [fields for fields in seen if fields.get("EPOCH") == str(number)][-1]
        assert int(last["STEP"]) == 12 * number
        assert float(last["LOSS"]) > 0
    # Without --checkpoint-dir nothing is left, not even the code that TensorFlow generates.
    assert list(tmp_path.iterdir()) == []


def test_sigterm_saves_for_the_next_launch(alone: Alone, small_mnist: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "it's here")
    arguments = [*SMALL, "--data-dir", str(small_mnist), "--checkpoint-dir", folder]
    endless = ["--steps-per-epoch", "100000"]
    by_two = ["--strategy", "mirrored", "--devices", "2"]
    calls = ["--loop", "epoch", "--checkpoint-every", "5"]
    steps = [0]
    # Saved by two replicas, restored without a strategy.
    for more in ([*by_two, *calls], ["--loop", "fit"]):
        with alone(*arguments, *endless, *more) as job:
            job.wait_for(r"resumed from .*, after step \d+" if steps[1:] else "images a step")
            job.send(signal.SIGTERM)
            saved = job.wait_for(r"preempted at epoch 1, after step (\d+): saved in")
            assert job.finish() == 42
        steps.append(int(saved[1]))
    assert steps[1] % 5 == 0  # between two calls
    assert steps[2] >= steps[1]
    last = ["--steps-per-epoch", str(steps[2] + 2), "--epochs", "1"]
    with alone(*arguments, *last) as job:
        resumed = job.wait_for(r"resumed from ckpt-\d+ in .*: epoch 1, after step (\d+)")
        assert job.finish() == 0
    assert int(resumed[1]) == steps[2]
    assert job.epochs[0]["step"] == steps[2] + 2
    with alone(*arguments, *last) as job:
        job.wait_for("resumed from ckpt-.*; nothing left to train")
        assert job.finish() == 0


def test_a_first_save_may_be_killed(alone: Alone, small_mnist: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    arguments = [
        *SMALL, "--data-dir", str(small_mnist), "--checkpoint-dir", str(folder),
        "--steps-per-epoch", "4", "--checkpoint-every", "2", "--epochs", "1",
    ]  # fmt: skip
    with interrupted_saves(folder, lambda name, _: name == "ckpt-1.index") as saves:
        with alone(*arguments) as job:
            assert job.finish() == -signal.SIGKILL
        assert saves.victim
        assert (folder / "ckpt-1.index").read_bytes() == b""
        with alone(*arguments) as job:
            job.wait_for(
                r"the first checkpoint in .* is incomplete: .*; training starts from the beginning"
            )
            assert job.finish() == 0
        assert job.epochs[0]["step"] == 4


IMPOSSIBLE = {
    "--strategy=one_device --devices=GPU:77": "--devices GPU:77: one_device takes one of CPU:0",
    "--strategy=one_device --devices=2": "--devices 2: one_device takes one of CPU:0, CPU:1",
    "--strategy=mirrored --devices=cpu:1,cpu:1":
        "--devices CPU:1,CPU:1: mirrored takes different ones of CPU:0, CPU:1",
    "--strategy=mirrored --devices=0": "--devices 0: mirrored takes different ones of",
    "--strategy=mirrored --devices=3 --learning-rate=64:0.001,128:0.002":
        "rates for global batches of 64, 128 images, and none for 192",
    "--strategy=tpu": "error: no TPU on this machine",
}  # fmt: skip


@pytest.mark.parametrize("words", IMPOSSIBLE)
def test_impossible_here(alone: Alone, small_mnist: Path, words: str) -> None:
    with alone("--data-dir", str(small_mnist), *words.split(), CUDA_VISIBLE_DEVICES="-1") as job:
        assert job.finish() == (69 if "tpu" in words else 2)
    assert IMPOSSIBLE[words] in job.lines[-1]
    assert "Traceback" not in job.output


def test_a_dead_peer_is_one_line_and_no_traceback(workers: Workers, small_mnist: Path) -> None:
    with workers(2, "--data-dir", str(small_mnist), "--steps-per-epoch", "100000") as pair:
        pair[0].wait_for("images a step")
        pair[1].wait_for("images a step")
        pair[1].send(signal.SIGKILL)
        pair[0].wait_for(r"error: worker:0 lost its cluster")
        assert pair[0].finish() == 1
    assert "Traceback" not in pair[0].output


def test_different_runs_do_not_mix(workers: Workers, small_mnist: Path, tmp_path: Path) -> None:
    different = [["--seed", "1"], ["--seed", "2", "--model", "cnn"]]
    with workers(2, "--data-dir", str(small_mnist), each=different) as pair:
        for process in pair:
            process.wait_for(r"the workers differ in model, seed:")
            assert process.finish() == 65


FOLDER = Path("/usr/share/datasets/fashion-mnist")


def test_an_epoch_of_the_real_images(alone: Alone) -> None:
    if not FOLDER.is_dir():
        skip("Fashion-MNIST is not installed", "apt-get install dataset-fashion-mnist")
    with alone(
        "--dataset", "fashion_mnist", "--data-dir", str(FOLDER), "--model", "cnn",
        "--optimizer", "adam", "--learning-rate", "0.003", "--epochs", "1",
        "--steps-per-epoch", "30",
    ) as job:  # fmt: skip
        assert job.finish() == 0
    assert f"fashion_mnist from {FOLDER}, 60,000 + 10,000 images" in job.output
    assert job.epochs[0]["test_accuracy"] > 0.6
