"""The command line: its options, their help texts, and checks of them. Imports nothing slow."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

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
    "replicas": LOCAL,
    "cross_device_ops": ("mirrored",),
    "communication": ("multi_worker_mirrored",),
    "tpu": ("tpu",),
    **dict.fromkeys(("variable_partitioner", "shards"), ("parameter_server",)),
}
"""The options that only some strategies have."""

WHOLE_PASS = 0
"""A number of steps per epoch that means one pass over the training images."""
_INT32_MAX, _SEED_MAX = 2**31 - 1, 2**32 - 1
"""The largest numbers of TensorFlow (for steps, epochs and images) and of NumPy's seed."""
_GLOB = re.compile(r"[*?\\]|\[[^/]*\]")
"""Characters that TensorFlow reads as a pattern when it lists the files of a checkpoint: for
`run[1]/ckpt-3`, it finds and removes files in `run1`. Braces and a single bracket do no harm."""

_DESCRIPTION = """\
Trains the CNNs of TensorFlow's tutorials on MNIST or Fashion-MNIST with a custom training loop (or
Model.fit), in one process or on a cluster. Every task of the cluster runs this program. TF_CONFIG
tells each task its role.
"""
_EPILOG = """\
examples:
  python main.py --data-dir ~/mnist --epochs 5          data from a folder
  python main.py --strategy mirrored --replicas 2       two replicas, a batch of 64 on each
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


def _integer(least: int, most: int = _INT32_MAX) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"[+-]?\d{1,99}", text) else least - 1
        if not least <= number <= most:
            limit = f"of {least} or more" if number < least else f"up to {most}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {limit}")
        return number

    return parse


def _number(text: str, *, zero: bool = False) -> float:
    with suppress(ValueError):
        number = float(text)
        if math.isfinite(number) and (number > 0 or (number == 0 and zero)):
            return number
    least = "of 0 or more" if zero else "above 0"
    raise argparse.ArgumentTypeError(f"{text!r} is not a number {least}")


def _steps_of_epoch(text: str) -> int:
    try:
        return WHOLE_PASS if text == "all" else _integer(1)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and not 'all'") from None


def _rates(text: str) -> dict[int, float]:
    if ":" not in text:
        return {0: _number(text)}
    pairs = (pair.strip().partition(":") for pair in text.split(","))
    return {_integer(1)(size): _number(rate) for size, _, rate in pairs}


def _interval(text: str) -> Interval:
    count, unit = re.fullmatch(r"0*([1-9]\d{0,8})(e?)", text, re.ASCII), text[-1:]
    if not count:
        problem = "is neither a number of steps, such as 50, nor of epochs, such as 2e"
        raise argparse.ArgumentTypeError(f"{text!r} {problem}")
    return Interval(epochs=int(count[1])) if unit == "e" else Interval(steps=int(count[1]))


def _devices(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        problem = "is no list of different devices, such as GPU:0,GPU:1"
        raise argparse.ArgumentTypeError(f"{text!r} {problem}")
    return names


def _folder(text: str) -> Path:
    if "://" in text:
        problem = "is an address, and the job uses folders only: mount the bucket, and give its"
        raise argparse.ArgumentTypeError(f"{text!r} {problem} folder")
    return Path(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line rather than argparse's usage block: launchers show it in a task's log."""
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def _parser() -> _Parser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        description=_DESCRIPTION, epilog=_EPILOG, formatter_class=formatter, allow_abbrev=False
    )
    # fmt: off
    add = parser.add_argument_group("training").add_argument
    add("--strategy", choices=STRATEGIES, help="default: $DISTRUN_STRATEGY; else that of the "
        "cluster in TF_CONFIG, if there is one; else mirrored if there are several GPUs; else "
        "`default` (no distribution)")
    add("--epochs", type=_integer(1), default=3, metavar="N", help="default: 3")
    add("--steps-per-epoch", type=_steps_of_epoch, default=70, metavar="N", help="a number, or "
        "`all`: one pass over the training images; its last batch may be smaller (default: 70)")
    add("--batch-size", type=_integer(1), default=64, metavar="N", help="images a step takes on "
        "each replica; the global batch is this times the replicas of all workers (default: 64)")
    add("--model", choices=("small_cnn", "cnn"), default="small_cnn", help="small_cnn: of the "
        "tutorial on multi-worker training (default); cnn: of that on custom training")
    add("--optimizer", choices=("rmsprop", "adam"), default="rmsprop", help="default: rmsprop")
    add("--learning-rate", type=_rates, default={0: 1e-3}, metavar="X|N:X,...", help="a number, or "
        "a table by the size of the global batch: 64:0.001,128:0.0015 (default: 0.001)")
    add("--l2", type=partial(_number, zero=True), default=0.0, metavar="X", help="adds X times the "
        "squared kernels to the loss, once per step for any number of replicas (default: 0)")
    add("--seed", type=_integer(0, _SEED_MAX), default=0, metavar="N", help="seed of the initial "
        "weights and of the order of the images, the same on all workers (default: 0)")
    add = parser.add_argument_group(
        "techniques: they change how the job trains, not the result").add_argument
    add("--loop", choices=("for", "iterator", "epoch"), help="for: a Python loop over the "
        "distributed dataset; iterator: at each step, a tf.function takes the next batch "
        "(default); epoch: up to 100 steps inside one tf.function; progress, SIGTERM and "
        "--checkpoint-every wait for their end")
    add("--input", choices=("from_function", "distribute"), default="from_function",
        help="from_function: distribute_datasets_from_function, each worker makes its own part of "
        "a batch (default); distribute: experimental_distribute_dataset divides global batches")
    add("--fit", action="store_true", help="train with Model.fit instead of the custom loop")
    add = parser.add_argument_group("data").add_argument
    add("--dataset", choices=("auto", "mnist", "fashion_mnist", "synthetic"), default="auto",
        help="mnist, fashion_mnist: from --data-dir, Keras's cache or a download; synthetic: drawn "
        "digits that come with the job; auto (default): mnist if available, else, but only to "
        "train, synthetic")
    add("--data-dir", type=_folder, metavar="DIR", help="a folder with mnist.npz "
        "(fashion_mnist.npz), or with the four idx files of the data set, plain or .gz")
    add = parser.add_argument_group("checkpoints and the trained model").add_argument
    add("--checkpoint-dir", type=_folder, metavar="DIR", help="save here, also on SIGTERM, and "
        "resume from here; a folder that all workers share (default: save nothing)")
    add("--checkpoint-every", type=_interval, metavar="N|Ne", help="N: save after every N steps of "
        "an epoch too; Ne: save only at the end of every N epochs, and of the last one (default: "
        "1e); the newest 3 checkpoints are kept")
    add("--evaluate", type=_folder, metavar="CHECKPOINT", help="do not train: print the test "
        "accuracy and loss of this checkpoint (run1/ckpt-3, or a folder for its newest)")
    add("--export-dir", type=_folder, metavar="DIR", help="write the trained model here as a "
        "SavedModel; replaces one that is there")
    add("--summary-dir", type=_folder, metavar="DIR", help="the chief writes loss, accuracy and "
        "images per second here, for TensorBoard")
    add = parser.add_argument_group(
        "distribution, for the strategies named in brackets").add_argument
    add("--devices", type=_devices, metavar="DEVICE,...", help="[one_device, mirrored, "
        "central_storage] such as GPU:0,GPU:1, or CPU:0,CPU:1, which divides the CPU (default: all "
        "GPUs, or the CPU; one_device: CPU:0)")
    add("--replicas", type=_integer(1), metavar="N", help="[mirrored, central_storage] instead of "
        "--devices: the first N GPUs or, without GPUs, N logical CPU devices")
    add("--cross-device-ops", choices=("nccl", "hierarchical_copy", "reduction_to_one_device"),
        help="[mirrored] how gradients are summed over the devices; nccl needs GPUs")
    add("--communication", choices=("auto", "ring", "nccl"), help="[multi_worker_mirrored] how "
        "gradients are summed over the workers; nccl needs GPUs (default: auto)")
    add("--variable-partitioner", choices=("none", "min_size", "fixed_shards"), help="[parameter_"
        "server] divides variables among the ps: into parts of 256 KiB or more, or into --shards "
        "parts (default: none)")
    add("--shards", type=_integer(1), metavar="N", help="[parameter_server] the most parts of a "
        "variable (default: the number of ps)")
    add("--tpu", metavar="NAME", help="[tpu] its name, its address (grpc://HOST:PORT) or `local` "
        "(default: $TPU_NAME, or local)")
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
    for problem in _problems(options):
        parser.error(problem)
    if options.dataset == "auto" and (options.evaluate or options.data_dir):
        options.dataset = "mnist"  # an evaluation must not use other digits instead
    options.loop = options.loop or "iterator"
    options.checkpoint_every = options.checkpoint_every or Interval()
    return options


