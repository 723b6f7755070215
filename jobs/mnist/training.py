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
import order
from checkpoints import Checkpoints
from export import export
from mnist import build_model
from options import WHOLE_PASS
from preemption import Preempted
from progress import Progress
from startup import seconds_since_start
from state import State
from summaries import Summaries
from workers import terms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        # Before the first variable, which the workers would share: they must be of one model.
        self._agree(terms(arguments, digits))
        self._global_batch = inputs.global_batch_size(
            strategy, self._workers_in_step, arguments.batch_size
        )
        self._state = State(strategy, arguments, self._global_batch)
        self._checkpoints = (
            Checkpoints(self._state.checkpoint, arguments.checkpoint_dir, task, arguments)
            if arguments.checkpoint_dir
            else None
        )
        self._began = time.monotonic()
        self._has_stepped = False
        self._progress = Progress(os.environ)
        self._summaries = Summaries(arguments.summary_dir if task.is_chief else None)

    @property
    @abstractmethod
    def _workers_in_step(self) -> int:
        """How many workers share a step."""

    @property
    @abstractmethod
    def _shape(self) -> str:
        """Who trains, in words."""

    @abstractmethod
    def _agree(self, values: Mapping[str, int | str]) -> None:
        """Checks that all tasks were started for the same run: that these are the same on all."""

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
    def _test(self) -> None:
        """Has the state's test metrics see the whole test set once."""

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
        return str(self._state.position)

    def run(self) -> None:
        """Trains, from the newest checkpoint on where there is one.

        Raises:
            Preempted: a worker got SIGTERM; all have saved.
            CheckpointError: the checkpoints cannot be used.
            ExportError: the model cannot be written.
            DisagreementError: the workers were started for different runs.
        """
        try:
            self._resume()
            if self._has_more():
                self._began = time.monotonic()
                self._prepare()
                self._train()
            self._export()
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
        self._agree({"steps_resumed_from": self._state.position.total_steps})
        if restored:
            self._say(
                f"resumed from {restored} in {self._arguments.checkpoint_dir}: {self.position}"
            )
            self._state.optimizer.learning_rate.assign(self._arguments.learning_rate)

    def _has_more(self) -> bool:
        arguments, epochs = self._arguments, self._state.position.epoch
        if epochs < arguments.epochs:
            return True
        self._say(
            f"{arguments.checkpoint_dir} already holds {epochs} epochs: nothing left to train "
            "(ask for more --epochs, or another --checkpoint-dir)"
        )
        return False

    def _train(self) -> None:
        """Trains the epochs that are left."""
        while (epoch := self._state.position.epoch + 1) <= self._arguments.epochs:
            speed = self._train_epoch(epoch)
            state = self._state
            self._end_epoch(float(state.loss.result()), float(state.accuracy.result()), speed)

    def _end_epoch(self, loss: float, accuracy: float, speed: float) -> None:
        """Tests, tells and saves an epoch whose steps have been trained.

        Args:
            loss: over the epoch's images.
            accuracy: over the epoch's images.
            speed: images a second, over all workers.
        """
        state, epochs = self._state, self._arguments.epochs
        epoch, steps = state.position.epoch + 1, state.position.step
        state.test_accuracy.reset_state()
        state.test_loss.reset_state()
        self._test()
        test_accuracy = float(state.test_accuracy.result())
        test_loss = float(state.test_loss.result())
        self._began, took = time.monotonic(), time.monotonic() - self._began
        self._say(
            f"epoch {epoch}/{epochs}  step {steps}  accuracy {accuracy:.3f}  loss {loss:.3f}  "
            f"test_accuracy {test_accuracy:.3f}  images/s {speed:.0f}  seconds {took:.1f}  "
            f"test_loss {test_loss:.3f}"
        )
        self._progress.send(
            step=state.position.total_steps, epoch=epoch, loss=loss, examples_per_sec=speed
        )
        self._summaries.write_epoch(
            epoch,
            train=(loss, accuracy),
            test=(test_loss, test_accuracy),
            images_per_second=speed,
        )
        self._close_epoch()

    def _close_epoch(self) -> None:
        """Begins the next epoch, and saves where that is due between the two."""
        self._state.begin_epoch()
        done = self._state.position.epoch
        if done % self._arguments.checkpoint_every.epochs == 0 or done == self._arguments.epochs:
            self._save()

    @property
    def _passes(self) -> bool:
        """Whether an epoch is a pass over the images, rather than a number of steps."""
        return self._arguments.steps_per_epoch == WHOLE_PASS

    @property
    def _images_left(self) -> int:
        """Of an epoch that is a pass over the images."""
        return len(self._digits.train_images) - self._state.position.epoch_images

    @property
    def _steps_left(self) -> int:
        """Of the epoch."""
        if self._passes:
            return max(-(-self._images_left // self._global_batch), 0)
        return max(self._arguments.steps_per_epoch - self._state.position.step, 0)

    @property
    def _next_stretch(self) -> int:
        """Steps to train until the next checkpoint, or until the end of the epoch."""
        left, every = self._steps_left, self._arguments.checkpoint_every.steps
        return min(left, every - self._state.position.step % every) if every else left

    def _count_steps(self, steps: int) -> None:
        """Takes note of steps that have been trained."""
        images = steps * self._global_batch
        if self._passes:
            images = min(images, self._images_left)
        self._state.position.count_steps(steps, images)

    def _batches(self) -> tf.data.Dataset:
        """The run's batches of indices, from where it is now."""
        position, images = self._state.position, len(self._digits.train_images)
        seed, batch = self._arguments.seed, self._global_batch
        if self._passes:
            epoch, seen = position.epoch, position.epoch_images
            return order.passes(images, seed=seed, epoch=epoch, start=seen, global_batch=batch)
        seen = position.images_seen
        return order.endless(images, seed=seed, start=seen, global_batch=batch)

    def _say_first(self, steps: int) -> None:
        """Says once that the training is under way: until then nobody sees whether it hangs."""
        if not self._has_stepped:
            self._has_stepped = True
            what = "first step" if steps == 1 else f"first {steps} steps"
            self._say(f"{what} after {seconds_since_start():.1f} s")

    def _export(self) -> None:
        arguments = self._arguments
        if arguments.export_dir and self._task.is_chief:
            export(self._state.model, build_model(arguments.model), arguments.export_dir)
            self._say(f"exported to {arguments.export_dir}")

    def _save(self) -> None:
        if self._checkpoints:
            self._checkpoints.save()


def count(number: int, noun: str) -> str:
    """A number with its noun, in words: `1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
