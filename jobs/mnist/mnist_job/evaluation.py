"""Evaluates checkpoints on the test images, without a strategy: --evaluate and the evaluator."""

import os
import time
from pathlib import Path

import tensorflow as tf

from mnist_job import JobError
from mnist_job.checkpoints import EVALUATION, listed, restore, saved
from mnist_job.cluster import Task
from mnist_job.custom_loop import CustomLoop, say
from mnist_job.data import DataSet
from mnist_job.options import Options
from mnist_job.progress import Progress


class Evaluation(CustomLoop):
    """Evaluates checkpoints of any strategy, by the test of the custom loop."""

    def __init__(self, data: DataSet, options: Options) -> None:
        # The table of learning rates is for the global batches of the training.
        unused = {"checkpoint_dir": None, "summary_dir": None, "learning_rate": {0: 1.0}}
        evaluated = Options(**{**vars(options), **unused, "strategy": "default"})
        super().__init__(tf.distribute.get_strategy(), data, evaluated, Task())
        self._checkpoint = tf.train.Checkpoint(model=self.model, counters=self.counters)

    def of(self, path: str) -> tuple[str, float]:
        """Restores a checkpoint and evaluates it; returns (its line, its loss)."""
        restore(self._checkpoint, path, self.options, EVALUATION)
        loss, accuracy = self.test()
        at = str(self.counters) if self.counters.step else f"epoch {self.counters.epoch}"
        tested = f"test_accuracy {accuracy:.3f}  test_loss {loss:.3f}"
        return f"{Path(path).name} ({at}): {tested}", loss


def newest(paths: list[str]) -> str | None:
    """The first of these checkpoints whose files exist."""
    return next((path for path in paths if Path(f"{path}.index").exists()), None)


def evaluate(data: DataSet, options: Options) -> None:
    """Evaluates the checkpoint of --evaluate: the newest one, if it is a folder."""
    asked = options.evaluate
    path = newest(saved(asked) if asked.is_dir() else [str(asked).removesuffix(".index")])
    if path is None:
        where = f"in {asked}" if asked.is_dir() else f"at {asked}"
        advice = "name a folder that has one, or a checkpoint such as run1/ckpt-3"
        raise JobError(f"there is no checkpoint {where}: {advice}")
    line, _ = Evaluation(data, options).of(path)
    say(f"{line}  data: {data.source}, {len(data.test_images):,} images")


def follow(data: DataSet, options: Options) -> None:
    """The evaluator task: evaluates each checkpoint that others save, up to the last epoch's."""
    folder = options.checkpoint_dir
    evaluation, progress = Evaluation(data, options), Progress(os.environ, EPOCHS=options.epochs)
    tested = f"data: {data.source}, {len(data.test_images):,} images"
    say(f"evaluator: follows the checkpoints in {folder} to epoch {options.epochs}; {tested}")
    seen, epoch = None, 0
    while epoch < options.epochs:
        path = newest(listed(folder))  # complete ones only
        if path is None or path == seen:
            time.sleep(0.2)
            continue
        began = time.monotonic()
        try:
            line, loss = evaluation.of(path)
        except JobError as error:
            if path != newest(listed(folder)):
                continue  # the chief has removed it, because there are newer ones
            line = str(error)
        else:
            epoch = evaluation.counters.epoch
            speed = len(data.test_images) / max(time.monotonic() - began, 1e-9)
            progress.send(evaluation.counters.total_steps, max(epoch, 1), loss, speed)
        say(line)
        seen = path
