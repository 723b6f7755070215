"""The options of the command line, in groups, with their help texts."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from distribution import add_options

if TYPE_CHECKING:
    from collections.abc import Callable

STRATEGIES = (
    "default",
    "one_device",
    "mirrored",
    "central_storage",
    "multi_worker_mirrored",
    "parameter_server",
    "tpu",
)
WHOLE_PASS = 0
"""A number of steps per epoch that means one pass over the training images."""

_INT32_MAX = 2**31 - 1
"""A larger number of steps, epochs or images would overflow a number of TensorFlow."""
_SEED_MAX = 2**32 - 1
"""The largest seed of NumPy."""

_DESCRIPTION = """\
Trains the CNNs of TensorFlow's tutorials on MNIST or Fashion-MNIST with a custom training loop (or
Model.fit), in one process or on a cluster. Every task of the cluster runs this program. TF_CONFIG
tells each task its role.
"""

_EPILOG = """\
examples:
  python main.py                                        one process, 3 epochs of 70 steps
  python main.py --data-dir ~/mnist --epochs 5          data from a folder
  python main.py --strategy mirrored --replicas 2       two replicas, half of each batch on each
  python main.py --loop epoch --steps-per-epoch all     each epoch is one pass over all images, in
                                                        few calls of a tf.function
  python main.py --dataset fashion_mnist --model cnn --optimizer adam --epochs 10
                                                        the tutorial on custom training
  python main.py --fit                                  the same training by Model.fit
  python main.py --checkpoint-dir run1 --checkpoint-every 50
                                                        run it again to resume from run1
  python main.py --evaluate run1                        the test accuracy of its newest checkpoint
  python main.py --summary-dir logs --export-dir model  for TensorBoard, and a SavedModel

