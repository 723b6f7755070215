"""Training in which all replicas take each step together."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import inputs
from consensus import agree, barrier
from loops import EpochLoop, ForLoop, IteratorLoop
from preemption import Preemption
from training import Training, count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from arguments import Arguments
    from cluster import Task
    from digits import Digits
    from loops import Batch, Loop


class SynchronousTraining(Training):
    """On any strategy but ParameterServerStrategy."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        digits: Digits,
        arguments: Arguments,
        task: Task,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(strategy, digits, arguments, task, say)
        self._preemption = Preemption(strategy, self._save, unused=os.devnull)
        self._test_step = tf.function(self._distributed_test_step)
        self._tracing = True

    @property
    def _workers_in_step(self) -> int:
        return self._task.trainers

    @property
    def _trainers_text(self) -> str:
        replicas = count(self._strategy.num_replicas_in_sync, "replica")
        return f"{replicas} on {count(self._task.trainers, 'worker')}"

    def _agree(self, values: Mapping[str, int | str]) -> None:
        agree(self._strategy, self._task, values)

    def _finish(self) -> None:
        barrier(self._strategy, self._task)

    def _prepare(self) -> None:
        self._make_test_pipeline()
        self._loop = self._chosen_loop(self._training_dataset())

    def _make_test_pipeline(self) -> None:
        # Kept until the process ends: deleting a distributed iterator can take 40 s.
        self._test_images, self._test_steps = inputs.test_iterator(self._strategy, self._digits)

    def _training_dataset(self) -> Any:
        """The batches that the run has not seen yet, without end."""
        return inputs.training_dataset(
            self._strategy,
            self._digits,
            self._batches,
            global_batch=self._global_batch,
            how=self._arguments.input,
        )

    def _chosen_loop(self, dataset: Any) -> Loop:
        step, preemption = self._distributed_train_step, self._preemption
        if self._arguments.loop == "for":
            return ForLoop(dataset, step, preemption)
        if self._arguments.loop == "epoch":
            return EpochLoop(dataset, step, preemption, self._arguments.steps_per_call)
        return IteratorLoop(dataset, step, preemption)

    def _train_epoch(self, epoch: int) -> float:
        counters = self._state.counters
        started, first_image = time.monotonic(), counters.images_seen
        while stretch := self._steps_to_next_save:
            for steps, loss in self._loop.run(stretch):
                self._report_first_step(steps)
                self._count_steps(steps)
                self._report_progress(epoch, loss, self._speed(started, first_image))
                if self._tracing and steps == 1 and self._steps_left:
                    started, first_image = time.monotonic(), counters.images_seen
                self._tracing = False
            if self._steps_left:
                self._save()
        return self._speed(started, first_image)

    def _speed(self, started: float, first_image: int) -> float:
        """Images per second since then, over all workers."""
        images = self._state.counters.images_seen - first_image
        return images / max(time.monotonic() - started, 1e-9)

    def _report_progress(self, epoch: int, loss: tf.Tensor, speed: float) -> None:
        """Reports the last step if a report is due, because reading a loss waits for its step."""
        step = self._state.counters.total_steps
        summary_due = self._summaries.is_due(step)
        if not (summary_due or (self._progress.due and speed > 0)):
            return
        mean = self._mean(loss)
        if self._progress.due:
            self._progress.send(step=step, epoch=epoch, loss=mean, examples_per_sec=speed)
        if summary_due:
            self._summaries.write_step(step, mean)

    def _mean(self, loss: tf.Tensor) -> float:
        """The mean loss of a step, from the part that the step returned."""
        # An estimate from this worker's part: the exact sum would need another collective.
        return float(loss) * self._task.trainers

    def _distributed_train_step(self, batch: Batch) -> tf.Tensor:
        """Trains one step on one global batch; returns this worker's part of the mean loss."""
        parts = self._strategy.run(self._state.train_on, args=(batch,))
        return tf.add_n(self._strategy.experimental_local_results(parts))

    def _test(self) -> None:
        for _ in range(self._test_steps):
            self._test_step(self._test_images)

    def _distributed_test_step(self, images: Any) -> None:
        self._strategy.run(self._state.test_on, args=(next(images),))
