"""The evaluator: follows the checkpoints that others save, and ends after the last one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

import inputs
from checkpoints import UNUSABLE
from mnist import build_model
from progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from digits import Digits

_LOOK_SECONDS = 0.2


class Evaluator:
    """Evaluates the newest checkpoint whenever there is a new one, without any strategy."""

    def __init__(
        self, digits: Digits, folder: Path, epochs: int, say: Callable[[str], None]
    ) -> None:
        """Takes what the training tasks were given too.

        Args:
            digits: the test half is used.
            folder: where the chief saves.
            epochs: how many are trained: the checkpoint that has as many is the last one.
            say: told each result in a line.
        """
        self._digits, self._folder, self._epochs, self._say = digits, folder, epochs, say
        self._model = build_model()
        self._epoch = tf.Variable(0, dtype=tf.int64)
        self._step = tf.Variable(0, dtype=tf.int64)
        self._total_steps = tf.Variable(0, dtype=tf.int64)
        self._checkpoint = tf.train.Checkpoint(
            model=self._model,
            epoch=self._epoch,
            step=self._step,
            total_steps=self._total_steps,
        )
        self._accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
        self._loss = tf_keras.metrics.Mean()
        self._test_step = tf.function(self._test)
        self._images, self._steps = inputs.test_iterator(tf.distribute.get_strategy(), digits)
        self._progress = Progress(os.environ)

    @property
    def headline(self) -> str:
        """What is evaluated on what, in one line."""
        return (
            f"evaluator: follows the checkpoints in {self._folder} to epoch {self._epochs}; data: "
            f"{self._digits.source}, {len(self._digits.test_images):,} images"
        )

    def run(self) -> None:
        """Evaluates, until the checkpoint of the last epoch has been."""
        seen = None
        while seen is None or int(self._epoch) < self._epochs:
            newest = tf.train.latest_checkpoint(str(self._folder))
            if newest in {None, seen}:
                time.sleep(_LOOK_SECONDS)
                continue
            try:
                self._checkpoint.restore(newest).expect_partial()
            except UNUSABLE as error:
                if newest == tf.train.latest_checkpoint(str(self._folder)):
                    problem = str(error).strip().partition("\n")[0][:200]
                    self._say(f"{newest} cannot be restored: {problem}")
                    seen = newest
                continue  # else the chief has removed it meanwhile, for newer ones
            seen = newest
            self._evaluate(os.path.basename(newest))

    def _evaluate(self, name: str) -> None:
        started = time.monotonic()
        self._accuracy.reset_state()
        self._loss.reset_state()
        for _ in range(self._steps):
            self._test_step(next(self._images))
        accuracy, loss = float(self._accuracy.result()), float(self._loss.result())
        epoch, step = int(self._epoch), int(self._step)
        at = f"epoch {epoch}" if not step else f"epoch {epoch + 1}, after step {step}"
        self._say(f"{name} ({at}): test_accuracy {accuracy:.3f}  test_loss {loss:.3f}")
        self._progress.send(
            step=int(self._total_steps),
            epoch=max(epoch, 1),
            loss=loss,
            examples_per_sec=len(self._digits.test_images) / max(time.monotonic() - started, 1e-9),
        )

    def _test(self, batch: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> None:
        images, labels, weights = batch
        logits: Any = self._model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        self._accuracy.update_state(labels, logits, sample_weight=weights)
        self._loss.update_state(losses, sample_weight=weights)
