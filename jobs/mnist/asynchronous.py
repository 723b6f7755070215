"""Training in which each step is one worker's, by ClusterCoordinator; runs on the chief."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

import tensorflow as tf

import handout
import inputs
import order
from folders import FolderError
from preemption import Preempted
from training import Training, count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from arguments import Arguments
    from cluster import Task
    from digits import Digits

_AHEAD = 8
"""Steps scheduled for each worker before they are needed: enough to keep it busy while the chief
looks around, few enough to be done soon where the run is to end."""
_LOOK_SECONDS = 0.02
_ASK_SECONDS = 0.5
_PAUSES = (0.2, 1.0)
"""Seconds before a save that failed is tried again."""
_DRAIN_SECONDS = 4.0
"""How long steps under way are waited for where the run is to end."""


class LostUpdateError(Exception):
    """Not every step that was scheduled has reached the variables."""


class _Meter:
    """Steps a second, from the first ones on that have been seen done (tracing comes before)."""

    def __init__(self, done: int) -> None:
        self._first = self._from = (done, time.monotonic())

    def look(self, done: int) -> None:
        if self._from is self._first and done > self._first[0]:
            self._from = (done, time.monotonic())

    def steps_per_second(self, done: int) -> float:
        steps, since = self._from if done > self._from[0] else self._first
        return (done - steps) / max(time.monotonic() - since, 1e-9)


class AsynchronousTraining(Training):
    """On ParameterServerStrategy."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        digits: Digits,
        arguments: Arguments,
        task: Task,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(strategy, digits, arguments, task, say)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._train_step = tf.function(self._worker_train_step)
        self._test_step = tf.function(self._state.test_on)
        self._scheduled = 0
        """Steps of this launch."""
        self._ask_at = 0.0
        self._told_to_end = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._told_to_end.set())

    @property
    def _workers_in_step(self) -> int:
        return 1

    @property
    def _shape(self) -> str:
        workers, servers = self._task.count("worker"), self._task.count("ps")
        return f"steps by {count(workers, 'worker')}, variables on {servers} ps"

    def _agree(self, values: Mapping[str, int | str]) -> None:
        """Nothing to do: steps are the chief's alone, and workers check their data themselves."""

    def _prepare(self) -> None:
        distributed = self._distributed_dataset
        self._images = iter(self._coordinator.create_per_worker_dataset(distributed))
        self._test_images, self._test_steps = inputs.test_iterator(
            tf.distribute.get_strategy(), self._digits
        )
        self._before = int(self._state.optimizer.iterations)

    def _distributed_dataset(self) -> Any:
        """Called in a graph of the chief's that runs on each worker."""
        if self._arguments.input == "distribute":
            return inputs.distribute(self._strategy, self._looked_up(self._worker_batches()))
        return self._strategy.distribute_datasets_from_function(self._pipeline)

    def _pipeline(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return self._looked_up(inputs.part(self._worker_batches(), context, self._global_batch))

    def _worker_batches(self) -> tf.data.Dataset:
        # All workers run the same graph: which of the batches are its own, each finds out
        # there, as it finds its images.
        mine = handout.task_index(self._digits.fingerprint)
        return self._batches().shard(self._task.count("worker"), mine)

    def _looked_up(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        pixels, labels = handout.training_images(len(self._digits.train_images))
        return inputs.looked_up(batches, pixels, labels)

    def _batches(self) -> tf.data.Dataset:
        """Full ones, also where an epoch is a pass: no worker knows which the last will be."""
        return order.endless(
            len(self._digits.train_images),
            seed=self._arguments.seed,
            start=self._state.position.images_seen,
            global_batch=self._global_batch,
        )

    def _save(self) -> None:
        """Saves, again where it failed: one that loses a worker, which has no part in it, may."""
        for pause in _PAUSES:
            try:
                super()._save()
            except (FolderError, tf.errors.OpError):
                time.sleep(pause)
            else:
                return
        super()._save()

    def _train_epoch(self, epoch: int) -> float:
        self._meter = _Meter(self._scheduled)
        while stretch := self._next_stretch:
            self._train_steps(stretch, epoch)
            if self._steps_left:
                self._save()
        return self._meter.steps_per_second(self._scheduled) * self._global_batch

    def _train_steps(self, steps: int, epoch: int) -> None:
        """Has the workers train so many steps, and returns when all are done.

        Raises:
            Preempted: the chief or a ps was told to end; what was trained has been saved.
            LostUpdateError: what the workers did is not what was scheduled.
        """
        begun, target = self._scheduled, self._scheduled + steps
        ahead = _AHEAD * self._task.count("worker")
        while not (self._scheduled == target and self._coordinator.done()):
            done = self._done
            for _ in range(min(target, done + ahead) - self._scheduled):
                self._coordinator.schedule(self._train_step, args=(self._images,))
                self._scheduled += 1
            self._look_around(epoch, begun, done)
            if self._told_to_end.wait(_LOOK_SECONDS):
                self._end_early(begun)
        self._check_updates()
        self._count_steps(steps)

    @property
    def _done(self) -> int:
        """Steps of this launch that have reached the variables."""
        return int(self._state.optimizer.iterations) - self._before

    def _look_around(self, epoch: int, begun: int, done: int) -> None:
        """Tells the progress, and asks the ps whether they have to leave."""
        state = self._state
        self._meter.look(done)
        if done:
            self._say_first(done)
        step = state.position.total_steps + done - begun
        if self._progress.due and done:
            speed = self._meter.steps_per_second(done) * self._global_batch
            self._progress.send(
                step=step, epoch=epoch, loss=float(state.loss.result()), examples_per_sec=speed
            )
        if done > begun and self._summaries.is_due(step):
            self._summaries.write_step(step, float(state.loss.result()))
        if time.monotonic() > self._ask_at:
            self._ask_at = time.monotonic() + _ASK_SECONDS
            for index in range(self._task.count("ps")):
                with tf.device(f"/job:ps/replica:0/task:{index}/device:CPU:0"):
                    if bool(handout.is_leaving()):
                        self._told_to_end.set()

    def _end_early(self, begun: int) -> NoReturn:
        deadline = time.monotonic() + _DRAIN_SECONDS
        while not self._coordinator.done() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        # A step whose worker is gone is waiting for another: it has not been trained.
        self._count_steps(min(self._done, self._scheduled) - begun)
        self._save()
        raise Preempted

    def _check_updates(self) -> None:
        lost = self._scheduled - self._done
        if lost > 0:
            raise LostUpdateError(
                f"of {self._scheduled} steps scheduled {lost} never reached optimizer.iterations"
            )

    def _finish(self) -> None:
        state = self._state
        iterations, scheduled = int(state.optimizer.iterations), state.position.total_steps
        again = iterations - scheduled
        self._say(
            f"{scheduled} steps scheduled, optimizer.iterations {iterations}: no update lost"
            + (f", {count(again, 'step')} done again after a worker was lost" if again else "")
        )

    def _worker_train_step(self, images: Any) -> None:
        self._strategy.run(self._state.train_on, args=(next(images),))

    def _test(self) -> None:
        """On the chief, which reads the variables from the ps; the workers have nothing to do."""
        for _ in range(self._test_steps):
            self._test_step(next(self._test_images))
