"""The command line: its options, their help texts, and checks of them. Imports nothing slow."""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from mnist_job.cluster import Task

LOCAL = ("mirrored", "central_storage")
"""The strategies with several replicas in one process."""
ROLES = {
    "multi_worker_mirrored": ("chief", "worker", "evaluator"),
    "parameter_server": ("chief", "worker", "ps", "evaluator"),
}
"""The roles in TF_CONFIG that each strategy can use. The other strategies run in one process."""
STRATEGIES = ("default", "one_device", *LOCAL, *ROLES, "tpu")

_STRATEGIES_OF = {
    "devices": ("one_device", *LOCAL),
    "cross_device_ops": ("mirrored",),
    "communication": ("multi_worker_mirrored",),
    "variable_partitioner": ("parameter_server",),
    "tpu": ("tpu",),
}
"""The options that only some strategies have."""

WHOLE_PASS = 0
"""A number of steps per epoch that means one pass over the training images."""
BY_GLOBAL = -1
"""The same, and a smaller last batch's loss is divided by the size of a full batch."""
_PASSES = {"all": WHOLE_PASS, "all-global": BY_GLOBAL}
_DEVICE = re.compile(r"(?:/?device:|/)?([a-z]+):(\d+)", re.IGNORECASE)
_N = TypeVar("_N", int, float)

_ABOUT = "Trains the CNNs of TensorFlow's tutorials, alone or as a task of TF_CONFIG's cluster."
_EPILOG = """\
examples:
  python main.py --data-dir ~/mnist --epochs 5          data from a folder
  python main.py --strategy mirrored --devices 2        two replicas, a batch of 64 on each
  python main.py --checkpoint-dir run1                  run it again to resume from run1
  python main.py --evaluate run1                        the test accuracy of its newest checkpoint

exit codes: 0 trained; 1 the cluster broke (a peer died); 2 wrong usage; 42 preempted (SIGTERM) and
saved; 65 data, a checkpoint or a folder cannot be used; 69 no TPU.
"""


class Interval(NamedTuple):
    """How often a checkpoint is saved: after so many steps of an epoch (0: none), or epochs."""

    steps: int = 0
    epochs: int = 1


Options = argparse.Namespace
"""The options, checked, and `strategy_is_chosen`: by the user, the launcher or a cluster.
`learning_rate` maps sizes of the global batch to rates; 0 means any other size."""


def _number(least: _N, most: _N) -> Callable[[str], _N]:
    """Returns a parser of numbers in this range: of whole numbers, if the limits are."""
    kind = type(least)

    def parse(text: str) -> _N:
        with suppress(ValueError):
            if least <= (number := kind(text)) <= most:
                return number
        what = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what} from {least} to {most}")

    return parse


_count = _number(1, 2**31 - 1)
"""Parses a number of steps, epochs or images, up to TensorFlow's limit."""


def _rates(text: str) -> dict[int, float]:
    rate = _number(1e-30, 1e30)
    if ":" not in text:
        return {0: rate(text)}
    pairs = (pair.strip().partition(":") for pair in text.split(","))
    return {_count(size): rate(number) for size, _, number in pairs}


def _interval(text: str) -> Interval:
    count = re.fullmatch(r"0*([1-9]\d{0,8})(e?)", text, re.ASCII)
    if not count:
        problem = "is neither a number of steps, such as 50, nor of epochs, such as 2e"
        raise argparse.ArgumentTypeError(f"{text!r} {problem}")
    return Interval(epochs=int(count[1])) if count[2] else Interval(steps=int(count[1]))


def _devices(text: str) -> Sequence[str | int]:
    """The names of devices, as CPU:0; or the numbers of the first devices of the best kind."""
    if re.fullmatch(r"[1-9]\d{0,3}", text, re.ASCII):
        return range(int(text))
    found = [_DEVICE.fullmatch(name.strip()) for name in text.split(",")]
    names = tuple(f"{name[1].upper()}:{int(name[2])}" for name in found if name)
    if len(set(names)) < len(found):
        problem = "is neither a number of devices nor a list of different ones, such as GPU:0,GPU:1"
        raise argparse.ArgumentTypeError(f"{text!r} {problem}")
    return names


def _folder(text: str) -> Path:
    if "://" in text:
        problem = "is an address, and the job uses folders only: mount the bucket, and give its"
        raise argparse.ArgumentTypeError(f"{text!r} {problem} folder")
    return Path(text)


