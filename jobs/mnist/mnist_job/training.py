"""The model, its loss and the steps, as in TensorFlow's tutorials on custom training."""

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from mnist_job import pipelines
from mnist_job.data import CLASSES, SIDE, DataSet
from mnist_job.keras_fit import FittedModel
from mnist_job.options import Options

_OPTIMIZERS = {"rmsprop": tf_keras.optimizers.RMSprop, "adam": tf_keras.optimizers.Adam}


def build_model(name: str, l2: float, kind: type[Any]) -> Any:
    """Returns an untrained model. It maps images (n, 28, 28, 1) from 0 to 1 to logits (n, 10).

    `small_cnn` is of the tutorial on multi-worker training, `cnn` of that on custom training. Each
    layer adds l2 times its squared kernel to `model.losses`.
    """
    layers, penalty = tf_keras.layers, tf_keras.regularizers.L2(l2) if l2 else None
    relu = {"activation": "relu", "kernel_regularizer": penalty}
    inner = [layers.Conv2D(32, 3, **relu)]
    if name == "cnn":
        inner += [layers.MaxPooling2D(), layers.Conv2D(64, 3, **relu), layers.MaxPooling2D()]
    inner += [layers.Flatten(), layers.Dense(64 if name == "cnn" else 128, **relu)]
    images = layers.InputLayer(input_shape=(SIDE, SIDE, 1), name="images")
    return kind([images, *inner, layers.Dense(CLASSES, kernel_regularizer=penalty)])


class Training:
    """A model and the steps that train and test it, on any strategy.

    A batch has images, labels, each image's weight in its batch, and its own weight in the data.
    """

    test_iterator: Any = None

    def __init__(
        self, strategy: Any, data: DataSet, options: Options, batch: int = 1, rate: float = 1.0
    ) -> None:
        self.strategy, self.data, self.options = strategy, data, options
        self.global_batch_size = batch
        kind = FittedModel if options.loop == "fit" else tf_keras.Sequential
        with strategy.scope():  # one copy of each variable per replica
            self.model = build_model(options.model, options.l2, kind)
            self.optimizer = _OPTIMIZERS[options.optimizer](rate)
            self.optimizer.build(self.model.trainable_variables)
            self.train_loss, self.test_loss = tf_keras.metrics.Mean(), tf_keras.metrics.Mean()
            self.train_accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
            self.test_accuracy = tf_keras.metrics.SparseCategoricalAccuracy()

    def compute_loss(self, losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns a replica's part of the mean loss: the parts of all replicas add up to it."""
        # The sum is divided by the size of the global batch, not of the replica's batch as by
        # reduce_mean, because the gradients of the replicas are summed.
        size = self.global_batch_size
        loss = tf.nn.compute_average_loss(losses, sample_weight=weights, global_batch_size=size)
        if self.model.losses:
            # The penalty does not depend on the images: each replica adds its share of it.
            loss += tf.nn.scale_regularization_loss(tf.add_n(self.model.losses))
        return loss

    def train_step(self, batch: Any) -> tf.Tensor:
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

    def test_step(self, batch: Any) -> None:
        """Tests one replica on its part of a global batch."""
        images, labels, weights, _ = batch
        logits = self.model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        self.test_loss.update_state(losses, sample_weight=tf.sign(weights))
        self.test_accuracy.update_state(labels, logits, sample_weight=tf.sign(weights))

    def distributed_train_step(self, batch: Any) -> tf.Tensor:
        """Trains all replicas on a global batch; returns the mean loss over its images."""
        per_replica_losses = self.strategy.run(self.train_step, args=(batch,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    def distributed_test_step(self, batch: Any) -> None:
        self.strategy.run(self.test_step, args=(batch,))

    def make_test(self, strategy: tf.distribute.Strategy) -> None:
        """Builds the test pipeline, kept for the run: deleting its iterator can take 40 s."""
        data = (self.data.test_images, self.data.test_labels, np.ones((), np.float32))
        count, replicas = len(data[0]), strategy.num_replicas_in_sync
        batch = min(500, -(-count // replicas)) * replicas
        batches = pipelines.batches(count, batch, seed=0, passes=True)
        self.test_steps, step = -(-count // batch), self.distributed_test_step
        self.test_iterator = iter(
            pipelines.distributed(strategy, batches, data, batch, "from_function")
        )
        self.test_next = tf.function(lambda batches: step(next(batches)), autograph=False)

    def test(self) -> tuple[float, float]:
        """Tests on the whole test set; returns (loss, accuracy)."""
        if self.test_iterator is None:
            self.make_test(self.strategy)
        self.test_loss.reset_state()
        self.test_accuracy.reset_state()
        for _ in range(self.test_steps):
            self.test_next(self.test_iterator)
        return float(self.test_loss.result()), float(self.test_accuracy.result())
