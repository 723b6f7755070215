"""The command line: its options, their help texts, and checks of them. Imports nothing slow."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mnist_job import workarounds
from mnist_job.cluster import Task

ROLES = {
    "multi_worker_mirrored": ("chief", "worker", "evaluator"),
    "parameter_server": ("chief", "worker", "ps", "evaluator"),
}
"""The roles in TF_CONFIG that each strategy can use. The other strategies run in one process."""
STRATEGIES = ("default", "one_device", "mirrored", "central_storage", *ROLES, "tpu")
_REDUCTIONS = {
    "mirrored": ("nccl", "hierarchical_copy", "one_device"),
    "multi_worker_mirrored": ("auto", "ring", "nccl"),
}
PASSES = {"all": -1, "all-global": -2}
"""Numbers of steps per epoch with a meaning of their own."""
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
Options = argparse.Namespace
"""The options, checked, and `strategy_is_chosen`: by the user, the launcher or a cluster."""


def _number(least: float, most: float, kind: type[int] | type[float] = int) -> Callable[[str], Any]:
    def parse(text: str) -> int | float:
        with suppress(ValueError):
            if least <= (number := kind(text)) <= most:
                return number
        what = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what} from {least} to {most}")

    return parse


_count, _rate = _number(1, 2**31 - 1), _number(1e-30, 1e30, float)
"""Parse a number of steps, epochs or images, up to TensorFlow's limit, and a learning rate."""


def _rates(text: str) -> dict[int, float]:
    """Learning rates by the size of the global batch; 0 means any other size."""
    pairs = (pair.partition(":") for pair in text.split(","))
    return {_count(at): _rate(x) for at, _, x in pairs} if ":" in text else {0: _rate(text)}


def _devices(text: str) -> Sequence[str | int]:
    """The names of devices, as CPU:0; or the numbers of the first devices of the best kind."""
    names = [name.strip().upper() for name in text.split(",")]
    if len(set(names)) == len(names) and all(re.fullmatch(r"[A-Z]+:\d+", n) for n in names):
        return names
    if ":" not in text:
        return range(_count(text))
    problem = "is neither a number of devices nor a list of different ones, such as GPU:0,GPU:1"
    raise argparse.ArgumentTypeError(f"{text!r} {problem}")


def _folder(text: str) -> Path:
    if problem := workarounds.problem_of_path(text):
        raise argparse.ArgumentTypeError(problem)
    return Path(text)


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
    add("--steps-per-epoch", type=lambda text: PASSES.get(text) or _count(text), default=70,
        metavar="N|all", help="all: one pass over the images; all-global: the same, and a smaller "
        "last batch's loss is divided by the size of a full one (default: 70)")
    add("--batch-size", default="64", metavar="N|global:N", help="images a step takes on each "
        "replica; or global:N, on all replicas together: the same steps with fewer workers "
        "(default: 64)", type=lambda text: (_count(text.removeprefix("global:")), "g" in text))
    add("--model", choices=("small_cnn", "cnn"), default="small_cnn", help="small_cnn: of the "
        "tutorial on multi-worker training (default); cnn: of that on custom training")
    add("--optimizer", choices=("rmsprop", "adam"), default="rmsprop", help="default: rmsprop")
    add("--learning-rate", type=_rates, default="0.001", metavar="X|N:X,...", help="a number, or "
        "a table by the size of the global batch: 64:0.001,128:0.0015 (default: 0.001)")
    add("--l2", type=_number(0, 1e30, float), default=0.0, metavar="X", help="adds X times the "
        "squared kernels to the loss, once per step (default: 0)")
    add("--seed", type=_number(0, 2**32 - 1), default=0, metavar="N", help="seed of the initial "
        "weights and of the order of the images, the same on all workers (default: 0)")
    add = parser.add_argument_group("techniques, all with the same result").add_argument
    add("--loop", choices=("for", "iterator", "epoch", "fit"), default="iterator", help="for: over "
        "the dataset, in Python; iterator: each step takes the next batch in a tf.function "
        "(default); epoch: up to 100 steps in one tf.function, and progress, SIGTERM and saving "
        "wait for its end; fit: Keras's Model.fit")
    add("--input", choices=("from_function", "distribute"), default="from_function", help="from_"
        "function: each worker makes its part of a batch (default); distribute: TensorFlow does")
    add = parser.add_argument_group("data").add_argument
    add("--dataset", choices=("auto", "mnist", "fashion_mnist", "synthetic"), default="auto",
        help="synthetic: drawn digits that come with the job; auto (default): mnist if available, "
        "else, but only to train, synthetic")
    add("--data-dir", type=Path, metavar="DIR", help="a folder with mnist.npz, fashion_mnist.npz "
        "or the four idx files (default: Keras's cache, or a download)")
    add = parser.add_argument_group("checkpoints and results").add_argument
    add("--checkpoint-dir", type=_folder, metavar="DIR", help="save here after each epoch and on "
        "SIGTERM, and resume from here; all workers share it (default: save nothing)")
    add("--checkpoint-every", metavar="N|Ne", default="1e", type=lambda text: (0, _count(text[:-1]))
        if text.endswith("e") else (_count(text), 1), help="N: save after every N steps of "
        "an epoch too; Ne: save only after every N epochs and the last one (default: 1e)")
    add("--evaluate", type=_folder, metavar="CHECKPOINT", help="do not train: print the test "
        "accuracy and loss of this checkpoint (run1/ckpt-3, or a folder for its newest)")
    add("--summary-dir", type=_folder, metavar="DIR", help="write loss, accuracy and images per "
        "second here, for TensorBoard")
    add = parser.add_argument_group("distribution, for the strategies in brackets").add_argument
    add("--devices", type=_devices, metavar="N|DEVICE,...", help="[one_device, mirrored, central_"
        "storage] the first N GPUs or, without GPUs, N logical CPU devices; or names, such as "
        "GPU:0,GPU:1 (default: all GPUs, or the CPU; one_device: CPU:0)")
    add("--reduction", choices=dict.fromkeys(sum(_REDUCTIONS.values(), ())), help="how gradients "
        "are summed [mirrored] over devices: nccl, hierarchical_copy or one_device; [multi_worker_"
        "mirrored] over workers: auto, ring or nccl. nccl needs GPUs")
    # fmt: on
    return parser


