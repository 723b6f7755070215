"""Evaluates checkpoints on the test images, without a strategy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

import checkpoint_metadata
import inputs
from checkpoints import UNUSABLE, CheckpointError, listed, problem_of, saved
from state import State

if TYPE_CHECKING:
    from arguments import Arguments
    from digits import Digits


@dataclass(frozen=True, kw_only=True)
class Result:
    """The test result of one checkpoint."""

    name: str
    epoch: int
    """Finished epochs."""
    step: int
    """Finished steps of the epoch after them."""
    total_steps: int
    accuracy: float
    loss: float

    def __str__(self) -> str:
        at = f"epoch {self.epoch}"
        if self.step:
            at = f"epoch {self.epoch + 1}, after step {self.step}"
        return f"{self.name} ({at}): test_accuracy {self.accuracy:.3f}  test_loss {self.loss:.3f}"


class Evaluation:
    """Evaluates checkpoints of any strategy."""

    def __init__(self, digits: Digits, arguments: Arguments) -> None:
        """Builds the model.

        Args:
            digits: the test half is used.
            arguments: name the model and the data set.
        """
        strategy = tf.distribute.get_strategy()
        self._arguments = arguments
        self._state = State(strategy, arguments, arguments.batch_size)
        self._checkpoint = tf.train.Checkpoint(
            model=self._state.model, position=self._state.counters
        )
        self._test_step = tf.function(lambda images: self._state.test_on(next(images)))
        self._images, self._steps = inputs.test_iterator(strategy, digits)

    def of(self, path: str) -> Result:
        """Restores a checkpoint and evaluates it.

        Raises:
            CheckpointError: it is damaged, or was trained with another model or data set.
        """
        state = self._state
        try:
            checkpoint_metadata.check(path, self._arguments, checkpoint_metadata.EVALUATION)
            # The whole model must be restored; the optimizer and training metrics are ignored.
            self._checkpoint.restore(path).assert_existing_objects_matched().expect_partial()
        except (*UNUSABLE, checkpoint_metadata.MismatchError) as error:
            raise CheckpointError(f"{path} cannot be restored: {problem_of(error)}") from error
        state.test_accuracy.reset_state()
        state.test_loss.reset_state()
        for _ in range(self._steps):
            self._test_step(self._images)
        return Result(
            name=Path(path).name,
            epoch=state.counters.epoch,
            step=state.counters.step,
            total_steps=state.counters.total_steps,
            accuracy=float(state.test_accuracy.result()),
            loss=float(state.test_loss.result()),
        )


def newest_in(folder: Path) -> str | None:
    """The path of the newest checkpoint whose files exist."""
    return _newest(saved(folder))


def newest_whole_in(folder: Path) -> str | None:
    """The same, without one that is still being saved. None if TensorFlow's list is lost."""
    return _newest(listed(folder) or [])


def _newest(paths: list[str]) -> str | None:
    return next((path for path in paths if Path(f"{path}.index").exists()), None)


def found(asked: Path) -> str:
    """The checkpoint with this path, or the newest one in this folder.

    Raises:
        CheckpointError: there is none.
    """
    if asked.is_dir():
        newest = newest_in(asked)
        if newest is None:
            raise CheckpointError(f"there is no checkpoint in {asked}")
        return newest
    path = str(asked).removesuffix(".index")
    if not Path(f"{path}.index").exists():
        raise CheckpointError(
            f"there is no checkpoint {path}: name a folder, or a checkpoint such as run1/ckpt-3"
        )
    return path
