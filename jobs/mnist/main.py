"""Trains a small CNN on MNIST, alone or as one task of a cluster: `python main.py --help`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import arguments
import directories
import temp_dirs
from cluster import ClusterError, Task, read_task
from directories import DirectoryError
from startup import StartUpGuard, import_slow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from digits import Digits
    from training import Training

EXIT_CLUSTER = 1
EXIT_USAGE = 2
EXIT_DATA = 65
EXIT_NO_TPU = 69


def _say(line: str) -> None:
    print(line, flush=True)


def _fail(code: int, problem: object) -> int:
    print(f"error: {problem}", file=sys.stderr, flush=True)
    return code


def main(argv: Sequence[str]) -> int:
    """Runs the job; returns its exit code.

    Slow modules are imported only when they are needed: --help and wrong usage answer at once, and
    missing data is reported before the seconds of TensorFlow's import.
    """
    try:
        task = read_task(os.environ)
    except ClusterError as error:
        return _fail(EXIT_USAGE, error)
    chosen = arguments.parse(argv, os.environ, task)
    if chosen.strategy not in arguments.ROLES:
        task = Task()  # the strategy runs in one process and ignores the cluster
    elif problem := _role_problem(chosen, task):
        return _fail(EXIT_USAGE, problem)
    guard = StartUpGuard()

    from digits import DataError
    from export import ExportError
    from export import check as check_export
    from mnist import load_digits

    try:
        directories.check(chosen, task)
        if chosen.export_dir and task.is_chief:
            check_export(chosen.export_dir)
        digits = load_digits(chosen.data, chosen.dataset, chosen.data_dir, _say)
    except (DirectoryError, ExportError) as error:
        return _fail(EXIT_USAGE, error)
    except DataError as error:
        return _fail(EXIT_DATA, error)
    if chosen.dataset == "mnist":
        chosen = replace(chosen, data="synthetic" if digits.are_synthetic else "mnist")
    if chosen.checkpoint_dir:
        temp_dirs.remove_leftovers(chosen.checkpoint_dir)
    # These must be set before TensorFlow is imported. tf.keras is tf_keras, because Keras 3 fails
    # with several strategies. TensorFlow's informative messages stay out of the task's log.
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return _run_role(chosen, digits, task, guard)


def _role_problem(chosen: arguments.Arguments, task: Task) -> str | None:
    """Why the task has no role in the strategy's cluster, or None if it has one."""
    roles = arguments.ROLES[chosen.strategy]
    if task.role not in roles:
        return f"{task.name} has no part in {chosen.strategy}: its roles are {', '.join(roles)}"
    if chosen.strategy == "parameter_server":
        missing = [role for role in ("chief", "worker", "ps") if not task.count(role)]
        if missing:
            return (
                "parameter_server needs a cluster in TF_CONFIG with a chief, workers and ps: "
                f"there is no {' and no '.join(missing)}"
            )
    if task.role == "evaluator" and chosen.checkpoint_dir is None:
        return f"{task.name} evaluates checkpoints: give all tasks the same --checkpoint-dir"
    return None


def _run_role(chosen: arguments.Arguments, digits: Digits, task: Task, guard: StartUpGuard) -> int:
    if chosen.strategy == "parameter_server" and task.role in {"worker", "ps"}:
        import_slow("tensorflow")
        return _serve(digits, task, guard)
    import_slow("tensorflow", "tf_keras")
    if chosen.evaluate:
        return _evaluate(chosen, chosen.evaluate, digits, guard)
    if task.role == "evaluator" and chosen.checkpoint_dir:
        return _follow(chosen, chosen.checkpoint_dir, digits, guard)
    return _train(chosen, digits, task, guard)


def _serve(digits: Digits, task: Task, guard: StartUpGuard) -> int:
    from server import ServerError, serve

    try:
        serve(task, digits if task.role == "worker" else None, guard)
    except ServerError as error:
        return _fail(EXIT_CLUSTER, error)
    return 0


def _evaluate(
    chosen: arguments.Arguments, checkpoint: Path, digits: Digits, guard: StartUpGuard
) -> int:
    import tensorflow as tf

    from checkpoints import CheckpointError
    from evaluation import Evaluation, found

    tf.get_logger().setLevel("ERROR")
    guard.end()
    try:
        result = Evaluation(digits, chosen).of(found(checkpoint))
        _say(f"{result}  data: {digits.source}, {len(digits.test_images):,} images")
    except CheckpointError as error:
        return _fail(EXIT_DATA, error)
    return 0


def _follow(chosen: arguments.Arguments, folder: Path, digits: Digits, guard: StartUpGuard) -> int:
    import tensorflow as tf

    from evaluator import Evaluator

    tf.get_logger().setLevel("ERROR")
    evaluator = Evaluator(digits, folder, chosen, _say)
    guard.end()
    _say(evaluator.headline)
    evaluator.run()
    return 0


def _train(chosen: arguments.Arguments, digits: Digits, task: Task, guard: StartUpGuard) -> int:
    import tensorflow as tf
    import tf_keras

    from asynchronous import AsynchronousTraining, LostUpdateError
    from checkpoints import CheckpointError
    from consensus import DisagreementError
    from distribution import DistributionError
    from export import ExportError
    from fitting import AsynchronousFit, SynchronousFit
    from inputs import BatchSizeError
    from preemption import EXIT_CODE, Preempted
    from strategies import FACTORIES
    from synchronous import SynchronousTraining
    from tpus import NoTpuError

    tf.get_logger().setLevel("ERROR")
    tf_keras.utils.set_random_seed(chosen.seed)
    kind: type[Training]
    if chosen.strategy == "parameter_server":
        kind = AsynchronousFit if chosen.fit else AsynchronousTraining
    else:
        kind = SynchronousFit if chosen.fit else SynchronousTraining
    exit_codes = {
        BatchSizeError: EXIT_USAGE,
        DistributionError: EXIT_USAGE,
        CheckpointError: EXIT_DATA,
        DisagreementError: EXIT_DATA,
        ExportError: EXIT_DATA,
        DirectoryError: EXIT_DATA,
        NoTpuError: EXIT_NO_TPU,
        LostUpdateError: EXIT_CLUSTER,
    }
    try:
        strategy = FACTORIES[chosen.strategy](chosen.distribution, task)
        training = kind(strategy, digits, chosen, task, _say)
        guard.end()
        _say(training.headline)
        training.run()
    except Preempted:
        kept = f"saved in {chosen.checkpoint_dir}" if chosen.checkpoint_dir else "nothing is saved"
        _say(f"preempted at {training.position}: {kept}")
        return EXIT_CODE
    except tuple(exit_codes) as error:
        return _fail(exit_codes[type(error)], error)
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

    A normal exit deletes TensorFlow's distributed iterators, which took up to 40 s with two workers
    on two cores.
    """
    temp_dirs.remove_generated_code()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if "tensorflow" in sys.modules:
        _leave(status)
    sys.exit(status)
