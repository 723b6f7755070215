"""What this task is asked: TF_CONFIG, and the command line. Imports nothing slow."""

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mnist_job import JobError

_OF_CLUSTERS = ("multi_worker_mirrored", "parameter_server")  # the others run in one process
_STRATEGIES = ("auto", "default", "one_device", "mirrored", "central_storage", *_OF_CLUSTERS, "tpu")
_REDUCTIONS = {
    "mirrored": ("nccl", "hierarchical_copy", "one_device"),
    "multi_worker_mirrored": ("auto", "ring", "nccl"),
}
PASSES = {"all": -1, "all-global": -2}  # numbers of steps with a meaning of their own
_ABOUT = "Trains the CNNs of TensorFlow's tutorials, alone or as a task of TF_CONFIG's cluster."
_EPILOG = """exit codes: 0 trained; 1 the cluster broke (a peer died); 2 wrong usage; 42 preempted
(SIGTERM) and saved; 65 data, a checkpoint or a folder cannot be used; 69 no TPU."""
Options = argparse.Namespace  # the options, checked, and the `task`


@dataclass(frozen=True)
class Task:
    """One process. `cluster` has the addresses of each role's tasks; empty without a cluster."""

    role: str = "worker"
    index: int = 0
    cluster: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.role}:{self.index}"

    def number_of(self, role: str) -> int:
        return len(self.cluster.get(role, ()))

    @property
    def trainers(self) -> int:
        """The number of tasks that train: the chief and the workers; 1 without a cluster."""
        return self.number_of("chief") + self.number_of("worker") or 1

    @property
    def is_chief(self) -> bool:
        """Whether this task's checkpoints are kept: the chief, or worker 0 if there is no chief."""
        return self.name == ("chief:0" if self.number_of("chief") else "worker:0")


def read_task(environ: Mapping[str, str]) -> Task:
    """Reads TF_CONFIG; raises JobError if it does not describe a cluster and a task of it."""
    text = environ.get("TF_CONFIG", "").strip() or "{}"
    try:
        config = json.loads(text)
        task = Task(cluster=dict(config.get("cluster") or {}))
        if task.cluster:
            task = Task(config["task"]["type"], int(config["task"]["index"]), task.cluster)
            if task.role != "evaluator":  # which need not be in the cluster
                range(len(task.cluster[task.role])).index(task.index)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise JobError(f"TF_CONFIG is no cluster and task ({error!r}): {text}", code=2) from error
    return task


def _number(least: float, most: float, kind: type[int] | type[float] = int) -> Callable[[str], Any]:
    def parse(text: str) -> int | float:
        with suppress(ValueError):
            if least <= (number := kind(text)) <= most:
                return number
        what = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what} from {least} to {most}")

    return parse


_count, _rate = _number(1, 2**31 - 1), _number(1e-30, 1e30, float)  # up to TensorFlow's limit


def _rates(text: str) -> dict[int, float]:
    """Learning rates by the size of the global batch; 0 means any other size."""
    pairs = (pair.partition(":") for pair in text.split(","))
    return {_count(at): _rate(x) for at, _, x in pairs} if ":" in text else {0: _rate(text)}


