"""Parameter server training: the chief schedules each step on one worker, ps hold the variables."""

import math
import os
import signal
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import tensorflow as tf
import tf_keras

from mnist_job import JobError, pipelines
from mnist_job.cluster import Task
from mnist_job.data import SIDE
from mnist_job.loop import Loop, say
from mnist_job.preemption import EXIT_CODE, Preempted, SigtermWatch

_AHEAD = 8  # steps scheduled for each worker: enough to keep it busy, and soon done after SIGTERM
_POLL_SECONDS = 0.02
_DRAIN_SECONDS = 4.0  # for scheduled steps, after SIGTERM
SHUTDOWN_SECONDS = 8.0  # for the chief to save; launchers and clusters usually give 10 s
_PREEMPTED = "preempted_ps_"


def serve(task: Task, folder: Path | None, watch: SigtermWatch) -> None:
    """Runs a worker or ps. Never returns: the chief exits without telling its servers."""
    watch.act = lambda: _leave(task, folder)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto()
    if (os.cpu_count() or 1) < task.count("worker") + 1:
        # As in TensorFlow's tutorial: with fewer threads, workers can wait for each other forever.
        config.inter_op_parallelism_threads = task.count("worker") + 1
    cluster, protocol = resolver.cluster_spec(), resolver.rpc_layer or "grpc"
    server = tf.distribute.Server(cluster, task.role, task.index, protocol, config)
    say(f"{task.name} serves at {task.cluster[task.role][task.index]}")
    server.join()


def _leave(task: Task, folder: Path | None) -> None:
    """Ends this process after SIGTERM, when the chief no longer needs it.

    The variables of a ps are lost with it. So a file in the folder that all share tells the chief,
    which saves and exits. It can continue without a worker.
    """
    if folder and task.role == "ps":
        (folder / f"{_PREEMPTED}{task.index}").touch()
    host, _, port = task.cluster["chief"][0].rpartition(":")
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    with suppress(OSError):
        while time.monotonic() < deadline:
            socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
            time.sleep(0.1)
        os._exit(128 + signal.SIGTERM)
    os._exit(EXIT_CODE)


class ParameterServerLoop(Loop):
    """The chief. Its steps are asynchronous: each updates the variables when it is done."""

    def prepare(self) -> None:
        for left in self._files_of_ps():
            left.unlink()
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        with self.strategy.scope():
            self.last_loss = tf.Variable(math.nan, trainable=False, aggregation=once)
        super().prepare()
        # The chief tests. Here, because Model.fit ends its epochs in the strategy's scope.
        self.make_test(tf.distribute.get_strategy())
        self._updates_before, self._next_poll = int(self.optimizer.iterations), 0.0
        self._scheduled = self._done = 0  # steps of this launch; done: seen in the variables

    def who(self) -> str:
        workers, ps = self.task.count("worker"), self.task.count("ps")
        return f"steps by {workers} worker{'s' * (workers > 1)}, variables on {ps} ps"

    def train_step(self, batch: Any) -> tf.Tensor:
        self.last_loss.assign(loss := super().train_step(batch))  # the chief need not wait for it
        return loss

    def distributed_test_step(self, batch: Any) -> None:
        """Tests on the chief, which reads the variables from the ps. The workers wait."""
        self.test_step(batch)

    def make_dataset(self) -> Any:
        if self.options.loop == "fit":
            return tf_keras.utils.experimental.DatasetCreator(self.dataset_fn)

        def per_worker_dataset() -> Any:
            if self.options.input == "distribute":
                return pipelines.divided(self.strategy, self.dataset_fn(None))
            return self.strategy.distribute_datasets_from_function(self.dataset_fn)

        return self.coordinator.create_per_worker_dataset(per_worker_dataset)

    def dataset_fn(self, _context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        """A worker's pipeline. Runs on each worker, and again on a worker that was restarted.

        All run the same graph, in which each shuffles in a random order of its own, as in the
        tutorial. The images are sent packed.
        """
        images, labels = self.data.train_images, self.data.train_labels
        content = tf.constant(zlib.compress(images.tobytes() + labels.tobytes(), 1))
        values = tf.io.decode_raw(tf.io.decode_compressed(content, "ZLIB"), tf.uint8)
        pixels = tf.reshape(values[: images.size], [len(images), SIDE, SIDE])
        start = tf.raw_ops.NonDeterministicInts(shape=[1], dtype=tf.int64)[0] % (1 << 40)
        size, seed = self.global_batch_size, self.options.seed
        batches, own = pipelines.batches(len(images), size, seed, start), self.data.sample_weights
        return pipelines.looked_up(batches, pixels, values[images.size :], tf.constant(own))

    def train_epoch(self) -> None:
        while self.steps_left:
            self.take_steps(self.coordinator.schedule, self.train_next, (self.iterator,))

    def take_steps(self, function: Callable[..., Any], *args: Any, steps: int = 1) -> Any:
        """Schedules a step. After the last one before a save, waits until all are done."""
        if self.sigterm.is_set():
            self._end_early()
        until = self._done + self.steps_to_next_save
        while self._scheduled - self._done >= _AHEAD * self.task.count("worker"):
            self._poll()
        scheduled = function(*args)
        self._scheduled += steps
        if self._scheduled >= until:
            while not self.coordinator.done():
                self._poll()
            self._count_updates()
            if self.steps_left:
                self.save()
        return scheduled

    def _count_updates(self) -> None:
        """Counts the steps that have updated the variables. One can be done twice."""
        are_done = self.coordinator.done()
        updates = int(self.optimizer.iterations) - self._updates_before
        if are_done and (lost := self._scheduled - updates) > 0:
            raise JobError(f"{lost} of {self._scheduled} steps updated no variable", code=1)
        if (new := min(updates, self._scheduled) - self._done) > 0:
            self._done += new
            self.count_steps(new)

    def _files_of_ps(self) -> list[Path]:
        """The files by which ps tell that they have received SIGTERM."""
        return [*(self.options.checkpoint_dir or Path(os.devnull)).glob(f"{_PREEMPTED}*")]

    def _poll(self) -> None:
        """Counts the steps that are done, and handles SIGTERM to the chief or a ps."""
        self._count_updates()
        if time.monotonic() > self._next_poll:
            self._next_poll = time.monotonic() + 0.5
            if self._files_of_ps():
                self.sigterm.set()
        if self.sigterm.wait(_POLL_SECONDS):
            self._end_early()

    def _end_early(self) -> NoReturn:
        deadline = time.monotonic() + _DRAIN_SECONDS
        while not self.coordinator.done() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        # A step whose worker is lost waits for another worker: it is not finished.
        self._count_updates()
        self.save()
        raise Preempted

    def save(self) -> None:
        for pause in (0.2, 1.0):  # a save can fail when a worker is lost, which it does not need
            try:
                return super().save()
            except (JobError, tf.errors.OpError):
                time.sleep(pause)
        return super().save()

    def finish(self) -> None:
        updates, steps = int(self.optimizer.iterations), self.counters.total_steps
        say(f"{steps} steps scheduled, optimizer.iterations {updates}: no update lost")
