"""Restores checkpoints without a strategy and tests them: --evaluate, and the evaluator task."""

import time
from pathlib import Path

import tensorflow as tf

from mnist_job import JobError, progress
from mnist_job.checkpoints import EVALUATION, Counters, restore, saved
from mnist_job.data import DataSet
from mnist_job.loop import say
from mnist_job.options import Options
from mnist_job.training import Training


def evaluate(data: DataSet, options: Options) -> None:
    """Tests the checkpoint of --evaluate, or all that others save, up to the last epoch's."""
    training, counters = Training(tf.distribute.get_strategy(), data, options), Counters(options)
    checkpoint = tf.train.Checkpoint(model=training.model, counters=counters)
    tested = f"data: {data.source}, {len(data.test_images):,} images"

    def test(path: str, after: str = "") -> float:
        restore(checkpoint, path, options, EVALUATION)
        loss, accuracy = training.test()
        at = str(counters) if counters.step else f"epoch {counters.epoch}"
        say(f"{Path(path).name} ({at}): test_accuracy {accuracy:.3f}  test_loss {loss:.3f}{after}")
        return loss

    if asked := options.evaluate:
        paths = saved(asked) if asked.is_dir() else [str(asked).removesuffix(".index")]
        if not (paths and Path(f"{paths[0]}.index").exists()):
            advice = "name a folder that has one, or a checkpoint such as run1/ckpt-3"
            raise JobError(f"there is no checkpoint at {asked}: {advice}")
        test(paths[0], f"  {tested}")
        return
    folder, epochs = options.checkpoint_dir, options.epochs
    say(f"evaluator: follows the checkpoints in {folder} to epoch {epochs}; {tested}")
    for path in tf.train.checkpoints_iterator(str(folder), min_interval_secs=0.2):
        began = time.monotonic()
        try:
            loss = test(path)
        except JobError as error:
            say(error)  # or the chief has removed it, because there are newer ones
            continue
        counts = {"STEP": counters.total_steps, "EPOCH": max(counters.epoch, 1), "EPOCHS": epochs}
        speed = len(data.test_images) / max(time.monotonic() - began, 1e-9)
        progress.report(**counts, LOSS=loss, EXAMPLES_PER_SEC=speed)
        if counters.epoch >= epochs:
            return