def _folder(text: str) -> Path:
    """TensorFlow takes names for patterns: for `run[1]`, it finds and removes files of `run1`."""
    if found := re.search(r"[*?\\]|\[[^/]*\]|://", text):
        problem = f"TensorFlow takes {found[0]} in {text!r} for a pattern or an address"
        raise argparse.ArgumentTypeError(f"{problem}; name a folder without * ? \\ [ ] and ://")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    # Without argparse's usage, an error is one line: launchers show it in a task's log.
    parser = argparse.ArgumentParser(None, argparse.SUPPRESS, _ABOUT, _EPILOG, allow_abbrev=False)
    # fmt: off
    add = parser.add_argument_group("training").add_argument
    add("--strategy", choices=_STRATEGIES, help="default: $DISTRUN_STRATEGY, or that of "
        "TF_CONFIG; else auto: mirrored if there are several GPUs, or `default` (no distribution)")
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
        "(default); epoch: up to 100 steps in one tf.function; fit: Keras's Model.fit")
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
    add("--summary-dir", type=_folder, metavar="DIR", help="write summaries for TensorBoard here")
    add = parser.add_argument_group("distribution, for the strategies in brackets").add_argument
    add("--devices", type=str.upper, metavar="N|DEVICE,...", help="[one_device, mirrored, central_"
        "storage] the first N GPUs or, without GPUs, N logical CPU devices; or names, such as "
        "GPU:0,GPU:1 (default: all GPUs, or the CPU; one_device: CPU:0)")
    add("--reduction", choices=dict.fromkeys(sum(_REDUCTIONS.values(), ())), help="how gradients "
        "are summed [mirrored] over devices: nccl, hierarchical_copy or one_device; [multi_worker_"
        "mirrored] over workers: auto, ring or nccl. nccl needs GPUs")
    # fmt: on
    return parser


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Exits with 2 and a line if the command line is wrong."""
    parser, task = _parser(), read_task(environ)
    of_cluster = "parameter_server" if task.number_of("ps") else "multi_worker_mirrored"
    asked = environ.get("DISTRUN_STRATEGY") or (of_cluster if task.cluster else "auto")
    options = parser.parse_args(["--strategy", asked, *argv], Options(task=task))
    if options.evaluate and task.trainers == 1:  # needs no strategy
        options.strategy, options.devices, options.reduction = "default", None, None
    for problem, holds in _problems(options, task):
        if holds:
            parser.error(problem)
    if options.strategy not in _OF_CLUSTERS:
        options.task = Task()  # the strategy runs in one process and ignores the cluster
    if options.dataset == "auto" and (options.evaluate or options.data_dir):
        options.dataset = "mnist"  # an evaluation must not use other digits instead
    return options


def _problems(options: Options, task: Task) -> list[tuple[str, object]]:
    """How the options may contradict each other or the cluster, and whether they do."""
    strategy, reduction = options.strategy, options.reduction
    reductions = _REDUCTIONS.get(strategy, ("none",))
    # fmt: off
    return [
        (f"--devices is for one_device, mirrored and central_storage, not for {strategy}",
         options.devices and strategy not in {"one_device", "mirrored", "central_storage"}),
        (f"--reduction {reduction} is not for {strategy}, which has {' or '.join(reductions)}",
         reduction and reduction not in reductions),
        ("parameter_server takes --loop iterator, or --loop fit without --input distribute",
         strategy == "parameter_server" and (options.loop in {"for", "epoch"}
         or (options.loop, options.input) == ("fit", "distribute"))),
        ("parameter_server needs a chief, workers and ps", strategy == "parameter_server"
         and not all(map(task.number_of, ("chief", "worker", "ps")))),
        ("--dataset synthetic comes with the job: it takes no --data-dir",
         options.dataset == "synthetic" and options.data_dir),
        ("--checkpoint-every needs a --checkpoint-dir",
         options.checkpoint_every != (0, 1) and not options.checkpoint_dir),
        ("--evaluate only reads, in one process: with one worker, and no folder to write to",
         options.evaluate and (task.trainers > 1 or options.checkpoint_dir or options.summary_dir)),
        (f"{task.name} evaluates checkpoints: give all tasks the same --checkpoint-dir",
         strategy in _OF_CLUSTERS and task.role == "evaluator" and not options.checkpoint_dir),
    ]
    # fmt: on


def try_to_write(options: Options) -> None:
    """Creates the folders of the results; raises JobError if nothing can be written to one."""
    for folder in filter(None, (options.checkpoint_dir, options.summary_dir)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise JobError(f"nothing can be written to {folder} ({error.strerror})", 2) from error
