"""A run of the job: resumes, trains epochs, reports, saves and exports. Subclasses train the steps.

In `synchronous`, all replicas take each step together. In `asynchronous`, each step goes to one
worker of a parameter-server cluster.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import inputs
import sampler
from checkpoints import Checkpoints
from consensus import run_settings
from export import export
from mnist import build_model
from options import WHOLE_PASS
from preemption import Preempted
from progress import Progress
from startup import seconds_since_start
from state import State
from summaries import Summaries

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
        # Before the first variable: the workers share variables, so their models must be equal.
        self._agree(run_settings(arguments, digits))
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
    def _trainers_text(self) -> str:
        """The workers and replicas, in words."""

    @abstractmethod
    def _agree(self, values: Mapping[str, int | str]) -> None:
        """Checks that all workers have the same values."""

    @abstractmethod
    def _prepare(self) -> None:
        """Builds the pipelines. Called once, after the checkpoint has been restored."""

    @abstractmethod
    def _train_epoch(self, epoch: int) -> float:
        """Trains the rest of an epoch; returns images per second, over all workers.

        TensorFlow traces the functions in the first step of a launch. So the speed does not count
        that step, unless the epoch has no other.
        """

    @abstractmethod
    def _test(self) -> None:
        """Updates the test metrics with the whole test set."""

    @abstractmethod
    def _finish(self) -> None:
        """Called after training, and after a preempted run has been saved."""

    @property
    def headline(self) -> str:
        """One line that names the strategy, the workers and the data."""
        digits = self._digits
        return (
            f"{self._arguments.strategy}: {self._trainers_text}, {self._global_batch} images a "
            f"step; data: {digits.source}, {len(digits.train_images):,} + "
            f"{len(digits.test_images):,} images"
        )

    @property
    def position(self) -> str:
        """The current epoch and step, in words."""
        return str(self._state.counters)

    def run(self) -> None:
        """Trains. Starts from the newest checkpoint if there is one.

        Raises:
            Preempted: a worker received SIGTERM; all have saved.
            CheckpointError: the checkpoints cannot be used.
            ExportError: the model cannot be written.
            DisagreementError: the workers have different settings.
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
                self._checkpoints.remove_temp_dir()

    def _resume(self) -> None:
        restored = self._checkpoints.restore(self._say) if self._checkpoints else None
        self._agree({"steps_resumed_from": self._state.counters.total_steps})
        if restored:
            self._say(
                f"resumed from {restored} in {self._arguments.checkpoint_dir}: {self.position}"
            )
            self._state.optimizer.learning_rate.assign(self._arguments.learning_rate)

    def _has_more(self) -> bool:
        arguments, epochs = self._arguments, self._state.counters.epoch
        if epochs < arguments.epochs:
            return True
        self._say(
            f"{arguments.checkpoint_dir} already holds {epochs} epochs: nothing left to train "
            "(ask for more --epochs, or another --checkpoint-dir)"
        )
        return False

    def _train(self) -> None:
        """Trains the remaining epochs."""
        while (epoch := self._state.counters.epoch + 1) <= self._arguments.epochs:
            speed = self._train_epoch(epoch)
            state = self._state
            self._end_epoch(float(state.loss.result()), float(state.accuracy.result()), speed)

    def _end_epoch(self, loss: float, accuracy: float, speed: float) -> None:
        """Tests, reports and saves an epoch after its last step.

        Args:
            loss: over the epoch's images.
            accuracy: over the epoch's images.
            speed: images per second, over all workers.
        """
        state, epochs = self._state, self._arguments.epochs
        epoch, steps = state.counters.epoch + 1, state.counters.step
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
            step=state.counters.total_steps, epoch=epoch, loss=loss, examples_per_sec=speed
        )
        self._summaries.write_epoch(
            epoch,
            train=(loss, accuracy),
            test=(test_loss, test_accuracy),
            images_per_second=speed,
        )
        self._close_epoch()

    def _close_epoch(self) -> None:
        """Begins the next epoch, and saves if a save is due."""
        self._state.begin_epoch()
        done = self._state.counters.epoch
        if done % self._arguments.checkpoint_every.epochs == 0 or done == self._arguments.epochs:
            self._save()

    @property
    def _passes(self) -> bool:
        """Whether an epoch is one pass over the images instead of a number of steps."""
        return self._arguments.steps_per_epoch == WHOLE_PASS

    @property
    def _images_left(self) -> int:
        """Images left in an epoch that is one pass."""
        return len(self._digits.train_images) - self._state.counters.epoch_images

    @property
    def _steps_left(self) -> int:
        """Steps left in the epoch."""
        if self._passes:
            return max(-(-self._images_left // self._global_batch), 0)
        return max(self._arguments.steps_per_epoch - self._state.counters.step, 0)

    @property
    def _steps_to_next_save(self) -> int:
        """Steps to train until the next checkpoint, or until the end of the epoch."""
        left, every = self._steps_left, self._arguments.checkpoint_every.steps
        return min(left, every - self._state.counters.step % every) if every else left

    def _count_steps(self, steps: int) -> None:
        """Counts finished steps."""
        images = steps * self._global_batch
        if self._passes:
            images = min(images, self._images_left)
        self._state.counters.count_steps(steps, images)

    def _batches(self) -> tf.data.Dataset:
        """The batches of indices that the run has not seen yet."""
        counters, images = self._state.counters, len(self._digits.train_images)
        seed, batch = self._arguments.seed, self._global_batch
        if self._passes:
            epoch, seen = counters.epoch, counters.epoch_images
            return sampler.passes(images, seed=seed, epoch=epoch, start=seen, global_batch=batch)
        seen = counters.images_seen
        return sampler.endless(images, seed=seed, start=seen, global_batch=batch)

    def _report_first_step(self, steps: int) -> None:
        """Reports the first step once: until then nobody can see whether the job hangs."""
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
    """A number with its noun: `1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