def parse(argv: Sequence[str], environ: Mapping[str, str], task: Task) -> Options:
    """Parses the command line. Exits with 2 and a message of one line if it is wrong."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.evaluate and not options.strategy and task.trainers == 1:
        # An evaluation ignores the launcher's strategy and its options.
        options.strategy, options.devices, options.reduction = "default", None, None
    of_cluster = "parameter_server" if task.count("ps") else "multi_worker_mirrored"
    asked = options.strategy or environ.get("DISTRUN_STRATEGY") or (task.cluster and of_cluster)
    options.strategy, options.strategy_is_chosen = str(asked or "default"), bool(asked)
    if options.strategy not in STRATEGIES:
        parser.error(f"DISTRUN_STRATEGY={options.strategy!r} is none of {', '.join(STRATEGIES)}")
    if problem := next((each for each, holds in _problems(options, task) if holds), None):
        parser.error(problem)
    if options.dataset == "auto" and (options.evaluate or options.data_dir):
        options.dataset = "mnist"  # an evaluation must not use other digits instead
    return options


def _problems(options: Options, task: Task) -> list[tuple[str, object]]:
    """How the options may contradict each other or the cluster, and whether they do."""
    strategy, loop, reduction = options.strategy, options.loop, options.reduction
    servers, roles = strategy == "parameter_server", ROLES.get(strategy, (task.role,))
    missing = [role for role in ("chief", "worker", "ps") if not task.count(role)]
    reductions = _REDUCTIONS.get(strategy, ("none",))
    # fmt: off
    return [
        (f"--devices is for one_device, mirrored and central_storage, not for {strategy}",
         options.devices and strategy not in {"one_device", "mirrored", "central_storage"}),
        (f"--reduction {reduction} is not for {strategy}, which has {' or '.join(reductions)}",
         reduction and reduction not in reductions),
        ("--devices names several devices, and one_device uses one",
         strategy == "one_device" and len(options.devices or ()) > 1),
        (f"--loop {loop} is not for parameter_server: its chief gives the workers single steps",
         servers and loop in {"for", "epoch"}),
        ("--loop fit on parameter_server uses DatasetCreator: it takes no --input distribute",
         servers and loop == "fit" and options.input == "distribute"),
        ("--dataset synthetic comes with the job: it takes no --data-dir",
         options.dataset == "synthetic" and options.data_dir),
        ("--checkpoint-every needs a --checkpoint-dir",
         options.checkpoint_every != (0, 1) and not options.checkpoint_dir),
        ("--evaluate trains and writes nothing: it takes no --checkpoint-dir and no --summary-dir",
         options.evaluate and (options.checkpoint_dir or options.summary_dir)),
        (f"--evaluate needs no strategy, and one process: not {strategy}",
         options.evaluate and strategy != "default"),
        (f"{task.name} has no part in {strategy}: its roles are {', '.join(roles)}",
         task.role not in roles),
        (f"parameter_server needs a chief, workers and ps: there is no {' and no '.join(missing)}",
         servers and missing),
        (f"{task.name} evaluates checkpoints: give all tasks the same --checkpoint-dir",
         strategy in ROLES and task.role == "evaluator" and not options.checkpoint_dir),
    ]
    # fmt: on
