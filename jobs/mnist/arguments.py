"""Parses and checks the command line. Imports nothing slow."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from distribution import Distribution, DistributionError
from distribution import chosen as distribution_of
from options import STRATEGIES, Interval, Parser

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cluster import Task

ROLES = {
    "multi_worker_mirrored": ("chief", "worker", "evaluator"),
    "parameter_server": ("chief", "worker", "ps", "evaluator"),
}
"""The roles in TF_CONFIG that each strategy can use. The other strategies run in one process."""

STEPS_PER_CALL = 100
"""Few enough that a call ends within the 10 s that launchers and clusters usually give after
SIGTERM. An epoch usually has fewer steps."""


_GLOB = re.compile(r"[*?\\]|\[[^/]*\]")
"""Characters that TensorFlow reads as a pattern when it lists the files of a checkpoint: for
`run[1]/ckpt-3`, it finds and removes files in `run1`. Braces and a single bracket do no harm."""


class UsageError(Exception):
    """The options contradict each other: the message says which."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The options, checked."""

    strategy: str
    distribution: Distribution
    epochs: int
    steps_per_epoch: int
    """WHOLE_PASS: one pass over the training images."""
    batch_size: int
    """Images per step on each worker."""
    model: str
    optimizer: str
    learning_rate: float
    l2: float
    """Factor of the squared kernels in the loss."""
    seed: int
    loop: str
    steps_per_call: int
    """For the loop `epoch`."""
    input: str
    fit: bool
    dataset: str
    data: str
    """`auto` until the data is loaded, then `mnist` or `synthetic`."""
    data_dir: Path | None
    checkpoint_dir: Path | None
    checkpoint_every: Interval
    max_to_keep: int
    evaluate: Path | None
    """The checkpoint, or its folder, to evaluate instead of training."""
    export_dir: Path | None
    summary_dir: Path | None


def parse(argv: Sequence[str], environ: Mapping[str, str], task: Task) -> Arguments:
    """Parses the command line. Exits with 2 and a message of one line if it is wrong."""
    parser = Parser()
    options = vars(parser.parse_args(argv))
    if options["strategy"] is None and options["evaluate"] and task.trainers == 1:
        # An evaluation ignores the launcher's strategy and its options.
        options.update(strategy="default", **asdict(Distribution()))
    if options["strategy"] is None:
        options["strategy"] = environ.get("DISTRUN_STRATEGY") or _fitting(task)
        if options["strategy"] not in STRATEGIES:
            parser.error(
                f"DISTRUN_STRATEGY={options['strategy']!r} is none of {', '.join(STRATEGIES)}"
            )
    if options["evaluate"] and (options["data"], options["dataset"]) == ("auto", "mnist"):
        options["data"] = "mnist"  # an evaluation must not use other digits instead
    try:
        _check(options)
        distribution = distribution_of(options, options["strategy"])
    except (UsageError, DistributionError) as error:
        parser.error(str(error))
    for name, value in _DEFAULTS.items():
        if options[name] is None:
            options[name] = value
    return Arguments(distribution=distribution, **options)


_DEFAULTS = {
    "loop": "iterator",
    "steps_per_call": STEPS_PER_CALL,
    "checkpoint_every": Interval(),
    "max_to_keep": 3,
}
"""Defaults of options for which it matters whether they were given."""


def _fitting(task: Task) -> str:
    """The strategy for the cluster in TF_CONFIG, if there is one."""
    if not task.cluster:
        return "default"
    return "parameter_server" if task.count("ps") else "multi_worker_mirrored"


def _check(options: dict[str, Any]) -> None:
    _check_data(options)
    _check_techniques(options)
    _check_saving(options)
    _check_paths(options)
    if options["evaluate"]:
        _check_evaluation(options)


def _check_data(options: dict[str, Any]) -> None:
    if options["data"] == "synthetic" and options["data_dir"] is not None:
        raise UsageError("--data synthetic draws its own digits: it takes no --data-dir")
    if options["dataset"] == "fashion_mnist" and options["data"] != "auto":
        raise UsageError(
            f"--data {options['data']} is no Fashion-MNIST: leave one of the two options out"
        )


def _check_techniques(options: dict[str, Any]) -> None:
    loop, strategy = options["loop"], options["strategy"]
    if options["fit"] and loop:
        raise UsageError("--fit has a loop of its own: it takes no --loop")
    if options["fit"] and options["reduce_as"] == "float16":
        raise UsageError("--fit has the strategy sum the gradients: it takes no --reduce-as")
    if options["steps_per_call"] and loop != "epoch":
        raise UsageError("--steps-per-call is for --loop epoch")
    if strategy == "parameter_server":
        if loop in {"for", "epoch"}:
            raise UsageError(
                f"--loop {loop} is not for parameter_server: its chief gives the workers single "
                "steps, for which each has an iterator"
            )
        if options["fit"] and options["input"] == "distribute":
            raise UsageError(
                "--fit on parameter_server makes its pipelines on the workers "
                "(DatasetCreator): it takes no --input distribute"
            )


def _check_saving(options: dict[str, Any]) -> None:
    if options["checkpoint_dir"] is None:
        for name in ("checkpoint_every", "max_to_keep"):
            if options[name] is not None:
                raise UsageError(f"--{name.replace('_', '-')} needs a --checkpoint-dir")
    interval = options["checkpoint_every"]
    if interval and interval.steps and options["fit"] and options["strategy"] == "parameter_server":
        raise UsageError(
            "--fit on parameter_server sees no steps: it saves every N epochs (--checkpoint-every "
            "Ne), not after steps"
        )


def _check_paths(options: dict[str, Any]) -> None:
    for name in ("checkpoint_dir", "evaluate", "export_dir"):
        path = options[name]
        if path and name == "export_dir":
            # A model is loaded by its absolute path, a checkpoint by the given path.
            path = path.absolute()
        if found := _GLOB.search(str(path or "")):
            raise UsageError(
                f"--{name.replace('_', '-')} {path}: TensorFlow would take {found[0]} for a "
                "pattern of other names; give the folder a name without * ? \\ [ ]"
            )


def _check_evaluation(options: dict[str, Any]) -> None:
    for name in ("fit", "loop", "checkpoint_dir", "export_dir", "summary_dir"):
        if options[name]:
            raise UsageError(
                f"--evaluate trains nothing and writes nothing: it takes no "
                f"--{name.replace('_', '-')}"
            )
    if options["strategy"] != "default":
        raise UsageError(
            f"--evaluate needs no strategy, and one process: not {options['strategy']}"
        )
