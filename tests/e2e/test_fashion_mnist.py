"""The bundled job on the real Fashion-MNIST, which Debian has as compressed idx files."""

from pathlib import Path

import pytest

from harness.requirements import skip
from harness.training import Alone

FOLDER = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_an_epoch_of_the_real_images(alone: Alone) -> None:
    if not FOLDER.is_dir():
        skip("Fashion-MNIST is not installed", "apt-get install dataset-fashion-mnist")
    with alone(
        "--dataset", "fashion_mnist", "--data-dir", str(FOLDER), "--model", "cnn",
        "--optimizer", "adam", "--epochs", "1", "--steps-per-epoch", "60",
    ) as job:  # fmt: skip
        assert job.finish() == 0
    assert f"fashion_mnist from {FOLDER}, 60,000 + 10,000 images" in job.output
    assert job.epochs[0]["test_accuracy"] > 0.6
