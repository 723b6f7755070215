"""What is trained, and what a checkpoint holds of it."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from mnist import build_model


class State:
    """The model, its optimizer, its metrics, and how far the run is."""

    def __init__(
        self, strategy: tf.distribute.Strategy, learning_rate: float, global_batch: int
    ) -> None:
        self._global_batch = global_batch
        with strategy.scope():
            self.model = build_model()
            self.optimizer = tf_keras.optimizers.RMSprop(learning_rate)
            # Before the first step: where steps are traced on workers it would be too late.
            self.optimizer.build(self.model.trainable_variables)
            # Each replica adds to its own copy; reading one sums over all replicas.
            self.accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
            self.loss = tf_keras.metrics.Sum()
            self.test_accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
        self.epoch = tf.Variable(0, dtype=tf.int64)
        """Epochs finished."""
        self.step = tf.Variable(0, dtype=tf.int64)
        """Steps done of the epoch after them."""
        self.total_steps = tf.Variable(0, dtype=tf.int64)
        self.images_seen = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(
            model=self.model,
            optimizer=self.optimizer,
            accuracy=self.accuracy,
            loss=self.loss,
            epoch=self.epoch,
            step=self.step,
            total_steps=self.total_steps,
            images_seen=self.images_seen,
        )

    @property
    def position(self) -> str:
        """How far the run is, in words."""
        return f"epoch {int(self.epoch) + 1}, after step {int(self.step)}"

    def count_steps(self, steps: int) -> None:
        """Takes note of steps that have been trained."""
        self.step.assign_add(steps)
        self.total_steps.assign_add(steps)
        self.images_seen.assign_add(steps * self._global_batch)

    def begin_epoch(self) -> None:
        """Takes note that an epoch is over, and forgets its metrics."""
        self.epoch.assign_add(1)
        self.step.assign(0)
        self.accuracy.reset_state()
        self.loss.reset_state()

    def train_on(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """One replica's part of a step; returns its part of the mean loss."""
        images, labels = batch
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            # Divided by the global batch, so that the sum over the replicas, which is what
            # apply_gradients makes of the gradients, is their mean over all images.
            loss = tf.nn.compute_average_loss(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits),
                global_batch_size=self._global_batch,
            )
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        self.accuracy.update_state(labels, logits)
        self.loss.update_state(loss)
        return loss

    def test_on(self, batch: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> None:
        """One replica's part of an evaluation step."""
        images, labels, weights = batch
        logits = self.model(images, training=False)
        self.test_accuracy.update_state(labels, logits, sample_weight=weights)
