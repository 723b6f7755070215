"""The custom training loop of TensorFlow's tutorials: a step of all replicas, and three loops.

The steps are those of "Custom training with tf.distribute.Strategy" and "Multi-worker training
with a custom training loop". The loops keep one iterator for the whole run: with a new one per
epoch, two workers stall for 5 to 15 seconds while the old one is deleted.
"""

import math
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from mnist_job import STARTED, UsageError, keras_fit, pipelines, strategies
from mnist_job.checkpoints import Checkpoints, Counters, explained_io_errors, export, saved
from mnist_job.cluster import Task
from mnist_job.data import CLASSES, SIDE, DataSet
from mnist_job.options import BY_GLOBAL, WHOLE_PASS, Options
from mnist_job.pipelines import as_written
from mnist_job.preemption import Preempted, SigtermWatch, agreed_handler
from mnist_job.progress import Progress

Batch = tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]
"""Images, labels, each image's weight in its batch, and its own in the data: see `pipelines`."""

say = partial(print, flush=True)
STEPS_PER_CALL = 100
"""Of --loop epoch: a call must end within the 10 s that launchers usually give after SIGTERM."""
_OPTIMIZERS = {"rmsprop": tf_keras.optimizers.RMSprop, "adam": tf_keras.optimizers.Adam}


def build_model(name: str, l2: float = 0.0, kind: type[Any] = tf_keras.Sequential) -> Any:
    """Returns an untrained model. It maps images (n, 28, 28, 1) from 0 to 1 to logits (n, 10).

    `small_cnn` is of the tutorial on multi-worker training, `cnn` of that on custom training. Each
    layer adds l2 times its squared kernel to `model.losses`.
    """
    layers = tf_keras.layers
    penalty = tf_keras.regularizers.L2(l2) if l2 else None
    relu = {"activation": "relu", "kernel_regularizer": penalty}
    inner = [layers.Conv2D(32, 3, **relu)]
    if name == "cnn":
        inner += [layers.MaxPooling2D(), layers.Conv2D(64, 3, **relu), layers.MaxPooling2D()]
    inner += [layers.Flatten(), layers.Dense(64 if name == "cnn" else 128, **relu)]
    images = layers.InputLayer(input_shape=(SIDE, SIDE, 1), name="images")
    return kind([images, *inner, layers.Dense(CLASSES, kernel_regularizer=penalty)])


