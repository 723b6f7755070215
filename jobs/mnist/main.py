"""Trains a small CNN on MNIST, alone or as one task of a cluster: `python main.py --help`.

The headings are those of TensorFlow's tutorials. The training step and its loss are in
mnist_job/training.py, the loops in loop.py, saving and restoring in checkpoints.py, and what
TensorFlow needs done in another way, with the reasons, in workarounds.py.
"""

import os
import sys
from collections.abc import Sequence

from mnist_job import JobError, workarounds
from mnist_job.cluster import Task, read_task, try_to_write
from mnist_job.options import ROLES, Options, parse
from mnist_job.preemption import EXIT_CODE, Preempted, SigtermWatch


def main(argv: Sequence[str]) -> int:
    """Runs the job; returns its exit code."""
    try:
        # Cluster and task: TF_CONFIG
        task = read_task(os.environ)
        options = parse(argv, os.environ, task)
        if options.strategy not in ROLES:
            task = Task()  # the strategy runs in one process and ignores the cluster
        try_to_write(options, task)
        return run(options, task, SigtermWatch())
    except JobError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.code


def run(options: Options, task: Task, watch: SigtermWatch) -> int:
    """Runs this task. Slow modules are imported when they are needed, after what can be wrong."""
    workarounds.select_keras_2()
    is_server = options.strategy == "parameter_server" and task.role in {"worker", "ps"}
    with workarounds.fast_imports():
        # Read the data set
        from mnist_job import data

        digits = None if is_server else data.load(options.dataset, options.data_dir)
        import tensorflow as tf
        import tf_keras

        from mnist_job import evaluation, loop, parameter_server, strategies
    tf.get_logger().setLevel("ERROR")
    try:
        if digits is None:  # a server does what the chief asks
            parameter_server.serve(task, options.checkpoint_dir, watch)
            return 0
        options.dataset = digits.name
        tf_keras.utils.set_random_seed(options.seed)
        if options.evaluate or task.role == "evaluator":
            # Restore the latest checkpoint and test, without a strategy
            watch.end()
            evaluation.evaluate(digits, options)
            return 0
        # Create a strategy to distribute the variables and the graph
        strategy = strategies.create(options, task)
        # Create the model, and define loss, metrics and training step: training.py
        kinds = {"parameter_server": parameter_server.ParameterServerLoop}
        training = kinds.get(options.strategy, loop.Loop)(strategy, digits, options, task)
        # Restore, train in a loop, test and save
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


if __name__ == "__main__":
    workarounds.leave(main(sys.argv[1:]))
