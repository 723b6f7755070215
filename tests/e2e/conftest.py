"""What several end-to-end tests need."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def small_mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small mnist.npz of drawn digits.

    Small, so that loading and evaluating take no time; 101 test images, so that they divide
    evenly among nothing.
    """
    import synthetic

    folder = tmp_path_factory.mktemp("small-mnist")
    digits = synthetic.draw(2000, 101)
    np.savez(
        folder / "mnist.npz",
        x_train=digits.train_images,
        y_train=digits.train_labels,
        x_test=digits.test_images,
        y_test=digits.test_labels,
    )
    return folder
