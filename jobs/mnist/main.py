"""Trains a small CNN on MNIST, alone or as one task of a cluster: `python main.py --help`.

The headings are those of TensorFlow's tutorials. The model, its loss and the training step are in
mnist_job/training.py, the loops in loop.py, saving and restoring in checkpoints.py.
"""

import os
import sys
from io import TextIOWrapper

from mnist_job import JobError, first_line, launcher, workarounds
from mnist_job.options import Options, parse, try_to_write


def main(argv: list[str]) -> int:
    """Runs the job; returns its exit code."""
    if isinstance(sys.stdout, TextIOWrapper):  # each line is seen at once
        sys.stdout.reconfigure(line_buffering=True)
    try:
        options = parse(argv, os.environ)
        if options.task.is_chief:
            try_to_write(options)
        return run(options, launcher.SigtermWatch())
    except JobError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code


def run(options: Options, watch: launcher.SigtermWatch) -> int:
    """Runs this task. Slow modules are imported when they are needed, after what can be wrong."""
    workarounds.select_keras_2()
    task, servers = options.task, options.strategy == "parameter_server"
    with workarounds.fast_imports():
        # Read the data set
        from mnist_job import data

        is_server = servers and task.role in {"worker", "ps"}  # does what the chief asks
        digits = None if is_server else data.load(options.dataset, options.data_dir)
        import tensorflow as tf

        from mnist_job import checkpoints, loop, parameter_server, strategies
    tf.get_logger().setLevel("ERROR")
    try:
        if digits is None:
            parameter_server.serve(options, watch)
            return 0
        options.dataset = digits.name
        tf.keras.utils.set_random_seed(options.seed)
        if options.evaluate or task.role == "evaluator":
            # Restore the latest checkpoint and test, without a strategy
            checkpoints.evaluate(digits, options)
            return 0
        # Create a strategy to distribute the variables and the graph
        strategy = strategies.create(options)
        # Create the model, and define loss, metrics and training step: training.py
        kind = parameter_server.ParameterServerLoop if servers else loop.Loop
        training = kind(strategy, digits, options)
        # Restore, train in a loop, test and save
        training.run(watch)
    except tf.errors.OpError as error:
        if task.trainers == 1:
            raise
        lost = f"{task.name} lost its cluster ({type(error).__name__}): {first_line(error)}"
        raise JobError(lost, code=1) from error
    if training.counters.epoch < options.epochs:  # SIGTERM has ended it
        kept = f"saved in {folder}" if (folder := options.checkpoint_dir) else "nothing is saved"
        print(f"preempted at {training.counters}: {kept}")
        return launcher.PREEMPTED
    return 0


if __name__ == "__main__":
    workarounds.leave(main(sys.argv[1:]))
