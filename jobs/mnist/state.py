"""The state of a run: model, optimizer, metrics and counters, as a checkpoint saves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf
import tf_keras

import checkpoint_metadata
from counters import Counters
from mnist import build_model

if TYPE_CHECKING:
    from arguments import Arguments

Batch = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Images, labels, and each image's weight in the mean loss: see `sampler`."""

_OPTIMIZERS = {"rmsprop": tf_keras.optimizers.RMSprop, "adam": tf_keras.optimizers.Adam}


class Objective(NamedTuple):
    """The minimized loss on one replica."""

    part: tf.Tensor
    """The replica's part of the mean over the global batch: the mean is the sum of all parts."""
    of_each: tf.Tensor
    """(b,): the loss of each image."""
    logits: tf.Tensor


class State:
    """The model, its optimizer, its metrics and the counters."""

    def __init__(
        self, strategy: tf.distribute.Strategy, arguments: Arguments, global_batch: int
    ) -> None:
        self._global_batch = global_batch
        self._reduce_as = arguments.distribution.reduce_as
        with strategy.scope():
            self.model = build_model(arguments.model, arguments.l2)
            self.optimizer = _OPTIMIZERS[arguments.optimizer](arguments.learning_rate)
            # Before the first step: when steps are traced on workers, it is too late.
            self.optimizer.build(self.model.trainable_variables)
            if arguments.strategy not in ("parameter_server", "tpu"):
                # XLA updates each variable in one pass over memory instead of a dozen. Keras does
                # so by itself only with a GPU. A TPU compiles the whole step.
                self.optimizer.jit_compile = True
            # Each replica updates its own copy. Reading a metric sums over all replicas.
            self.accuracy = tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")
            self.loss = tf_keras.metrics.Mean()
            self.test_accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
            self.test_loss = tf_keras.metrics.Mean()
        self.counters = Counters()
        self.checkpoint = tf.train.Checkpoint(
            model=self.model,
            optimizer=self.optimizer,
            accuracy=self.accuracy,
            loss=self.loss,
            position=self.counters,
            origin=checkpoint_metadata.variable(arguments),
        )

    def begin_epoch(self) -> None:
        """Counts a finished epoch, and resets its metrics."""
        self.counters.begin_epoch()
        self.accuracy.reset_state()
        self.loss.reset_state()

    def objective(self, batch: Batch) -> Objective:
        """Computes the loss of one replica's part of the global batch."""
        images, labels, weights = batch
        logits = self.model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        # Divided by the size of the global batch, not of the replica's batch as by reduce_mean: the
        # gradients of the replicas are summed, and the sum must be the mean over all images.
        part = tf.nn.compute_average_loss(
            losses, sample_weight=weights, global_batch_size=self._global_batch
        )
        if penalties := self.model.losses:
            # The penalty does not depend on the images: each replica adds its share of it.
            part += tf.nn.scale_regularization_loss(tf.add_n(penalties))
            losses += tf.add_n(penalties)
        return Objective(part, losses, logits)

    def train_on(self, batch: Batch) -> tf.Tensor:
        """Trains one replica's part of a step; returns its part of the mean loss."""
        with tf.GradientTape() as tape:
            objective = self.objective(batch)
        self._apply(tape.gradient(objective.part, self.model.trainable_variables))
        _, labels, weights = batch
        once = tf.sign(weights)  # in the epoch's metrics, every image counts once
        self.accuracy.update_state(labels, objective.logits, sample_weight=once)
        self.loss.update_state(objective.of_each, sample_weight=once)
        return objective.part

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        """Sums the gradients of the replicas and updates the variables."""
        summed = self._reduce_as == "float16"
        if summed:
            gradients = self._summed_as_float16(gradients)
        self.optimizer.apply_gradients(
            zip(gradients, self.model.trainable_variables, strict=True),
            skip_gradients_aggregation=summed,
        )

    def _summed_as_float16(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        # As sums over the images instead of means: float16 loses numbers below 6e-8.
        scale = float(self._global_batch)
        summed = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [tf.cast(each * scale, tf.float16) for each in gradients]
        )
        return [tf.cast(each, tf.float32) / scale for each in summed]

    def test_on(self, batch: Batch) -> None:
        """Evaluates one replica's part of a test step."""
        images, labels, weights = batch
        logits = self.model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        once = tf.sign(weights)
        self.test_accuracy.update_state(labels, logits, sample_weight=once)
        self.test_loss.update_state(losses, sample_weight=once)