def _checkpoint(text: str) -> Path:
    """Checks the path of a checkpoint or a model.

    TensorFlow reads some characters as a pattern when it lists the files of a checkpoint: for
    `run[1]/ckpt-3`, it finds and removes files in `run1`. Braces and a single bracket do no harm.
    """
    if found := re.search(r"[*?\\]|\[[^/]*\]", text):
        problem = f"TensorFlow would take {found[0]} in {text} for a pattern of other names"
        advice = "give the folder a name without * ? \\ [ ]"
        raise argparse.ArgumentTypeError(f"{problem}; {advice}")
    return _folder(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line rather than argparse's usage block: launchers show it in a task's log."""
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def _parser() -> _Parser:
    raw = argparse.RawDescriptionHelpFormatter  # leaves the lines of the epilog as they are
    parser = _Parser(description=_ABOUT, epilog=_EPILOG, formatter_class=raw, allow_abbrev=False)
    # fmt: off
    add = parser.add_argument_group("training").add_argument
    add("--strategy", choices=STRATEGIES, help="default: $DISTRUN_STRATEGY, or that of TF_CONFIG's "
        "cluster; else mirrored if there are several GPUs, or `default` (no distribution)")
    add("--epochs", type=_count, default=3, metavar="N", help="default: 3")
    add("--steps-per-epoch", type=lambda text: _PASSES[text] if text in _PASSES else _count(text),
        default=70, metavar="N|all", help="all: one pass over the images; all-global: the same, "
        "and a smaller last batch's loss is divided by the size of a full one (default: 70)")
    add("--batch-size", type=_count, default=64, metavar="N", help="images a step takes on each "
        "replica; the global batch is this times the replicas of all workers (default: 64)")
    add("--batch-size-of", choices=("replica", "all"), default="replica", help="all: --batch-size "
        "is divided among all replicas: the same steps with fewer workers (default: replica)")
    add("--model", choices=("small_cnn", "cnn"), default="small_cnn", help="small_cnn: of the "
        "tutorial on multi-worker training (default); cnn: of that on custom training")
    add("--optimizer", choices=("rmsprop", "adam"), default="rmsprop", help="default: rmsprop")
    add("--learning-rate", type=_rates, default={0: 1e-3}, metavar="X|N:X,...", help="a number, or "
        "a table by the size of the global batch: 64:0.001,128:0.0015 (default: 0.001)")
    add("--l2", type=_number(0.0, 1e30), default=0.0, metavar="X", help="adds X times the squared "
        "kernels to the loss, once per step (default: 0)")
    add("--seed", type=_number(0, 2**32 - 1), default=0, metavar="N", help="seed of the initial "
        "weights and of the order of the images, the same on all workers (default: 0)")
    add = parser.add_argument_group("techniques, all with the same result").add_argument
    add("--loop", choices=("for", "iterator", "epoch"), help="for: a Python loop over the "
        "dataset; iterator: each step takes the next batch in a tf.function (default); epoch: up "
        "to 100 steps in one tf.function; progress, SIGTERM and saving wait for its end")
    add("--input", choices=("from_function", "distribute"), default="from_function", help="from_"
        "function: each worker makes its part of a batch (default); distribute: TensorFlow does")
    add("--fit", action="store_true", help="train with Model.fit instead of the custom loop")
    add = parser.add_argument_group("data").add_argument
    add("--dataset", choices=("auto", "mnist", "fashion_mnist", "synthetic"), default="auto",
        help="synthetic: drawn digits that come with the job; auto (default): mnist if available, "
        "else, but only to train, synthetic")
    add("--data-dir", type=_folder, metavar="DIR", help="a folder with mnist.npz, fashion_mnist."
        "npz or the four idx files (default: Keras's cache, or a download)")
    add = parser.add_argument_group("checkpoints and the trained model").add_argument
    add("--checkpoint-dir", type=_checkpoint, metavar="DIR", help="save here, also on SIGTERM, and "
        "resume from here; a folder that all workers share (default: save nothing)")
    add("--checkpoint-every", type=_interval, metavar="N|Ne", help="N: save after every N steps of "
        "an epoch too; Ne: save only after every N epochs and the last one (default: 1e)")
    add("--evaluate", type=_checkpoint, metavar="CHECKPOINT", help="do not train: print the test "
        "accuracy and loss of this checkpoint (run1/ckpt-3, or a folder for its newest)")
    add("--export-dir", type=lambda text: _checkpoint(os.path.abspath(_folder(text))),
        metavar="DIR", help="write a SavedModel of the trained model here, in place of an old one")
    add("--summary-dir", type=_folder, metavar="DIR", help="write loss, accuracy and images per "
        "second here, for TensorBoard")
    add = parser.add_argument_group("distribution, for the strategies in brackets").add_argument
    add("--devices", type=_devices, metavar="N|DEVICE,...", help="[one_device, mirrored, central_"
        "storage] the first N GPUs or, without GPUs, N logical CPU devices; or names, such as "
        "GPU:0,GPU:1 (default: all GPUs, or the CPU; one_device: CPU:0)")
    add("--cross-device-ops", choices=("nccl", "hierarchical_copy", "reduction_to_one_device"),
        help="[mirrored] how gradients are summed over the devices; nccl needs GPUs")
    add("--communication", choices=("auto", "ring", "nccl"), help="[multi_worker_mirrored] how "
        "gradients are summed over the workers; nccl needs GPUs (default: auto)")
    add("--variable-partitioner", choices=("none", "min_size", "fixed_shards"), help="[parameter_"
        "server] divides variables among the ps: into parts of 256 KiB or more, or one for each ps")
    add("--tpu", metavar="NAME", help="[tpu] its name or address (default: $TPU_NAME, or local)")
    # fmt: on
    return parser


def parse(argv: Sequence[str], environ: Mapping[str, str], task: Task) -> Options:
    """Parses the command line. Exits with 2 and a message of one line if it is wrong."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.evaluate and not options.strategy and task.trainers == 1:
        # An evaluation ignores the launcher's strategy and its options.
        vars(options).update(dict.fromkeys(_STRATEGIES_OF), strategy="default")
    of_cluster = "parameter_server" if task.count("ps") else "multi_worker_mirrored"
    asked = options.strategy or environ.get("DISTRUN_STRATEGY") or (task.cluster and of_cluster)
    options.strategy, options.strategy_is_chosen = str(asked or "default"), bool(asked)
    if options.strategy not in STRATEGIES:
        parser.error(f"DISTRUN_STRATEGY={options.strategy!r} is none of {', '.join(STRATEGIES)}")
    for problem in _problems(options, task):
        parser.error(problem)
    if options.dataset == "auto" and (options.evaluate or options.data_dir):
        options.dataset = "mnist"  # an evaluation must not use other digits instead
    options.loop = options.loop or "iterator"
    options.checkpoint_every = options.checkpoint_every or Interval()
    return options


def _problems(options: Options, task: Task) -> list[str]:
    """How the options contradict each other, or the cluster."""
    asked, strategy, evaluated = vars(options), options.strategy, options.evaluate
    servers, loop = strategy == "parameter_server", options.loop
    roles = ROLES.get(strategy, (task.role,))  # strategies of one process ignore TF_CONFIG
    missing = [role for role in ("chief", "worker", "ps") if not task.count(role)]
    # fmt: off
    problems = {
        **{f"--{name.replace('_', '-')} is for {' and '.join(strategies)}, not for {strategy}":
           asked[name] is not None and strategy not in strategies
           for name, strategies in _STRATEGIES_OF.items()},
        "--devices names several devices, and one_device uses one":
            strategy == "one_device" and len(options.devices or ()) > 1,
        "--fit has a loop of its own: it takes no --loop": options.fit and loop,
        f"--loop {loop} is not for parameter_server: its chief gives the workers single steps, for "
        "which each has an iterator": servers and loop in {"for", "epoch"},
        "--fit on parameter_server uses DatasetCreator: it takes no --input distribute":
            servers and options.fit and options.input == "distribute",
        "--dataset synthetic comes with the job: it takes no --data-dir":
            options.dataset == "synthetic" and options.data_dir,
        "--checkpoint-every needs a --checkpoint-dir":
            options.checkpoint_every and not options.checkpoint_dir,
        **{f"--evaluate trains and writes nothing: it takes no --{name.replace('_', '-')}":
           evaluated and asked[name]
           for name in ("fit", "loop", "checkpoint_dir", "export_dir", "summary_dir")},
        f"--evaluate needs no strategy, and one process: not {strategy}":
            evaluated and strategy != "default",
        f"{task.name} has no part in {strategy}: its roles are {', '.join(roles)}":
            task.role not in roles,
        "parameter_server needs a cluster in TF_CONFIG with a chief, workers and ps: there is no "
        f"{' and no '.join(missing)}": servers and missing,
        f"{task.name} evaluates checkpoints: give all tasks the same --checkpoint-dir":
            strategy in ROLES and task.role == "evaluator" and not options.checkpoint_dir,
    }
    # fmt: on
    return [problem for problem, holds in problems.items() if holds]
