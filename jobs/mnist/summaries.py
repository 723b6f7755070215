"""TensorBoard summaries of a run. Only the chief writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from io_errors import explained_io_errors

if TYPE_CHECKING:
    from pathlib import Path

EVERY = 10
"""Steps between two losses, at least, because reading a loss waits for its step."""


class Summaries:
    """Writes to DIR/train and DIR/test. TensorBoard draws them as two lines of one chart.

    The names are those of Keras's own callback.
    """

    def __init__(self, folder: Path | None) -> None:
        """Creates the writers; with None, nothing is written."""
        self._folder = folder
        self._train: Any = None
        self._test: Any = None
        if folder is not None:
            with explained_io_errors("summary", folder):
                self._train = tf.summary.create_file_writer(str(folder / "train"))
                self._test = tf.summary.create_file_writer(str(folder / "test"))
        self._due = 0

    def is_due(self, step: int) -> bool:
        """Whether to write the loss of this step, counted over all epochs."""
        return self._folder is not None and step >= self._due

    def write_step(self, step: int, loss: float) -> None:
        """Writes the loss of one step, counted over all epochs."""
        if self._folder is None:
            return
        self._due = step + EVERY
        with explained_io_errors("summary", self._folder), self._train.as_default():
            tf.summary.scalar("batch_loss", loss, step=step)

    def write_epoch(
        self,
        epoch: int,
        *,
        train: tuple[float, float],
        test: tuple[float, float],
        images_per_second: float,
    ) -> None:
        """Writes an epoch and flushes it, so that it can be read at once.

        Args:
            epoch: from 1.
            train: loss and accuracy over the epoch's training images.
            test: loss and accuracy over the test images.
            images_per_second: of all workers together.
        """
        if self._folder is None:
            return
        with explained_io_errors("summary", self._folder):
            for writer, (loss, accuracy) in ((self._train, train), (self._test, test)):
                with writer.as_default():
                    tf.summary.scalar("epoch_loss", loss, step=epoch)
                    tf.summary.scalar("epoch_accuracy", accuracy, step=epoch)
                    if writer is self._train:
                        tf.summary.scalar("images_per_second", images_per_second, step=epoch)
                writer.flush()
