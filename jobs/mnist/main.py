"""Trains a small CNN on MNIST, alone or as one task of a cluster: `python main.py --help`.

Slow modules are imported only when they are needed: --help and wrong usage answer at once, and a
wrong folder is reported before the seconds of TensorFlow's import.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mnist_job import folders
from mnist_job.cluster import Task, read_task
from mnist_job.errors import JobError, UsageError
from mnist_job.options import ROLES, Options, parse
from mnist_job.preemption import EXIT_CODE, Preempted, SigtermWatch


def main(argv: Sequence[str]) -> int:
    """Runs the job; returns its exit code."""
    try:
        task = read_task(os.environ)
        options = parse(argv, os.environ, task)
        if options.strategy not in ROLES:
            task = Task()  # the strategy runs in one process and ignores the cluster
        _check_role(options, task)
        return _start(options, task, SigtermWatch())
    except JobError as error:
        return _fail(error.code, error)


def _fail(code: int, problem: object) -> int:
    print(f"error: {problem}", file=sys.stderr, flush=True)
    return code


def _check_role(options: Options, task: Task) -> None:
    roles = ROLES.get(options.strategy, (task.role,))
    missing = [role for role in ("chief", "worker", "ps") if not task.count(role)]
    if task.role not in roles:
        raise UsageError(
            f"{task.name} has no part in {options.strategy}: its roles are {', '.join(roles)}"
        )
    if options.strategy == "parameter_server" and missing:
        raise UsageError(
            "parameter_server needs a cluster in TF_CONFIG with a chief, workers and ps: "
            f"there is no {' and no '.join(missing)}"
        )
    if task.role == "evaluator" and options.checkpoint_dir is None:
        raise UsageError(
            f"{task.name} evaluates checkpoints: give all tasks the same --checkpoint-dir"
        )


def _start(options: Options, task: Task, watch: SigtermWatch) -> int:
    # tf.summary needs a package that TensorFlow no longer installs.
    if options.summary_dir and importlib.util.find_spec("tensorboard") is None:
        options.summary_dir = None
        if task.is_chief:
            print(
                "--summary-dir: TensorFlow needs the package tensorboard to write summaries "
                "(pip install tensorboard): training without them",
                flush=True,
            )
    folders.prepare(options, task)
    # These must be set before TensorFlow is imported. tf.keras is tf_keras, because Keras 3 fails
    # with several strategies. TensorFlow's informative messages stay out of the task's log.
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.strategy == "parameter_server" and task.role in {"worker", "ps"}:
        _import_slow("tensorflow")
        from mnist_job.parameter_server import serve

        serve(task, watch)

    from mnist_job.data import load

    data = load(options.dataset, options.data_dir) if options.data_dir else None
    _import_slow("tensorflow", "tf_keras")
    data = data or load(options.dataset, None)
    options.dataset = data.name
    return _run(options, data, task, watch)


def _import_slow(*modules: str) -> None:
    """Imports modules while Python's garbage collection is paused.

    TensorFlow's import makes many objects and hardly any garbage. Searching them again and again
    took a fifth of the import's time. Afterwards they are frozen: no later search looks at them.
    """
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()


def _run(options: Options, data: Any, task: Task, watch: SigtermWatch) -> int:
    import tensorflow as tf
    import tf_keras

    from mnist_job import custom_loop, evaluation, parameter_server, strategies

    tf.get_logger().setLevel("ERROR")
    if options.evaluate or task.role == "evaluator":
        watch.end()
        (evaluation.evaluate if options.evaluate else evaluation.follow)(data, options)
        return 0
    if not options.strategy_is_chosen:
        options.strategy = strategies.of_this_machine()
    tf_keras.utils.set_random_seed(options.seed)
    loops = {"parameter_server": parameter_server.ParameterServerLoop}
    loop = loops.get(options.strategy, custom_loop.CustomLoop)
    try:
        training = loop(strategies.create(options, task), data, options, task, watch)
        training.run()
    except Preempted:
        folder = options.checkpoint_dir
        kept = f"saved in {folder}" if folder else "nothing is saved"
        print(f"preempted at {training.counters}: {kept}", flush=True)
        return EXIT_CODE
    except tf.errors.OpError as error:
        if task.trainers == 1:
            raise
        reason = error.message.strip().partition("\n")[0]
        return _fail(1, f"{task.name} lost its cluster ({type(error).__name__}): {reason}")
    return 0


def _exit(code: int) -> None:
    """Exits at once.

    A normal exit deletes TensorFlow's distributed iterators, which took up to 40 s with two workers
    on two cores. It would also remove the files of the code that TensorFlow generates.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file") and module.__file__:
            compiled = module.__cached__ or module.__file__
            for remove, path in (
                (os.remove, module.__file__),
                (os.remove, compiled),
                (os.rmdir, os.path.dirname(compiled)),
            ):
                with suppress(OSError):  # not compiled, or the folder has other files too
                    remove(path)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if "tensorflow" in sys.modules:
        _exit(status)
    sys.exit(status)
