"""The custom training loop of TensorFlow's tutorials: a step of all replicas, and three loops.

The steps are those of "Custom training with tf.distribute.Strategy" and "Multi-worker training
with a custom training loop". The loops keep one iterator for the whole run: with a new one per
epoch, two workers stall for 5 to 15 seconds while the old one is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import tensorflow as tf
import tf_keras

from mnist_job import keras_fit, pipelines
from mnist_job.model import build_model
from mnist_job.pipelines import as_written
from mnist_job.training import Training

Batch = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Images, labels, and each image's weight in the mean loss: see `pipelines`."""

STEPS_PER_CALL = 100
"""Of --loop epoch: so few that a call ends within the 10 s that launchers usually give after
SIGTERM. An epoch usually has fewer steps."""
_STEPS_WORTH_COMPILING = 150
_OPTIMIZERS = {"rmsprop": tf_keras.optimizers.RMSprop, "adam": tf_keras.optimizers.Adam}


class CustomLoop(Training):
    """Trains on any strategy but ParameterServerStrategy, with its own loop or Model.fit."""

    test_iterator: Any = None

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
            self.optimizer.jit_compile = can_compile and self.all_steps >= _STEPS_WORTH_COMPILING
            self.train_loss = tf_keras.metrics.Mean(name="train_loss")
            self.train_accuracy = tf_keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
            self.test_loss = tf_keras.metrics.Mean(name="test_loss")
            self.test_accuracy = tf_keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")

    # One step -----------------------------------------------------------------------------------

    def compute_loss(self, losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns a replica's part of the mean loss: the parts of all replicas add up to it.

        The sum is divided by the size of the global batch, not of the replica's batch as by
        reduce_mean, because the gradients of the replicas are summed.
        """
        loss = tf.nn.compute_average_loss(
            losses, sample_weight=weights, global_batch_size=self.global_batch_size
        )
        if self.model.losses:
            # The penalty does not depend on the images: each replica adds its share of it.
            loss += tf.nn.scale_regularization_loss(tf.add_n(self.model.losses))
        return loss

    def train_step(self, batch: Batch) -> tf.Tensor:
        """Trains one replica on its part of a global batch; returns its part of the loss."""
        images, labels, weights = batch
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = self.compute_loss(losses, weights)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        # Sums the gradients of all replicas.
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        once = tf.sign(weights)  # in the epoch's metrics, every image counts once
        penalty = tf.add_n(self.model.losses) if self.model.losses else 0.0
        self.train_loss.update_state(losses + penalty, sample_weight=once)
        self.train_accuracy.update_state(labels, logits, sample_weight=once)
        return loss

    def test_step(self, batch: Batch) -> None:
        """Tests one replica on its part of a global batch."""
        images, labels, weights = batch
        logits = self.model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        once = tf.sign(weights)
        self.test_loss.update_state(losses, sample_weight=once)
        self.test_accuracy.update_state(labels, logits, sample_weight=once)

    @as_written
    def distributed_train_step(self, batch: Any) -> tf.Tensor:
        """Trains all replicas on a global batch; returns the mean loss over its images."""
        per_replica_losses = self.strategy.run(self.train_step, args=(batch,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    @as_written
    def distributed_test_step(self, batch: Any) -> None:
        """Tests all replicas on a global batch."""
        self.strategy.run(self.test_step, args=(batch,))

    # The loops ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Builds the training pipeline and the functions that take steps."""
        self.dataset = self.make_dataset()
        step = self.distributed_train_step
        self.train_batch = tf.function(step, autograph=False)
        self.train_next = tf.function(lambda iterator: step(next(iterator)), autograph=False)
        self.train_several = tf.function(self._several)

    def make_dataset(self) -> Any:
        """The distributed dataset of the batches that the run has not seen yet."""
        data = (self.data.train_images, self.data.train_labels)
        how = self.options.input
        return pipelines.distributed(self.strategy, self.batches, data, self.global_batch_size, how)

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

    def _several(self, iterator: Any, steps: tf.Tensor) -> tf.Tensor:
        """The steps of an epoch inside one tf.function."""
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            loss = self.distributed_train_step(next(iterator))
        return loss

    def take_steps(self, function: Callable[..., Any], *args: Any, steps: int = 1) -> Any:
        """Calls a function that trains so many steps; then counts, reports and saves.

        Raises:
            Preempted: instead of the call.
        """
        result = self.preemption.run(function, *args)
        self.last_loss = result["loss"] if self.options.fit else result
        self.count_steps(steps)
        # TensorFlow traces the functions in the first call of a launch. So the speed does not
        # count that call, unless the epoch has no other.
        speed = self.speed()
        if self.report_first(steps) and steps == 1 and self.steps_left:
            self.start_clock()
        self.report_step(self.counters.total_steps, speed)
        every = self.options.checkpoint_every.steps
        if every and self.counters.step % every == 0 and self.steps_left:
            self.save()
        return result

    def test(self) -> tuple[float, float]:
        """Tests on the whole test set; returns (loss, accuracy)."""
        if self.test_iterator is None:
            self.make_test()
        self.test_loss.reset_state()
        self.test_accuracy.reset_state()
        for _ in range(self.test_steps):
            self.test_next(self.test_iterator)
        return float(self.test_loss.result()), float(self.test_accuracy.result())

    def make_test(self) -> None:
        """Builds the test pipeline, kept for the run: deleting its iterator can take 40 s."""
        data = (self.data.test_images, self.data.test_labels)
        strategy = self.strategy
        self.test_iterator, self.test_steps = pipelines.test_iterator(strategy, data)
        self.test_next = tf.function(
            lambda batches: self.distributed_test_step(next(batches)), autograph=False
        )
