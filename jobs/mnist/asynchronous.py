"""Training on parameter servers: the chief schedules each step on one worker."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

import tensorflow as tf

import inputs
import process_data
import sampler
from directories import DirectoryError
from preemption import Preempted
from training import Training, count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from arguments import Arguments
    from cluster import Task
    from digits import Digits

_AHEAD = 8
"""Steps scheduled ahead for each worker: enough to keep it busy between two polls of the chief, few
enough to finish soon after SIGTERM."""
_POLL_SECONDS = 0.02
_PS_POLL_SECONDS = 0.5
_PAUSES = (0.2, 1.0)
"""Seconds to wait before each new try of a failed save."""
_DRAIN_SECONDS = 4.0
"""How long to wait for scheduled steps after SIGTERM."""


class LostUpdateError(Exception):
    """Not every scheduled step has updated the variables."""


def save_with_retries(save: Callable[[], None], pauses: Sequence[float] = _PAUSES) -> None:
    """Saves; tries again if it fails, because a save can fail when a worker is lost.

    The save itself needs no worker.

    Raises:
        DirectoryError, OpError: the last try failed.
    """
    for pause in pauses:
        try:
            save()
        except (DirectoryError, tf.errors.OpError):
            time.sleep(pause)
        else:
            return
    save()


class _Meter:
    """Steps per second since the first finished steps were seen, so that tracing is not counted."""

    def __init__(self, done: int) -> None:
        self._first = self._from = (done, time.monotonic())

    def record(self, done: int) -> None:
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
        """Steps scheduled in this launch."""
        self._next_ps_poll = 0.0
        self._shutdown_requested = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._shutdown_requested.set())

    @property
    def _workers_in_step(self) -> int:
        return 1

    @property
    def _trainers_text(self) -> str:
        workers, servers = self._task.count("worker"), self._task.count("ps")
        return f"steps by {count(workers, 'worker')}, variables on {servers} ps"

    def _agree(self, values: Mapping[str, int | str]) -> None:
        """Nothing to do: only the chief counts steps, and workers check their data themselves."""

    def _prepare(self) -> None:
        distributed = self._distributed_dataset
        self._images = iter(self._coordinator.create_per_worker_dataset(distributed))
        self._test_images, self._test_steps = inputs.test_iterator(
            tf.distribute.get_strategy(), self._digits
        )
        self._before = int(self._state.optimizer.iterations)

    def _distributed_dataset(self) -> Any:
        """Called in a graph of the chief that runs on each worker."""
        if self._arguments.input == "distribute":
            return inputs.distribute(self._strategy, self._looked_up(self._worker_batches()))
        return self._strategy.distribute_datasets_from_function(self._pipeline)

    def _pipeline(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return self._looked_up(inputs.part(self._worker_batches(), context, self._global_batch))

    def _worker_batches(self) -> tf.data.Dataset:
        # All workers run the same graph. Each reads its index and its images from its process.
        mine = process_data.task_index(self._digits.fingerprint)
        return self._batches().shard(self._task.count("worker"), mine)

    def _looked_up(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        pixels, labels = process_data.training_images(len(self._digits.train_images))
        return inputs.looked_up(batches, pixels, labels)

    def _batches(self) -> tf.data.Dataset:
        """Full batches, even if an epoch is a pass: no worker knows which batch is the last."""
        return sampler.endless(
            len(self._digits.train_images),
            seed=self._arguments.seed,
            start=self._state.counters.images_seen,
            global_batch=self._global_batch,
        )

    def _save(self) -> None:
        save_with_retries(super()._save)

    def _train_epoch(self, epoch: int) -> float:
        self._meter = _Meter(self._scheduled)
        while stretch := self._steps_to_next_save:
            self._train_steps(stretch, epoch)
            if self._steps_left:
                self._save()
        return self._meter.steps_per_second(self._scheduled) * self._global_batch

    def _train_steps(self, steps: int, epoch: int) -> None:
        """Trains so many steps on the workers; returns when all are done.

        Raises:
            Preempted: the chief or a ps received SIGTERM; the finished steps have been saved.
            LostUpdateError: a scheduled step is missing from the variables.
        """
        begun, target = self._scheduled, self._scheduled + steps
        ahead = _AHEAD * self._task.count("worker")
        while not (self._scheduled == target and self._coordinator.done()):
            done = self._done
            for _ in range(min(target, done + ahead) - self._scheduled):
                self._coordinator.schedule(self._train_step, args=(self._images,))
                self._scheduled += 1
            self._poll(epoch, begun, done)
            if self._shutdown_requested.wait(_POLL_SECONDS):
                self._end_early(begun)
        self._check_updates()
        self._count_steps(steps)

    @property
    def _done(self) -> int:
        """Steps of this launch that have updated the variables."""
        return int(self._state.optimizer.iterations) - self._before

    def _poll(self, epoch: int, begun: int, done: int) -> None:
        """Reports the progress, and asks each ps whether it has received SIGTERM."""
        state = self._state
        self._meter.record(done)
        if done:
            self._report_first_step(done)
        step = state.counters.total_steps + done - begun
        if self._progress.due and done:
            speed = self._meter.steps_per_second(done) * self._global_batch
            self._progress.send(
                step=step, epoch=epoch, loss=float(state.loss.result()), examples_per_sec=speed
            )
        if done > begun and self._summaries.is_due(step):
            self._summaries.write_step(step, float(state.loss.result()))
        if time.monotonic() > self._next_ps_poll:
            self._next_ps_poll = time.monotonic() + _PS_POLL_SECONDS
            for index in range(self._task.count("ps")):
                with tf.device(f"/job:ps/replica:0/task:{index}/device:CPU:0"):
                    if bool(process_data.is_shutting_down()):
                        self._shutdown_requested.set()

    def _end_early(self, begun: int) -> NoReturn:
        deadline = time.monotonic() + _DRAIN_SECONDS
        while not self._coordinator.done() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        # A step whose worker is lost waits for another worker: it is not finished.
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
        iterations, scheduled = int(state.optimizer.iterations), state.counters.total_steps
        again = iterations - scheduled
        self._say(
            f"{scheduled} steps scheduled, optimizer.iterations {iterations}: no update lost"
            + (f", {count(again, 'step')} done again after a worker was lost" if again else "")
        )

    def _worker_train_step(self, images: Any) -> None:
        self._strategy.run(self._state.train_on, args=(next(images),))

    def _test(self) -> None:
        """Tests on the chief, which reads the variables from the ps. The workers wait."""
        for _ in range(self._test_steps):
            self._test_step(next(self._test_images))
