"""Parameter server training: the chief schedules each step on one worker, ps hold the variables."""

import math
import os
import signal
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from mnist_job import JobError, launcher, training
from mnist_job.data import SIDE
from mnist_job.loop import Loop
from mnist_job.options import Options, Task

_AHEAD = 16  # steps scheduled for each worker at once: enough to keep it busy, and done soon
SHUTDOWN_SECONDS = 8.0  # for the chief to save; launchers and clusters usually give 10 s
_PREEMPTED = "preempted_ps"  # the file by which a ps that has received SIGTERM tells the chief


def serve(options: Options, watch: launcher.SigtermWatch) -> None:
    """Runs a worker or ps. Never returns: the chief exits without telling its servers."""
    task = options.task
    watch.act = lambda: _leave(task, options.checkpoint_dir)
    config = tf.compat.v1.ConfigProto()
    if (os.cpu_count() or 1) < task.number_of("worker") + 1:
        # As in TensorFlow's tutorial: with fewer threads, workers can wait for each other forever.
        config.inter_op_parallelism_threads = task.number_of("worker") + 1
    server = tf.distribute.Server(dict(task.cluster), task.role, task.index, "grpc", config)
    print(f"{task.name} serves at {task.cluster[task.role][task.index]}")
    server.join()


def _leave(task: Task, folder: Path | None) -> None:
    """Ends this process after SIGTERM, when the chief no longer needs it.

    The variables of a ps are lost with it, so the chief saves and exits first. It can continue
    without a worker.
    """
    if folder and task.role == "ps":
        (folder / _PREEMPTED).touch()
    host, _, port = task.cluster["chief"][0].rpartition(":")
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    with suppress(OSError):
        while time.monotonic() < deadline:
            socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
            time.sleep(0.1)
        os._exit(128 + signal.SIGTERM)
    os._exit(launcher.PREEMPTED)


class ParameterServerLoop(Loop):
    """The chief. Its steps are asynchronous: each updates the variables when it is done."""

    def prepare(self) -> None:
        self._of_ps = (self.options.checkpoint_dir or Path(os.devnull)) / _PREEMPTED
        with suppress(OSError):  # there is none
            self._of_ps.unlink()
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        with self.strategy.scope():
            self.last_loss = tf.Variable(math.nan, trainable=False, aggregation=once)
        super().prepare()
        step = self.train_next
        self.train_next = lambda iterator: self.coordinator.schedule(step, (iterator,))
        # The chief tests. Here, because Model.fit ends its epochs in the strategy's scope.
        self.make_test(tf.distribute.get_strategy())
        self._scheduled = 0  # steps whose end is not awaited yet

    def train_step(self, batch: Any) -> tf.Tensor:
        self.last_loss.assign(loss := super().train_step(batch))  # the chief need not wait for it
        return loss

    def make_dataset(self) -> Any:
        if self.options.loop == "fit":
            return tf_keras.utils.experimental.DatasetCreator(self.dataset_fn)
        distribute = partial(training.distribute, self.strategy, self.dataset_fn)
        return self.coordinator.create_per_worker_dataset(lambda: distribute(self.options.input))

    def dataset_fn(self, _context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        """A worker's pipeline, with the images, packed; made again on a worker that restarted.

        All run the same graph, in which each shuffles in an order of its own, as in the tutorial.
        """
        images, labels = self.data.train_images, self.data.train_labels
        content = tf.constant(zlib.compress(images.tobytes() + labels.tobytes(), 1))
        values = tf.io.decode_raw(tf.io.decode_compressed(content, "ZLIB"), tf.uint8)
        pixels = tf.reshape(values[: images.size], [len(images), SIDE, SIDE])
        start = tf.raw_ops.NonDeterministicInts(shape=[1], dtype=tf.int64)[0] % (1 << 40)
        size, seed = self.global_batch_size, self.options.seed
        batches, own = training.batches(len(images), size, seed, start), self.data.sample_weights
        return training.looked_up(batches, pixels, values[images.size :], tf.constant(own))

    def take_steps(self, function: Callable[..., Any], *args: Any, steps: int = 1) -> Any:
        """Schedules a step, and waits for each _AHEAD of every worker, and before a save."""
        if not self._scheduled and (self.sigterm.is_set() or self._of_ps.exists()):
            self.save()
            raise launcher.Preempted
        scheduled = function(*args)
        self._scheduled += steps
        # At first, one for each worker: until then, nobody can see whether the job hangs.
        most = self.options.task.number_of("worker") * (_AHEAD if self.next_report else 1)
        if self._scheduled == min(self.steps_to_next_save, most):
            self.coordinator.join()
            # A step whose worker is lost is given to another, and can update the variables twice.
            total = self.counters.total_steps + self._scheduled
            if (lost := total - int(self.optimizer.iterations)) > 0:
                raise JobError(f"{lost} of {total} steps updated no variable", code=1)
            done, self._scheduled = self._scheduled, 0
            self.count_steps(done)
        return scheduled

    def save(self) -> None:
        for pause in (0.2, 1.0):  # a save can fail when a worker is lost, which it does not need
            with suppress(JobError, tf.errors.OpError):
                return super().save()
            time.sleep(pause)
        return super().save()

    def finish(self) -> None:
        updates, steps = int(self.optimizer.iterations), self.counters.total_steps
        print(f"{steps} steps scheduled, optimizer.iterations {updates}: no update lost")
