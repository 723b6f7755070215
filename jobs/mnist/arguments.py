"""The command line: what can be asked of the job. Imports nothing slow."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from distribution import Distribution, DistributionError, add_options
from distribution import chosen as distribution_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cluster import Task

STRATEGIES = (
    "default",
    "one_device",
    "mirrored",
    "central_storage",
    "multi_worker_mirrored",
    "parameter_server",
    "tpu",
)
ROLES = {
    "multi_worker_mirrored": ("chief", "worker", "evaluator"),
    "parameter_server": ("chief", "worker", "ps", "evaluator"),
}
"""What the tasks of TF_CONFIG may be; the other strategies run in one process."""

_DESCRIPTION = """\
Trains the tutorials' small CNN on MNIST with a custom training loop, on one process or on a
cluster: every task of the cluster runs this same program, and TF_CONFIG tells it its place.
"""

_EPILOG = """\
examples:
  python main.py                                        one process, 3 epochs of 70 steps
  python main.py --data-dir ~/mnist --epochs 5          data that is already there
  python main.py --checkpoint-dir run1 --checkpoint-every 50
                                                        run it again to resume in run1

exit codes: 0 trained; 2 wrong usage; 42 preempted (SIGTERM), after saving; 65 data or a checkpoint
that cannot be used; 69 no TPU; 1 the cluster broke (a peer died).
"""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What was asked for, checked."""

    strategy: str
    distribution: Distribution
    epochs: int
    steps_per_epoch: int
    batch_size: int
    """Images a step takes on each worker."""
    learning_rate: float
    seed: int
    data: str
    data_dir: Path | None
    checkpoint_dir: Path | None
    checkpoint_every: int
    """Steps of an epoch between checkpoints; 0: at the end of each epoch only."""
    max_to_keep: int


def _integer(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return number

    return parse


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line rather than argparse's usage block: launchers show it in a task's log."""
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--strategy",
        choices=STRATEGIES,
        help="default: $DISTRUN_STRATEGY; else, where TF_CONFIG names a cluster, parameter_server "
        "if it has a ps and multi_worker_mirrored if not; else default (no distribution)",
    )
    training.add_argument("--epochs", type=_integer(1), default=3, metavar="N", help="default: 3")
    training.add_argument(
        "--steps-per-epoch", type=_integer(1), default=70, metavar="N", help="default: 70"
    )
    training.add_argument(
        "--batch-size",
        type=_integer(1),
        default=64,
        metavar="N",
        help="images a step takes on each worker; the global batch is this times the workers "
        "(default: 64)",
    )
    training.add_argument(
        "--learning-rate", type=_positive, default=1e-3, metavar="X", help="default: 0.001"
    )
    training.add_argument(
        "--seed",
        type=_integer(0),
        default=0,
        metavar="N",
        help="of the first weights and of the order of the images; the same on all workers "
        "(default: 0)",
    )
    add_options(parser)
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        choices=("auto", "mnist", "synthetic"),
        default="auto",
        help="mnist: from --data-dir, Keras's cache, or a download; synthetic: digits the job "
        "draws itself; auto (default): mnist where it can be had, else synthetic",
    )
    data.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="a folder with mnist.npz, or with MNIST's four idx files, plain or .gz",
    )
    saving = parser.add_argument_group("checkpoints")
    saving.add_argument(
        "--checkpoint-dir",
        type=Path,
        metavar="DIR",
        help="save here, and resume from here (on several machines: a folder all of them share); "
        "without it nothing is saved",
    )
    saving.add_argument(
        "--checkpoint-every",
        type=_integer(1),
        default=0,
        metavar="STEPS",
        help="save after this many steps of an epoch too (default: after each epoch only)",
    )
    saving.add_argument(
        "--max-to-keep", type=_integer(1), default=3, metavar="N", help="default: 3"
    )
    return parser


def parse(argv: Sequence[str], environ: Mapping[str, str], task: Task) -> Arguments:
    """Reads the command line; exits with 2 and one line where it is wrong."""
    parser = _parser()
    options = vars(parser.parse_args(argv))
    if options["strategy"] is None:
        options["strategy"] = environ.get("DISTRUN_STRATEGY") or _fitting(task)
        if options["strategy"] not in STRATEGIES:
            parser.error(
                f"DISTRUN_STRATEGY={options['strategy']!r} is none of {', '.join(STRATEGIES)}"
            )
    if options["data"] == "synthetic" and options["data_dir"] is not None:
        parser.error("--data synthetic draws its own digits: it takes no --data-dir")
    try:
        distribution = distribution_of(options, options["strategy"])
    except DistributionError as error:
        parser.error(str(error))
    return Arguments(distribution=distribution, **options)


def _fitting(task: Task) -> str:
    """The strategy for the cluster that TF_CONFIG names, if any."""
    if not task.cluster:
        return "default"
    return "parameter_server" if task.count("ps") else "multi_worker_mirrored"
