"""Trains a small CNN on MNIST, alone or as one task of a cluster: `python main.py --help`.

Slow modules are imported only when they are needed: --help and wrong usage answer at once, and a
wrong folder is reported before the seconds of TensorFlow's import.
"""

import gc
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from mnist_job import JobError
from mnist_job.cluster import Task, prepare_directories, read_task
from mnist_job.options import ROLES, Options, parse
from mnist_job.preemption import EXIT_CODE, Preempted, SigtermWatch


def main(argv: Sequence[str]) -> int:
    """Runs the job; returns its exit code."""
    try:
        task = read_task(os.environ)
        options = parse(argv, os.environ, task)
        if options.strategy not in ROLES:
            task = Task()  # the strategy runs in one process and ignores the cluster
        return _start(options, task, SigtermWatch())
    except JobError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.code


def _start(options: Options, task: Task, watch: SigtermWatch) -> int:
    # tf.summary needs a package that TensorFlow no longer installs.
    if options.summary_dir and importlib.util.find_spec("tensorboard") is None:
        options.summary_dir = None
        needed = "TensorFlow needs the package tensorboard to write summaries"
        if task.is_chief:
            print(f"--summary-dir: {needed} (pip install tensorboard): training without them")
    prepare_directories(options, task)
    # These must be set before TensorFlow is imported. tf.keras is tf_keras, because Keras 3 fails
    # with several strategies. TensorFlow's informative messages stay out of the task's log.
    if "tensorflow" in sys.modules and "tf_keras" not in sys.modules:
        message = "TensorFlow was imported with Keras 3 (program.preload): set program.keras to 2"
        raise JobError(message)
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # TensorFlow's import makes many objects and hardly any garbage. Searching them again and again
    # took a fifth of the import's time. Afterwards they are frozen: no later search looks at them.
    gc.disable()
    if options.strategy == "parameter_server" and task.role in {"worker", "ps"}:
        from mnist_job.parameter_server import serve

        gc.freeze()
        serve(task, watch)
    return _run(options, task, watch)


def _run(options: Options, task: Task, watch: SigtermWatch) -> int:
    from mnist_job.data import load

    data = load(options.dataset, options.data_dir)  # before TensorFlow, as the folder can be wrong
    import tensorflow as tf
    import tf_keras

    from mnist_job import custom_loop, evaluation, parameter_server, strategies

    gc.freeze()
    gc.enable()
    options.dataset = data.name
    # TensorFlow keeps the code that it generates in temporary files, which _exit removes.
    sys.dont_write_bytecode = True
    tf.get_logger().setLevel("ERROR")
    tf_keras.utils.set_random_seed(options.seed)
    if options.evaluate or task.role == "evaluator":
        watch.end()
        (evaluation.evaluate if options.evaluate else evaluation.follow)(data, options)
        return 0
    if not options.strategy_is_chosen:
        options.strategy = strategies.of_this_machine()
    loops = {"parameter_server": parameter_server.ParameterServerLoop}
    loop = loops.get(options.strategy, custom_loop.CustomLoop)
    try:
        training = loop(strategies.create(options, task), data, options, task)
        training.run(watch)
    except Preempted:
        kept = f"saved in {folder}" if (folder := options.checkpoint_dir) else "nothing is saved"
        print(f"preempted at {training.counters}: {kept}", flush=True)
        return EXIT_CODE
    except tf.errors.OpError as error:
        if task.trainers == 1:
            raise
        reason = error.message.strip().partition("\n")[0]
        lost = f"{task.name} lost its cluster ({type(error).__name__}): {reason}"
        raise JobError(lost, code=1) from error
    return 0


def _exit(code: int) -> None:
    """Exits at once.

    A normal exit deletes TensorFlow's distributed iterators, which took up to 40 s with two workers
    on two cores. It would also remove the files of the code that TensorFlow generates.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file"):
            with suppress(OSError):
                os.remove(str(module.__file__))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _exit(main(sys.argv[1:]))