def _problems(options: Options) -> list[str]:
    """How the options contradict each other."""
    asked, strategy, evaluated = vars(options), options.strategy, options.evaluate
    servers, loop, shards = strategy == "parameter_server", options.loop, options.shards
    # fmt: off
    problems = {
        **{f"{_flag(name)} is for {' and '.join(strategies)}, not for {strategy}":
           asked[name] is not None and strategy not in strategies
           for name, strategies in _STRATEGIES_OF.items()},
        "--devices and --replicas say the same: give one of them":
            options.devices and options.replicas,
        "--devices names several devices, and one_device uses one":
            strategy == "one_device" and len(options.devices or ()) > 1,
        "--shards needs --variable-partitioner fixed_shards or min_size":
            shards and options.variable_partitioner in {None, "none"},
        "--fit has a loop of its own: it takes no --loop": options.fit and loop,
        f"--loop {loop} is not for parameter_server: its chief gives the workers single steps, for "
        "which each has an iterator": servers and loop in {"for", "epoch"},
        "--fit on parameter_server uses DatasetCreator: it takes no --input distribute":
            servers and options.fit and options.input == "distribute",
        "--dataset synthetic comes with the job: it takes no --data-dir":
            options.dataset == "synthetic" and options.data_dir,
        "--checkpoint-every needs a --checkpoint-dir":
            options.checkpoint_every and not options.checkpoint_dir,
        **{f"--evaluate trains nothing and writes nothing: it takes no {_flag(name)}":
           evaluated and asked[name]
           for name in ("fit", "loop", "checkpoint_dir", "export_dir", "summary_dir")},
        f"--evaluate needs no strategy, and one process: not {strategy}":
            evaluated and strategy != "default",
    }
    # fmt: on
    for name in ("checkpoint_dir", "evaluate", "export_dir"):
        path = str(asked[name] or "")
        if path and name == "export_dir":
            path = os.path.abspath(path)  # a model is loaded by its absolute path
        if found := _GLOB.search(path):
            problem = f"TensorFlow would take {found[0]} for a pattern of other names"
            problems[
                f"{_flag(name)} {path}: {problem}; give the folder a name without * ? \\ [ ]"
            ] = 1
    return [problem for problem, holds in problems.items() if holds]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
