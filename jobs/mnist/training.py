"""A run of the job: its epochs, what is said of them, what is saved; how it trains is a subclass's.

`synchronous` has all replicas take each step together, `asynchronous` gives each step to one
worker of a parameter-server cluster.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import inputs
from checkpoints import Checkpoints
from preemption import Preempted
from progress import Progress
from state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    import tensorflow as tf

    from arguments import Arguments
    from cluster import Task
    from digits import Digits


class Training(ABC):
    """One run of the job on one strategy."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        digits: Digits,
        arguments: Arguments,
        task: Task,
        say: Callable[[str], None],
    ) -> None:
        self._strategy, self._arguments, self._task, self._say = strategy, arguments, task, say
        self._digits = digits
        self._global_batch = inputs.global_batch_size(
            strategy, self._workers_in_step, arguments.batch_size
        )
        self._state = State(strategy, arguments.learning_rate, self._global_batch)
        self._checkpoints = (
            Checkpoints(
                self._state.checkpoint, arguments.checkpoint_dir, task, arguments.max_to_keep
            )
            if arguments.checkpoint_dir
            else None
        )
        self._progress = Progress(os.environ)

    @property
    @abstractmethod
    def _workers_in_step(self) -> int:
        """How many workers share a step."""

    @property
    @abstractmethod
    def _shape(self) -> str:
        """Who trains, in words."""

    @abstractmethod
    def _agree(self) -> None:
        """Checks that all tasks were started for the same run."""

    @abstractmethod
    def _prepare(self) -> None:
        """Makes the pipelines; called once, after the run has been resumed."""

    @abstractmethod
    def _train_epoch(self, epoch: int) -> float:
        """Trains what is left of an epoch; returns images a second, over all workers.

        The first step of a launch, in which TensorFlow traces the functions, is not counted in
        the speed where others follow it.
        """

    @abstractmethod
    def _evaluate(self) -> float:
        """Returns the accuracy on the whole test set, the same on all workers."""

    @abstractmethod
    def _finish(self) -> None:
        """Called when all is trained, and when the run is preempted, once it is saved."""

    @property
    def headline(self) -> str:
        """What is trained on what, in one line."""
        digits = self._digits
        return (
            f"{self._arguments.strategy}: {self._shape}, {self._global_batch} images a step; data: "
            f"{digits.source}, {len(digits.train_images):,} + {len(digits.test_images):,} images"
        )

    @property
    def position(self) -> str:
        """How far the run is, in words."""
        return self._state.position

    def run(self) -> None:
        """Trains, from the newest checkpoint on where there is one.

        Raises:
            Preempted: a worker got SIGTERM; all have saved.
            CheckpointError: the checkpoints cannot be used.
            DisagreementError: the workers were started for different runs.
        """
        try:
            self._resume()
            self._train_epochs()
            self._finish()
        except Preempted:
            self._finish()
            raise
        finally:
            self._progress.close()
            if self._checkpoints:
                self._checkpoints.tidy()

    def _resume(self) -> None:
        restored = self._checkpoints.restore(self._say) if self._checkpoints else None
        self._agree()
        if restored:
            self._say(
                f"resumed from {restored} in {self._arguments.checkpoint_dir}: {self.position}"
            )
            self._state.optimizer.learning_rate.assign(self._arguments.learning_rate)

    def _train_epochs(self) -> None:
        state, arguments = self._state, self._arguments
        epochs = arguments.epochs
        if int(state.epoch) >= epochs:
            self._say(
                f"{arguments.checkpoint_dir} already holds {int(state.epoch)} epochs: nothing "
                "left to train (ask for more --epochs, or another --checkpoint-dir)"
            )
            return
        began = time.monotonic()
        self._prepare()
        while (epoch := int(state.epoch) + 1) <= epochs:
            speed = self._train_epoch(epoch)
            test_accuracy = self._evaluate()
            accuracy = float(state.accuracy.result())
            steps = int(state.step)
            loss = float(state.loss.result()) / max(steps, 1)
            began, took = time.monotonic(), time.monotonic() - began
            self._say(
                f"epoch {epoch}/{epochs}  step {steps}  accuracy {accuracy:.3f}  loss {loss:.3f}  "
                f"test_accuracy {test_accuracy:.3f}  images/s {speed:.0f}  seconds {took:.1f}"
            )
            self._progress.send(
                step=int(state.total_steps), epoch=epoch, loss=loss, examples_per_sec=speed
            )
            state.begin_epoch()
            self._save()

    def _save(self) -> None:
        if self._checkpoints:
            self._checkpoints.save()


def count(number: int, noun: str) -> str:
    """A number with its noun, in words: `1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