exit codes: 0 trained; 1 the cluster broke (a peer died); 2 wrong usage; 42 preempted (SIGTERM) and
saved; 65 data, a checkpoint or a folder cannot be used; 69 no TPU.
"""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """How often a checkpoint is saved; always after the last epoch."""

    steps: int = 0
    """Steps between two checkpoints of an epoch; 0: only at the ends of epochs."""
    epochs: int = 1
    """Epochs between two checkpoints at the end of an epoch."""


def integer(least: int, most: int = _INT32_MAX) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            limit = f"of {least} or more" if number < least else f"up to {most}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {limit}")
        return number

    return parse


def _steps_of_epoch(text: str) -> int:
    if text == "all":
        return WHOLE_PASS
    try:
        return integer(1)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and not 'all'") from None


def _interval(text: str) -> Interval:
    number = text.removesuffix("e")
    try:
        count = integer(1)(number)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of steps, such as 50, nor of epochs, such as 2e"
        ) from None
    return Interval(steps=count) if number == text else Interval(epochs=count)


def _number(text: str, *, zero: bool) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        least = "of 0 or more" if zero else "above 0"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number {least}")
    return number


def _positive(text: str) -> float:
    return _number(text, zero=False)


def _not_negative(text: str) -> float:
    return _number(text, zero=True)


class Parser(argparse.ArgumentParser):
    """Of the whole command line."""

    def __init__(self) -> None:
        super().__init__(
            description=_DESCRIPTION,
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._add_training()
        self._add_techniques()
        self._add_data()
        self._add_saving()
        self._add_showing()
        add_options(self)

    def error(self, message: str) -> NoReturn:
        """One line rather than argparse's usage block: launchers show it in a task's log."""
        self.exit(2, f"{self.prog}: {message} (see --help)\n")

    def _add_training(self) -> None:
        training = self.add_argument_group("training")
        training.add_argument(
            "--strategy",
            choices=STRATEGIES,
            help="default: $DISTRUN_STRATEGY; else, where TF_CONFIG names a cluster, "
            "parameter_server if it has a ps and multi_worker_mirrored if not; else default (no "
            "distribution)",
        )
        training.add_argument(
            "--epochs", type=integer(1), default=3, metavar="N", help="default: 3"
        )
        training.add_argument(
            "--steps-per-epoch",
            type=_steps_of_epoch,
            default=70,
            metavar="N",
            help="a number, or `all`: one pass over all training images, in which the last batch "
            "may be smaller (default: 70)",
        )
        training.add_argument(
            "--batch-size",
            type=integer(1),
            default=64,
            metavar="N",
            help="images a step takes on each worker; the global batch is this times the workers "
            "(default: 64)",
        )
        training.add_argument(
            "--model",
            choices=("small_cnn", "cnn"),
            default="small_cnn",
            help="small_cnn: of the tutorial on multi-worker training (one convolution; default); "
            "cnn: of that on custom training (two convolutions with pooling)",
        )
        training.add_argument(
            "--optimizer", choices=("rmsprop", "adam"), default="rmsprop", help="default: rmsprop"
        )
        training.add_argument(
            "--learning-rate", type=_positive, default=1e-3, metavar="X", help="default: 0.001"
        )
        training.add_argument(
            "--l2",
            type=_not_negative,
            default=0.0,
            metavar="X",
            help="adds X times the squared kernels to the loss, once per step for any number of "
            "replicas (default: 0)",
        )
        training.add_argument(
            "--seed",
            type=integer(0, _SEED_MAX),
            default=0,
            metavar="N",
            help="seed of the initial weights and of the order of the images; must be the same on "
            "all workers (default: 0)",
        )

    def _add_techniques(self) -> None:
        techniques = self.add_argument_group(
            "techniques: they change how the job trains, not the result"
        )
        techniques.add_argument(
            "--loop",
            choices=("for", "iterator", "epoch"),
            help="for: a Python loop over the distributed dataset; iterator: at each step, a "
            "tf.function takes the next batch from the iterator (default); epoch: all steps of an "
            "epoch inside one tf.function",
        )
        techniques.add_argument(
            "--steps-per-call",
            type=integer(1),
            metavar="N",
            help="[--loop epoch] a longer epoch is divided into calls of N steps; progress, "
            "SIGTERM and --checkpoint-every wait for the end of a call (default: 100)",
        )
        techniques.add_argument(
            "--input",
            choices=("from_function", "distribute"),
            default="from_function",
            help="from_function: distribute_datasets_from_function, each worker's pipeline makes "
            "its own part of a batch (default); distribute: experimental_distribute_dataset "
            "divides a dataset of global batches",
        )
        techniques.add_argument(
            "--fit", action="store_true", help="train with Model.fit instead of the custom loop"
        )

    def _add_data(self) -> None:
        data = self.add_argument_group("data")
        data.add_argument(
            "--dataset",
            choices=("mnist", "fashion_mnist"),
            default="mnist",
            help="default: mnist",
        )
        data.add_argument(
            "--data",
            choices=("auto", "mnist", "synthetic"),
            default="auto",
            help="mnist: from --data-dir, Keras's cache or a download; synthetic: digits that the "
            "job draws itself; auto (default): the --dataset if it is available; otherwise "
            "synthetic, but only for mnist and only to train",
        )
        data.add_argument(
            "--data-dir",
            type=Path,
            metavar="DIR",
            help="a folder with mnist.npz (fashion_mnist.npz), or with the four idx files of the "
            "data set, plain or .gz",
        )

    def _add_saving(self) -> None:
        saving = self.add_argument_group("checkpoints and the trained model")
        saving.add_argument(
            "--checkpoint-dir",
            type=Path,
            metavar="DIR",
            help="save here, and resume from here (on several machines: a folder that they all "
            "share); default: save nothing",
        )
        saving.add_argument(
            "--checkpoint-every",
            type=_interval,
            metavar="N|Ne",
            help="N: save after every N steps of an epoch too; Ne: save only at the end of every "
            "N epochs, and of the last one (default: 1e)",
        )
        saving.add_argument(
            "--max-to-keep", type=integer(1), metavar="N", help="checkpoints to keep (default: 3)"
        )
        saving.add_argument(
            "--evaluate",
            type=Path,
            metavar="CHECKPOINT",
            help="do not train: restore this checkpoint (run1/ckpt-3, or a folder for its "
            "newest) without a strategy, and print its accuracy and loss on the test images",
        )
        saving.add_argument(
            "--export-dir",
            type=Path,
            metavar="DIR",
            help="write the trained model here as a SavedModel; replaces one that is there",
        )

    def _add_showing(self) -> None:
        showing = self.add_argument_group("TensorBoard")
        showing.add_argument(
            "--summary-dir",
            type=Path,
            metavar="DIR",
            help="the chief writes loss, accuracy and images per second here",
        )
