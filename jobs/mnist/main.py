"""Trains a small CNN on MNIST, alone or as one task of a cluster: `python main.py --help`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import arguments
from cluster import ClusterError, read_task
from digits import DataError
from mnist import load_digits
from scratch import sweep
from startup import StartUpGuard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster import Task
    from digits import Digits

EXIT_USAGE = 2
EXIT_DATA = 65


def _say(line: str) -> None:
    print(line, flush=True)


def _fail(code: int, problem: object) -> int:
    print(f"error: {problem}", file=sys.stderr, flush=True)
    return code


def main(argv: Sequence[str]) -> int:
    """Runs the job; returns its exit code."""
    try:
        task = read_task(os.environ)
    except ClusterError as error:
        return _fail(EXIT_USAGE, error)
    chosen = arguments.parse(argv, os.environ, task)
    try:
        digits = load_digits(chosen.data, chosen.data_dir, _say)
    except DataError as error:
        return _fail(EXIT_DATA, error)
    # Before TensorFlow is imported: tf.keras is tf_keras (Keras 3 fails with several of the
    # strategies), and TensorFlow's informative messages stay out of the task's log.
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if chosen.checkpoint_dir:
        sweep(chosen.checkpoint_dir)
    return _train(chosen, digits, task, StartUpGuard())


def _train(chosen: arguments.Arguments, digits: Digits, task: Task, guard: StartUpGuard) -> int:
    # Only here: importing TensorFlow takes seconds, which --help and wrong usage must not cost.
    import tf_keras  # noqa: PLC0415

    from preemption import EXIT_CODE, Preempted  # noqa: PLC0415
    from strategies import FACTORIES  # noqa: PLC0415
    from training import Training  # noqa: PLC0415

    tf_keras.utils.set_random_seed(chosen.seed)
    strategy = FACTORIES[chosen.strategy](chosen)
    training = Training(strategy, digits, chosen, task, _say)
    guard.end()
    _say(training.headline)
    try:
        training.run()
    except Preempted:
        _say("preempted")
        return EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