class CustomLoop:
    """One run of the job, on any strategy but ParameterServerStrategy."""

    test_iterator: Any = None
    last_loss: Any = math.nan
    """The mean loss over the global batch of the newest step."""
    has_stepped = False
    handler: Any = None
    next_summary = 0

    def __init__(self, strategy: Any, data: DataSet, options: Options, task: Task) -> None:
        self.strategy, self.data, self.options, self.task = strategy, data, options, task
        self.is_cluster = options.strategy == "multi_worker_mirrored" and task.trainers > 1
        """Whether several workers share a step."""
        replicas, asked = strategy.num_replicas_in_sync, options.batch_size
        is_divided = options.batch_size_of == "all"
        self.global_batch_size: int = (-(-asked // replicas) if is_divided else asked) * replicas
        self.is_pass = options.steps_per_epoch in {WHOLE_PASS, BY_GLOBAL}
        steps_of_pass = -(-len(data.train_images) // self.global_batch_size)
        steps = steps_of_pass if self.is_pass else options.steps_per_epoch
        self.all_steps: int = options.epochs * steps
        rates = options.learning_rate
        size = asked if is_divided else self.global_batch_size
        self.learning_rate = rates.get(size, rates.get(0))
        if not self.learning_rate:
            known = f"global batches of {', '.join(map(str, rates))} images"
            problem = f"none for {size} (--batch-size times the replicas)"
            raise UsageError(f"--learning-rate has rates for {known}, and {problem}")
        folder = options.checkpoint_dir
        # Before the first variable: the workers share variables, so their models must be equal.
        if self.is_cluster:
            asked = {key: value for key, value in vars(options).items() if "_dir" not in key}
            # Saving sums variables over the workers.
            found = f"{len(saved(folder))} found" if folder else "none"
            run = {"learning_rate": self.learning_rate, "checkpoints": found}
            strategies.agree(strategy, {**asked, **run, "data": data.fingerprint})
        self.create_model()
        self.counters = Counters(options)
        state = {"model": self.model, "optimizer": self.optimizer, "counters": self.counters}
        metrics = {"loss": self.train_loss, "accuracy": self.train_accuracy}
        checkpoint = tf.train.Checkpoint(**state, **metrics)
        self.checkpoints = Checkpoints(checkpoint, folder, task, options) if folder else None
        self.sigterm = threading.Event()
        self.progress = Progress(os.environ, EPOCHS=options.epochs, STEPS=self.all_steps)
        folder = options.summary_dir if task.is_chief else None
        parts = ("train", "test") if folder else ()  # TensorBoard draws both into one chart
        self.writers = {part: tf.summary.create_file_writer(f"{folder}/{part}") for part in parts}

    def create_model(self) -> None:
        """Creates model, optimizer and metrics: one copy of each variable per replica."""
        options = self.options
        with self.strategy.scope():
            kind = keras_fit.FittedModel if options.fit else tf_keras.Sequential
            self.model = build_model(options.model, options.l2, kind)
            self.optimizer = _OPTIMIZERS[options.optimizer](self.learning_rate)
            # Before the first step: when steps are traced on workers, it is too late.
            self.optimizer.build(self.model.trainable_variables)
            # XLA updates each variable in one pass over memory instead of a dozen: 9 ms less a
            # step, after 1 s to compile it. Keras sets it only where it finds a GPU, and then also
            # for parameter servers, which cannot do it. A TPU compiles the whole step.
            can_compile = options.strategy not in ("parameter_server", "tpu")
            self.optimizer.jit_compile = can_compile and self.all_steps >= 150
            self.train_loss = tf_keras.metrics.Mean(name="train_loss")
            self.train_accuracy = tf_keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
            self.test_loss = tf_keras.metrics.Mean(name="test_loss")
            self.test_accuracy = tf_keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")

    def compute_loss(self, losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns a replica's part of the mean loss: the parts of all replicas add up to it.

        The sum is divided by the size of the global batch, not of the replica's batch as by
        reduce_mean, because the gradients of the replicas are summed.
        """
        size = self.global_batch_size
        loss = tf.nn.compute_average_loss(losses, sample_weight=weights, global_batch_size=size)
        if self.model.losses:
            # The penalty does not depend on the images: each replica adds its share of it.
            loss += tf.nn.scale_regularization_loss(tf.add_n(self.model.losses))
        return loss

    def train_step(self, batch: Batch) -> tf.Tensor:
        """Trains one replica on its part of a global batch; returns its part of the loss."""
        images, labels, weights, own = batch
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = self.compute_loss(losses, weights * own)
        # Of the weights that this loss is for: apply_gradients changes them.
        penalty = tf.add_n(self.model.losses) if self.model.losses else 0.0
        gradients = tape.gradient(loss, self.model.trainable_variables)
        # Sums the gradients of all replicas.
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        once = tf.sign(weights)  # in the epoch's metrics, every image counts once
        self.train_loss.update_state(losses * own + penalty, sample_weight=once)
        self.train_accuracy.update_state(labels, logits, sample_weight=once)
        return loss

    def test_step(self, batch: Batch) -> None:
        """Tests one replica on its part of a global batch."""
        images, labels, weights, _ = batch
        logits = self.model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        once = tf.sign(weights)
        self.test_loss.update_state(losses, sample_weight=once)
        self.test_accuracy.update_state(labels, logits, sample_weight=once)

    def distributed_train_step(self, batch: Any) -> tf.Tensor:
        """Trains all replicas on a global batch; returns the mean loss over its images."""
        per_replica_losses = self.strategy.run(self.train_step, args=(batch,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    def distributed_test_step(self, batch: Any) -> None:
        """Tests all replicas on a global batch."""
        self.strategy.run(self.test_step, args=(batch,))

    def make_dataset(self) -> Any:
        """The distributed dataset of the batches that the run has not seen yet, without end."""
        data, options = self.data, self.options
        arrays = (data.train_images, data.train_labels, data.sample_weights)
        count, batch, seen = len(arrays[0]), self.global_batch_size, self.counters.images_seen
        if self.is_pass:
            seen = self.counters.epoch * count + min(self.counters.epoch_images, count)
        by_global = options.steps_per_epoch == BY_GLOBAL
        how = {"start": seen, "passes": self.is_pass, "by_global": by_global}
        batches = pipelines.batches(count, batch, options.seed, **how)
        return pipelines.distributed(self.strategy, batches, arrays, batch, options.input)

    def make_test(self, strategy: tf.distribute.Strategy) -> None:
        """Builds the test pipeline, kept for the run: deleting its iterator can take 40 s."""
        data = (self.data.test_images, self.data.test_labels, np.ones((), np.float32))
        count, replicas = len(data[0]), strategy.num_replicas_in_sync
        batch = min(500, -(-count // replicas)) * replicas
        batches = pipelines.batches(count, batch, seed=0, passes=True)
        self.test_steps = -(-count // batch)
        tests = pipelines.distributed(strategy, batches, data, batch, "from_function")
        self.test_iterator = iter(tests)
        step = self.distributed_test_step
        self.test_next = tf.function(lambda batches: step(next(batches)), autograph=False)

    def run(self, watch: SigtermWatch) -> None:
        """Trains, from the newest checkpoint if there is one. Raises Preempted after SIGTERM."""
        data, options = self.data, self.options
        if self.is_cluster:
            self.handler = agreed_handler(watch, self.save, self.strategy)
        else:
            watch.on_signal(self.sigterm.set)
        images = f"{len(data.train_images):,} + {len(data.test_images):,} images"
        batch = f"{self.global_batch_size} images a step"
        say(f"{options.strategy}: {self.who}, {batch}; data: {data.source}, {images}")
        try:
            if self.checkpoints and saved(self.checkpoints.folder):
                self.resume(self.checkpoints)
            elif self.checkpoints and (self.checkpoints.folder / "ckpt-1.index").exists():
                torn = f"the first checkpoint in {self.checkpoints.folder} is incomplete"
                say(f"{torn}: its save was interrupted; training starts anew")
            if self.counters.epoch < options.epochs:
                self.began = time.monotonic()
                self.start_clock()
                self.prepare()
                self.train()
            else:
                held = f"{options.checkpoint_dir} already holds {self.counters.epoch} epochs"
                say(f"{held}: nothing left to train (ask for more --epochs, or another folder)")
            if options.export_dir and self.task.is_chief:
                export(self.model, build_model(options.model), options.export_dir)
                say(f"exported to {options.export_dir}")
            self.finish()
        except Preempted:
            self.finish()
            raise
        finally:
            if self.checkpoints:
                self.checkpoints.remove_temp_dir()

    @property
    def who(self) -> str:
        """The workers and replicas, in words."""
        replicas, workers = self.strategy.num_replicas_in_sync, self.task.trainers
        return f"{counted(replicas, 'replica')} on {counted(workers, 'worker')}"

    def resume(self, checkpoints: Checkpoints) -> None:
        """Continues from the newest checkpoint, which must be the same on all workers."""
        restored = checkpoints.restore()
        if self.is_cluster:
            strategies.agree(self.strategy, {"steps resumed from": self.counters.total_steps})
        say(f"resumed from {restored} in {checkpoints.folder}: {self.counters}")
        self.optimizer.learning_rate.assign(self.learning_rate)

    def prepare(self) -> None:
        """Builds the training pipeline and the functions that take steps."""
        self.dataset = self.make_dataset()
        step = as_written(self.distributed_train_step)

        def several(iterator: Any, steps: tf.Tensor) -> tf.Tensor:
            loss = tf.constant(0.0)
            for _ in tf.range(steps):
                loss = step(next(iterator))
            return loss

        self.train_batch = tf.function(step, autograph=False)
        self.train_next = tf.function(lambda iterator: step(next(iterator)), autograph=False)
        self.train_several = tf.function(several)

    def train(self) -> None:
        """Trains the remaining epochs."""
        if self.options.fit:
            keras_fit.fit(self)
            return
        self.iterator = iter(self.dataset)
        while self.counters.epoch < self.options.epochs:
            self.train_epoch()
            self.end_epoch()

    def train_epoch(self) -> None:
        """Trains the rest of an epoch, in calls of TensorFlow."""
        if self.options.loop == "for":
            for batch in islice(self.iterator, self.steps_left):
                self.take_steps(self.train_batch, batch)
        elif self.options.loop == "iterator":
            while self.steps_left:
                self.take_steps(self.train_next, self.iterator)
        else:
            while steps := min(self.steps_to_next_save, STEPS_PER_CALL):
                # A tensor: the function would be traced again for each new Python number.
                self.take_steps(self.train_several, self.iterator, tf.constant(steps), steps=steps)

    def take_steps(self, function: Callable[..., Any], *args: Any, steps: int = 1) -> Any:
        """Calls a function that trains so many steps; then counts, reports and saves.

        Raises:
            Preempted: instead of the call.
        """
        until_save = self.steps_to_next_save
        if self.sigterm.is_set():
            self.save()
            raise Preempted
        result = self.handler.run(function, *args) if self.handler else function(*args)
        self.last_loss = result["loss"] if self.options.fit else result
        self.count_steps(steps)
        if steps == until_save and self.steps_left:
            self.save()
        return result

    def test(self) -> tuple[float, float]:
        """Tests on the whole test set; returns (loss, accuracy)."""
        if self.test_iterator is None:
            self.make_test(self.strategy)
        self.test_loss.reset_state()
        self.test_accuracy.reset_state()
        for _ in range(self.test_steps):
            self.test_next(self.test_iterator)
        return float(self.test_loss.result()), float(self.test_accuracy.result())

    def save(self) -> None:
        """Saves a checkpoint; all workers at the same step."""
        if self.checkpoints:
            self.progress.report("SAVING=1")
            self.checkpoints.save()
            self.progress.report("SAVING=0")

    def finish(self) -> None:
        """Called after training, and after a preempted run has been saved."""
        if self.is_cluster:
            strategies.barrier(self.strategy)

    @property
    def steps_left(self) -> int:
        """Steps left in the epoch."""
        if self.is_pass:
            images = len(self.data.train_images) - self.counters.epoch_images
            return max(-(-images // self.global_batch_size), 0)
        return max(int(self.options.steps_per_epoch) - self.counters.step, 0)

    @property
    def steps_to_next_save(self) -> int:
        """Steps to train until the next checkpoint, or until the end of the epoch."""
        left, every = self.steps_left, int(self.options.checkpoint_every.steps)
        return min(left, every - self.counters.step % every) if every else left

    def start_clock(self) -> None:
        """Starts to measure the images per second."""
        self._clock = (self.counters.images_seen, time.monotonic())

    def speed(self) -> float:
        """Images per second since start_clock, over all workers."""
        images, since = self._clock
        return (self.counters.images_seen - images) / max(time.monotonic() - since, 1e-9)

    def count_steps(self, steps: int) -> None:
        """Counts finished steps and the images in them, and reports what is due."""
        images = steps * self.global_batch_size
        if self.is_pass:
            images = min(images, len(self.data.train_images) - self.counters.epoch_images)
        self.counters.count_steps(steps, images)
        step, speed = self.counters.total_steps, self.speed()
        if not self.has_stepped:  # until now, nobody could see whether the job hangs
            self.has_stepped = True
            what = "first step" if steps == 1 else f"first {steps} steps"
            say(f"{what} after {time.monotonic() - STARTED:.1f} s")
            if self.steps_left:
                # TensorFlow traces the functions in the first call of a launch. So the speed does
                # not count that call, unless the epoch has no other.
                self.start_clock()
        if self.progress.due and speed > 0:  # reading the loss waits for the step
            self.progress.send(step, self.counters.epoch + 1, float(self.last_loss), speed)
        if self.writers and step >= self.next_summary:
            self.next_summary = step + 10  # not each: reading a loss waits for its step
            self.write_summary("train", step, batch_loss=float(self.last_loss))

    def write_summary(self, part: str, step: int, **numbers: float) -> None:
        """Writes numbers of `train` or `test`, at a step over all epochs or at an epoch from 1."""
        if part in self.writers:
            with explained_io_errors("summary", self.options.summary_dir):
                with self.writers[part].as_default(step):
                    for name, number in numbers.items():
                        tf.summary.scalar(name, number)
                self.writers[part].flush()

    def end_epoch(self) -> None:
        """Tests, reports and saves an epoch after its last step."""
        counters, epochs, speed = self.counters, self.options.epochs, self.speed()
        epoch = counters.epoch + 1
        loss, accuracy = float(self.train_loss.result()), float(self.train_accuracy.result())
        test_loss, test_accuracy = self.test()
        self.began, took = time.monotonic(), time.monotonic() - self.began
        say(
            f"epoch {epoch}/{epochs}  step {counters.step}  accuracy {accuracy:.3f}  "
            f"loss {loss:.3f}  test_accuracy {test_accuracy:.3f}  images/s {speed:.0f}  "
            f"seconds {took:.1f}  test_loss {test_loss:.3f}"
        )
        self.progress.send(counters.total_steps, epoch, loss, speed, ACCURACY=accuracy)
        trained = {"epoch_loss": loss, "epoch_accuracy": accuracy, "images_per_second": speed}
        self.write_summary("train", epoch, **trained)
        self.write_summary("test", epoch, epoch_loss=test_loss, epoch_accuracy=test_accuracy)
        counters.begin_epoch()
        self.train_accuracy.reset_state()
        self.train_loss.reset_state()
        if epoch % self.options.checkpoint_every.epochs == 0 or epoch == epochs:
            self.save()
        self.start_clock()


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
