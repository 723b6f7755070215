"""Parameter server training: the chief schedules each step on one worker, ps hold the variables."""

import math
import os
import signal
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import tensorflow as tf
import tf_keras

from mnist_job import JobError, pipelines
from mnist_job.checkpoints import WriteError
from mnist_job.cluster import Task
from mnist_job.custom_loop import Batch, CustomLoop, counted, say
from mnist_job.data import SIDE
from mnist_job.preemption import EXIT_CODE, Preempted, SigtermWatch

_AHEAD = 8
"""Steps scheduled ahead for each worker: enough to keep it busy, and soon done after SIGTERM."""
_POLL_SECONDS = 0.02
_DRAIN_SECONDS = 4.0
"""How long to wait for scheduled steps after SIGTERM."""
SHUTDOWN_SECONDS = 8.0
"""How long a server continues after SIGTERM, so that the chief can save: less than the 10 s that
launchers and clusters usually give."""
_COMM = "/proc/self/comm"
"""The name of the process in which it is read. A ps that receives SIGTERM changes its own, which
the chief reads with an operation that runs in the ps."""
_PREEMPTED = b"preempted"


def serve(task: Task, watch: SigtermWatch) -> None:
    """Runs a worker or ps. Never returns: the chief exits without telling its servers."""
    watch.on_signal(lambda: _leave(task.cluster["chief"][0]))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto()
    if (os.cpu_count() or 1) < task.count("worker") + 1:
        # As in TensorFlow's tutorial: with fewer threads, workers can wait for each other forever.
        config.inter_op_parallelism_threads = task.count("worker") + 1
    try:
        server = tf.distribute.Server(
            resolver.cluster_spec(), task.role, task.index, resolver.rpc_layer or "grpc", config
        )
    except tf.errors.OpError as error:
        raise JobError(f"{task.name} cannot serve: {error.message}", code=1) from error
    say(f"{task.name} serves at {task.cluster[task.role][task.index]}")
    server.join()


def _leave(chief: str) -> None:
    """Ends this process after SIGTERM, when the chief no longer needs it.

    The variables of a ps are lost with it. So the chief is told, saves and exits. The chief can
    continue without a worker.
    """
    announce_preemption()
    host, _, port = chief.rpartition(":")
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
        except OSError:
            os._exit(EXIT_CODE)
        time.sleep(0.1)
    os._exit(128 + signal.SIGTERM)


def announce_preemption() -> None:
    """Tells the chief that this process has received SIGTERM."""
    Path(_COMM).write_bytes(_PREEMPTED)


def save_with_retries(save: Callable[[], None], pauses: Sequence[float] = (0.2, 1.0)) -> None:
    """Saves, in several tries: a save can fail when a worker is lost, which it does not need."""
    for pause in pauses:
        try:
            return save()
        except (WriteError, tf.errors.OpError):
            time.sleep(pause)
    return save()


class ParameterServerLoop(CustomLoop):
    """The chief. Its steps are asynchronous: each updates the variables when it is done."""

    def create_model(self) -> None:
        super().create_model()
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        with self.strategy.scope():
            self.last_loss = tf.Variable(math.nan, trainable=False, aggregation=once)

    @property
    def who(self) -> str:
        workers = counted(self.task.count("worker"), "worker")
        return f"steps by {workers}, variables on {self.task.count('ps')} ps"

    def train_step(self, batch: Batch) -> tf.Tensor:
        loss = super().train_step(batch)
        self.last_loss.assign(loss)  # the chief reads it without waiting for a step
        return loss

    def make_dataset(self) -> Any:
        if self.options.fit:
            return tf_keras.utils.experimental.DatasetCreator(self.dataset_fn)

        def per_worker_dataset() -> Any:
            if self.options.input == "distribute":
                return pipelines.divided(self.strategy, self.dataset_fn(None))
            return self.strategy.distribute_datasets_from_function(self.dataset_fn)

        return self.coordinator.create_per_worker_dataset(per_worker_dataset)

    def dataset_fn(self, _context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        """A worker's pipeline. Runs on each worker, and again on a worker that was restarted.

        All workers run the same graph, so each shuffles the images in a random order of its own,
        as in the tutorial.
        """
        images, labels = self.data.train_images, self.data.train_labels
        content = tf.constant(zlib.compress(images.tobytes() + labels.tobytes(), 1))
        values = tf.io.decode_raw(tf.io.decode_compressed(content, "ZLIB"), tf.uint8)
        at, count = images.size, len(images)
        pixels = tf.reshape(values[:at], [count, SIDE, SIDE])
        start = tf.raw_ops.NonDeterministicInts(shape=[1], dtype=tf.int64)[0] % (1 << 40)
        batch, seed = self.global_batch_size, self.options.seed
        batches = pipelines.batches(count, batch, seed=seed, start=start)
        own = tf.constant(self.data.sample_weights)
        return pipelines.looked_up(batches, pixels, values[at:], own)

    def prepare(self) -> None:
        super().prepare()
        # The chief tests. Here, because Model.fit ends its epochs in the strategy's scope.
        self.make_test(tf.distribute.get_strategy())
        self._updates_before = int(self.optimizer.iterations)
        self._scheduled = self._done = 0
        """Steps of this launch: scheduled, and seen in the variables."""
        self._next_ps_poll = 0.0

    def distributed_test_step(self, batch: Batch) -> None:
        """Tests on the chief, which reads the variables from the ps. The workers wait."""
        self.test_step(batch)

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
        if self._scheduled < until:
            return scheduled
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

    def _poll(self) -> None:
        """Counts the steps that are done, and handles SIGTERM to the chief or a ps."""
        self._count_updates()
        if time.monotonic() > self._next_ps_poll:
            self._next_ps_poll = time.monotonic() + 0.5
            for index in range(self.task.count("ps")):
                with tf.device(f"/job:ps/replica:0/task:{index}/device:CPU:0"):
                    if tf.io.read_file(_COMM).numpy().strip() == _PREEMPTED:
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
        save_with_retries(super().save)

    def finish(self) -> None:
        updates, steps = int(self.optimizer.iterations), self.counters.total_steps
        done = f"{steps} steps scheduled, optimizer.iterations {updates}: no update lost"
        again = f", {counted(updates - steps, 'step')} done again after a worker was lost"
        say(done + again * (updates > steps))
