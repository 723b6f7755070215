"""The contestants: each strategy with distrun's job, and in the tutorials' form by hand."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import runs
from runs import Run

TUTORIAL = Path(__file__).parent / "tutorial_form.py"
DEBIANS_FASHION = Path("/usr/share/datasets/fashion-mnist")
"""The folder of its package dataset-fashion-mnist."""
JOB = Path(__file__).parents[2] / "jobs" / "mnist"
EPOCHS, STEPS, BATCH = 3, 70, 64


@dataclass(frozen=True)
class Strategy:
    """One strategy of tf.distribute, for both sides."""

    name: str
    cluster: dict[str, int] = field(default_factory=lambda: {"worker": 1})
    args: tuple[str, ...] = ()
    """Arguments of distrun's job."""

    @property
    def is_one_process(self) -> bool:
        return sum(self.cluster.values()) == 1

    def spec(self, script: str, *args: str) -> dict[str, Any]:
        return {
            "name": self.name.replace("_", "-"),
            "strategy": self.name,
            "cluster": self.cluster,
            "program": {"script": script, "args": list(args)},
        }

    def job(self, data: Path, folder: Path, *more: str) -> Run:
        """Distrun's job, started with `distrun launch`."""
        shape = ("--epochs", str(EPOCHS), "--steps-per-epoch", str(STEPS))
        where = ("--data-dir", str(data.parent), "--checkpoint-dir", str(folder / "checkpoints"))
        spec = self.spec("mnist", *shape, *self.args)
        return runs.with_distrun(self.name, spec, folder, *where, *more)

    def tutorial(self, data: Path, folder: Path) -> Run:
        """The tutorials' form, started by hand."""
        argv = [sys.executable, str(TUTORIAL), *self._tutorial_args(data, folder)]
        if self.is_one_process:
            return runs.by_hand(self.name, [runs.Process(argv)])
        return runs.by_hand(self.name, runs.cluster(argv, **self.cluster))

    def tutorial_with_distrun(self, data: Path, folder: Path) -> Run:
        """The same script, started with `distrun launch`."""
        spec = self.spec(str(TUTORIAL), *self._tutorial_args(data, folder))
        return runs.with_distrun(self.name, spec, folder)

    def _tutorial_args(self, data: Path, folder: Path) -> list[str]:
        shape = ["--epochs", str(EPOCHS), "--steps-per-epoch", str(STEPS)]
        checkpoints = ["--checkpoint-dir", str(folder / "checkpoints")]
        return [self.name, str(data), *shape, *checkpoints]


STRATEGIES = (
    Strategy("default"),
    Strategy("one_device"),
    Strategy("mirrored", args=("--devices", "2", "--batch-size", str(BATCH // 2))),
    Strategy("central_storage", args=("--devices", "2", "--batch-size", str(BATCH // 2))),
    Strategy("multi_worker_mirrored", {"worker": 2}),
    Strategy("parameter_server", {"chief": 1, "worker": 2, "ps": 1}),
)


def draw_fashion(folder: Path) -> None:
    """Writes drawn digits as `fashion_mnist.npz`: 6,000 images to train on, and 1,000 to test."""
    sys.path.insert(0, str(JOB))
    from mnist_job.data import synthetic

    digits = synthetic()
    np.savez(
        folder / "fashion_mnist.npz",
        x_train=digits.train_images[::5],
        y_train=digits.train_labels[::5],
        x_test=digits.test_images[::5],
        y_test=digits.test_labels[::5],
    )


def fashion(data: Path, folder: Path) -> Run:
    """The training of the tutorial on custom training, by distrun's job."""
    args = ("--dataset", "fashion_mnist", "--model", "cnn", "--optimizer", "adam")
    spec = Strategy("mirrored").spec("mnist", "--epochs", "10", "--steps-per-epoch", "all", *args)
    return runs.with_distrun("fashion", spec, folder, "--data-dir", str(data))
