"""The job in one process: it trains, saves and resumes."""

import shutil
import signal
from pathlib import Path

import pytest

from harness.interrupted_saves import interrupted_saves
from harness.training import Alone, notified

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
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


def test_sigterm_saves_and_the_next_launch_resumes_there(
    alone: Alone, small_mnist: Path, tmp_path: Path
) -> None:
    folder = str(tmp_path / "it's here")
    arguments = [*SMALL, "--data-dir", str(small_mnist), "--checkpoint-dir", folder]
    # Saved by two replicas, restored without a strategy.
    two = ["--strategy", "mirrored", "--devices", "2"]
    with alone(*arguments, *two, "--steps-per-epoch", "100000") as job:
        job.wait_for("images a step")
        job.send(signal.SIGTERM)
        saved = job.wait_for(r"preempted at epoch 1, after step (\d+): saved in")
        assert job.finish() == 42
    steps = str(int(saved[1]) + 3)
    with alone(*arguments, "--steps-per-epoch", steps, "--epochs", "1") as job:
        resumed = job.wait_for(r"resumed from ckpt-\d+ in .*: epoch 1, after step (\d+)")
        assert job.finish() == 0
    assert resumed[1] == saved[1]
    assert job.epochs[0]["step"] == int(steps)
    with alone(*arguments, "--steps-per-epoch", steps, "--epochs", "1") as job:
        job.wait_for("resumed from ckpt-.*; nothing left to train")
        assert job.finish() == 0


@pytest.mark.parametrize(("size", "images"), [("33", 66), ("global:33", 34)])
def test_the_batch_is_that_of_a_replica_or_of_all(
    alone: Alone, small_mnist: Path, size: str, images: int
) -> None:
    sizes = ["--batch-size", size, "--epochs", "1", "--steps-per-epoch", "2"]
    rates = ["--learning-rate", f"{66 if size == '33' else 33}:0.001"]
    two = ["--strategy", "mirrored", "--devices", "2"]
    with alone("--data-dir", str(small_mnist), *SMALL, *sizes, *rates, *two) as job:
        job.wait_for(f" {images} images a step")


def test_a_damaged_checkpoint_falls_back_and_a_foreign_one_is_named(
    alone: Alone, small_mnist: Path, tmp_path: Path
) -> None:
    arguments = [
        *SMALL, "--data-dir", str(small_mnist), "--checkpoint-dir", str(tmp_path),
        "--steps-per-epoch", "4", "--checkpoint-every", "2", "--epochs", "1",
    ]  # fmt: skip
    with alone(*arguments) as job:
        assert job.finish() == 0
    data = tmp_path / "ckpt-2.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    with alone(*arguments) as job:
        job.wait_for(r"ckpt-2 cannot be restored")
        job.wait_for(r"resumed from ckpt-1 in .*: epoch 1, after step 2")
        assert job.finish() == 0
    for data in tmp_path.glob("*.data*"):
        data.write_bytes(b"")
    with alone(*arguments) as job:
        job.wait_for(r"error: none of the \d checkpoints in .* can be restored")
        assert job.finish() == 65


@pytest.mark.parametrize("strategy", [[], ["--strategy", "mirrored", "--devices", "2"]])
def test_a_first_save_that_is_killed_does_not_hinder_the_next_launch(
    strategy: list[str], alone: Alone, small_mnist: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    arguments = [
        *SMALL, *strategy, "--data-dir", str(small_mnist), "--checkpoint-dir", str(folder),
        "--steps-per-epoch", "4", "--checkpoint-every", "2", "--epochs", "1",
    ]  # fmt: skip
    with interrupted_saves(folder, lambda name, _: name == "ckpt-1.index") as saves:
        with alone(*arguments) as job:
            assert job.finish() == -signal.SIGKILL
        assert saves.victim
        assert (folder / "ckpt-1.index").read_bytes() == b""
        with alone(*arguments) as job:
            job.wait_for(r"the first checkpoint in .* is incomplete: .*; training starts anew")
            assert job.finish() == 0
        assert job.epochs[0]["step"] == 4
        with alone(*arguments) as job:
            job.wait_for(r"resumed from ckpt-2 in")
            assert job.finish() == 0


def test_only_a_first_checkpoint_that_was_never_complete_is_ignored(
    alone: Alone, small_mnist: Path, tmp_path: Path
) -> None:
    whole, short = tmp_path / "whole", ("--steps-per-epoch", "2", "--epochs", "1")
    common = (*SMALL, "--data-dir", str(small_mnist), *short, "--checkpoint-dir")
    with alone(*common, str(whole)) as job:
        assert job.finish() == 0
    for damage in ("data", "index"):
        folder = shutil.copytree(whole, tmp_path / damage)
        saved_list = folder / "checkpoint"
        saved_list.write_text(saved_list.read_text().replace(str(whole), str(folder)))
        (file,) = folder.glob(f"ckpt-1.{damage}*")
        file.write_bytes(file.read_bytes()[:100])
        with alone(*common, str(folder)) as job:
            job.wait_for(r"error: none of the 1 checkpoints in .* can be restored")
            assert job.finish() == 65
        # The list has the complete checkpoints.
        saved_list.unlink()
        with alone(*common, str(folder)) as job:
            job.wait_for("training starts anew")
            assert job.finish() == 0
        assert job.epochs[0]["step"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--strategy=one_device", "--devices=GPU:77"],
            "--devices GPU:77: one_device takes one of CPU:0",
        ),
        (
            ["--strategy=one_device", "--devices=2"],
            "--devices 2: one_device takes one of CPU:0, CPU:1",
        ),
        (
            ["--strategy=mirrored", "--devices=cpu:1,cpu:1"],
            "--devices CPU:1,CPU:1: mirrored takes different ones of CPU:0, CPU:1",
        ),
        (["--strategy=mirrored", "--devices=0"], "--devices 0: mirrored takes different ones of"),
        (
            ["--strategy=mirrored", "--devices=3", "--learning-rate=64:0.001,128:0.002"],
            "rates for global batches of 64, 128 images, and none for 192",
        ),
    ],
)
def test_what_the_machine_cannot_do_is_one_line(
    alone: Alone, small_mnist: Path, arguments: list[str], says: str
) -> None:
    with alone("--data-dir", str(small_mnist), *arguments, CUDA_VISIBLE_DEVICES="-1") as job:
        assert job.finish() == 2
    assert says in job.lines[-1]
    assert "Traceback" not in job.output
