"""Training in which all replicas take each step together."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import inputs
from preemption import Preemption
from training import Training, count
from workers import agree, meet

if TYPE_CHECKING:
    from collections.abc import Callable

    from arguments import Arguments
    from cluster import Task
    from digits import Digits


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
        self._train_step = tf.function(self._distributed_train_step)
        self._test_step = tf.function(self._distributed_test_step)
        self._tracing = True

    @property
    def _workers_in_step(self) -> int:
        return self._task.trainers

    @property
    def _shape(self) -> str:
        replicas = count(self._strategy.num_replicas_in_sync, "replica")
        return f"{replicas} on {count(self._task.trainers, 'worker')}"

    def _agree(self) -> None:
        agree(
            self._strategy,
            self._task,
            data=self._digits.fingerprint,
            epochs=self._arguments.epochs,
            steps_per_epoch=self._arguments.steps_per_epoch,
            batch_size=self._arguments.batch_size,
            seed=self._arguments.seed,
            checkpoint_every=self._arguments.checkpoint_every,
            steps_resumed_from=int(self._state.total_steps),
        )

    def _finish(self) -> None:
        meet(self._strategy, self._task)

    def _prepare(self) -> None:
        # Kept until the process ends: deleting a distributed iterator stalls for up to 40 s.
        self._images = inputs.training_iterator(
            self._strategy,
            self._digits,
            global_batch=self._global_batch,
            seed=self._arguments.seed,
            start=int(self._state.images_seen),
        )
        self._test_images, self._test_steps = inputs.test_iterator(self._strategy, self._digits)

    def _train_epoch(self, epoch: int) -> float:
        state, every = self._state, self._arguments.checkpoint_every
        done, total = int(state.step), int(state.total_steps)
        started, counted = time.monotonic(), 0
        for step in range(done + 1, self._arguments.steps_per_epoch + 1):
            losses = self._preemption.run(self._train_step, self._images)
            counted += 1
            state.count_steps(1)
            now = time.monotonic()
            if self._progress.due and now > started:
                # This worker's part, scaled up: the sum over all would be a collective more.
                local = self._strategy.experimental_local_results(losses)
                share = self._strategy.num_replicas_in_sync / len(local)
                self._progress.send(
                    step=total + step - done,
                    epoch=epoch,
                    loss=float(tf.add_n(local)) * share,
                    examples_per_sec=counted * self._global_batch / (now - started),
                )
            if counted == 1 and self._tracing:
                self._tracing, counted, started = False, 0, time.monotonic()
            if every and step % every == 0 and step < self._arguments.steps_per_epoch:
                self._save()
        return counted * self._global_batch / max(time.monotonic() - started, 1e-9)

    def _distributed_train_step(self, images: Any) -> Any:
        """One step on the next global batch; returns each replica's part of its mean loss."""
        return self._strategy.run(self._state.train_on, args=(next(images),))

    def _evaluate(self) -> float:
        self._state.test_accuracy.reset_state()
        for _ in range(self._test_steps):
            self._test_step(self._test_images)
        return float(self._state.test_accuracy.result())

    def _distributed_test_step(self, images: Any) -> None:
        self._strategy.run(self._state.test_on, args=(next(images),))
