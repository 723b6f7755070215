"""Trains a small CNN on MNIST, alone or as one task of a cluster: `python main.py --help`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import arguments
import scratch
from cluster import ClusterError, Task, read_task
from startup import StartUpGuard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from digits import Digits

EXIT_CLUSTER = 1
EXIT_USAGE = 2
EXIT_DATA = 65


def _say(line: str) -> None:
    print(line, flush=True)


def _fail(code: int, problem: object) -> int:
    print(f"error: {problem}", file=sys.stderr, flush=True)
    return code


def main(argv: Sequence[str]) -> int:
    """Runs the job; returns its exit code.

    What is slow to import is imported when it is needed: --help and wrong usage answer at once,
    and data that cannot be had is told before TensorFlow's seconds.
    """
    try:
        task = read_task(os.environ)
    except ClusterError as error:
        return _fail(EXIT_USAGE, error)
    chosen = arguments.parse(argv, os.environ, task)
    if chosen.strategy not in arguments.CLUSTER_STRATEGIES:
        task = Task()  # the strategy runs in one process, whatever cluster there is
    elif task.role not in {"chief", "worker"}:
        return _fail(
            EXIT_USAGE, f"{task.name} has no part in {chosen.strategy}: chief and workers train"
        )
    guard = StartUpGuard()

    from digits import DataError
    from mnist import load_digits

    try:
        digits = load_digits(chosen.data, chosen.data_dir, _say)
    except DataError as error:
        return _fail(EXIT_DATA, error)
    if chosen.checkpoint_dir:
        scratch.sweep(chosen.checkpoint_dir)
    # Before TensorFlow is imported: tf.keras is tf_keras (Keras 3 fails with several of the
    # strategies), and TensorFlow's informative messages stay out of the task's log.
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return _train(chosen, digits, task, guard)


def _train(chosen: arguments.Arguments, digits: Digits, task: Task, guard: StartUpGuard) -> int:
    import tensorflow as tf
    import tf_keras

    from checkpoints import CheckpointError
    from inputs import BatchSizeError
    from preemption import EXIT_CODE, Preempted
    from strategies import FACTORIES
    from training import Training
    from workers import DisagreementError

    tf.get_logger().setLevel("ERROR")
    tf_keras.utils.set_random_seed(chosen.seed)
    try:
        training = Training(FACTORIES[chosen.strategy](chosen), digits, chosen, task, _say)
        guard.end()
        _say(training.headline)
        training.run()
    except Preempted:
        kept = f"saved in {chosen.checkpoint_dir}" if chosen.checkpoint_dir else "nothing is saved"
        _say(f"preempted at {training.position}: {kept}")
        return EXIT_CODE
    except BatchSizeError as error:
        return _fail(EXIT_USAGE, error)
    except (CheckpointError, DisagreementError) as error:
        return _fail(EXIT_DATA, error)
    except tf.errors.OpError as error:
        if task.trainers == 1:
            raise
        reason = error.message.strip().partition("\n")[0]
        return _fail(
            EXIT_CLUSTER, f"{task.name} lost its cluster ({type(error).__name__}): {reason}"
        )
    return 0


def _leave(code: int) -> None:
    """Exits at once.

    When the interpreter takes everything down it deletes TensorFlow's distributed iterators,
    which took up to 40 s with two workers on two cores: after the last line, for nothing.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if "tensorflow" in sys.modules:
        _leave(status)
    sys.exit(status)
