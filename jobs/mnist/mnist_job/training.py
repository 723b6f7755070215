"""The input pipeline, the model, its loss and the steps, as in TensorFlow's tutorials.

A global batch is (indices (b,), weights (b,)), the same on every worker. A last batch of k < b
images is padded with images of weight 0: every replica has images. Its own weigh b / k or, with
`by_global`, 1 (docs/job.md).
"""

from typing import Any

import tensorflow as tf
import tf_keras

from mnist_job.data import CLASSES, ONE, SIDE, DataSet
from mnist_job.options import Options

_OPTIMIZERS = {"rmsprop": tf_keras.optimizers.RMSprop, "adam": tf_keras.optimizers.Adam}
_FOREVER = 2**63 - 1

as_written = tf.autograph.experimental.do_not_convert  # converting takes a second at the start


def batches(
    count: int, batch: int, seed: int, start: Any = 0, passes: bool = False, by_global: bool = False
) -> Any:
    """Batches without end, from permutations of `count` images, of which `start` images were seen.

    With `passes`, a batch has images of one permutation: its last one may be smaller.
    """

    def indices(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        places = first + tf.range(batch, dtype=tf.int64)
        rounds = places // count
        own = tf.cast((rounds == rounds[0]) | (not passes), tf.float32)
        # tf.random.experimental.index_shuffle takes one round.
        words = [tf.zeros_like(rounds), tf.fill([batch], tf.constant(seed, tf.int64)), rounds]
        seeds, last = tf.stack(words, 1), tf.constant(count - 1, tf.int64)
        shuffled = tf.raw_ops.RandomIndexShuffle(index=places % count, seed=seeds, max_index=last)
        return shuffled, own if by_global else own * batch / tf.reduce_sum(own)

    def firsts_of(number: tf.Tensor) -> tf.data.Dataset:
        first = number * count
        return tf.data.Dataset.range(tf.maximum(first, start), first + count, batch)

    if not passes:
        return tf.data.Dataset.range(start, _FOREVER, batch).map(as_written(indices))
    firsts = tf.data.Dataset.range(start // count, _FOREVER // count)
    return firsts.flat_map(as_written(firsts_of)).map(as_written(indices))


def looked_up(batches: Any, pixels: Any, labels: Any, sample_weights: Any) -> Any:
    """Returns (images, classes, weights in the batch, own weights) of batches that never end."""

    def images(indices: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, ...]:
        floats = tf.cast(tf.gather(pixels, indices)[..., tf.newaxis], tf.float32) / 255.0
        own = tf.gather(sample_weights, indices) if sample_weights.shape.rank else sample_weights
        classes = tf.cast(tf.gather(labels, indices), tf.int32)
        return floats, classes, weights, own * tf.ones_like(weights)

    # If the dataset is known to be endless, the workers need not agree at each step whether anyone
    # has a batch left.
    no_end = tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY)
    return batches.map(as_written(images)).apply(no_end).prefetch(tf.data.AUTOTUNE)


def distributed(strategy: Any, batches: Any, data: Any, size: int, how: str = "") -> Any:
    """Returns one distributed dataset for the whole run; it has no end.

    `batches`, each of `size` images, decide alone which images are in a global batch.
    """
    with tf.device("/cpu:0"):  # even where there is a GPU, and as bytes: only batches are floats
        arrays = [*map(tf.constant, data)]

    def dataset_fn(context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        """Whole global batches, or a worker's own part of each, in one piece per replica."""
        if context is None:
            return looked_up(batches, *arrays)
        workers, own = context.num_input_pipelines, context.input_pipeline_id
        per_replica = context.get_per_replica_batch_size(size)

        def pieces(*batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return tuple(tf.reshape(values, [workers, -1, per_replica])[own] for values in batch)

        return looked_up(batches.map(as_written(pieces)).unbatch(), *arrays)

    return distribute(strategy, dataset_fn, how)


def distribute(strategy: Any, dataset_fn: Any, how: str) -> Any:
    if how != "distribute":
        return strategy.distribute_datasets_from_function(dataset_fn)
    # TensorFlow cuts each global batch into one piece per replica, and each worker takes its own.
    # With the policy OFF, a step of two workers would train twice on the same half.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return strategy.experimental_distribute_dataset(dataset_fn(None).with_options(options))


def build_model(name: str, l2: float) -> Any:
    """Returns an untrained model. It maps images (n, 28, 28, 1) from 0 to 1 to logits (n, 10).

    Each layer adds l2 times its squared kernel to `model.losses`.
    """
    layers, penalty = tf_keras.layers, tf_keras.regularizers.L2(l2) if l2 else None
    relu = {"activation": "relu", "kernel_regularizer": penalty}
    inner = [layers.Conv2D(32, 3, **relu)]
    if name == "cnn":
        inner += [layers.MaxPooling2D(), layers.Conv2D(64, 3, **relu), layers.MaxPooling2D()]
    inner += [layers.Flatten(), layers.Dense(64 if name == "cnn" else 128, **relu)]
    images = layers.InputLayer(input_shape=(SIDE, SIDE, 1), name="images")
    logits = layers.Dense(CLASSES, kernel_regularizer=penalty)
    return tf_keras.Sequential([images, *inner, logits])


class Training:
    """A model, and its steps on images, labels, weights in the batch, and weights in the data."""

    test_iterator: Any = None
    global_batch_size, learning_rate = 1, 1.0

    def __init__(self, strategy: Any, data: DataSet, options: Options) -> None:
        self.strategy, self.data, self.options = strategy, data, options
        with strategy.scope():  # one copy of each variable per replica
            self.model = build_model(options.model, options.l2)
            self.optimizer = _OPTIMIZERS[options.optimizer](self.learning_rate)
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
        images, labels, weights, _ = batch
        logits = self.model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        self.test_loss.update_state(losses, sample_weight=tf.sign(weights))
        self.test_accuracy.update_state(labels, logits, sample_weight=tf.sign(weights))

    def distributed_train_step(self, batch: Any) -> tf.Tensor:
        """Trains all replicas on a global batch; returns the mean loss over its images."""
        per_replica_losses = self.strategy.run(self.train_step, args=(batch,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    def make_test(self, strategy: tf.distribute.Strategy) -> None:
        """Builds the test pipeline, kept for the run: deleting its iterator can take 40 s."""
        data = (self.data.test_images, self.data.test_labels, ONE)
        count, replicas = len(self.data.test_images), strategy.num_replicas_in_sync
        batch = min(500, -(-count // replicas)) * replicas
        chosen = batches(count, batch, seed=0, passes=True)
        self.test_iterator = iter(distributed(strategy, chosen, data, batch))
        self.test_steps = -(-count // batch)

        def distributed_test_step(iterator: Any) -> None:
            if strategy is self.strategy:
                strategy.run(self.test_step, args=(next(iterator),))
            else:  # without one: in the scope of parameter servers, no other strategy can run
                self.test_step(next(iterator))

        self.distributed_test_step = tf.function(distributed_test_step, autograph=False)

    def test(self) -> tuple[float, float]:
        """Returns (loss, accuracy)."""
        if self.test_iterator is None:
            self.make_test(self.strategy)
        self.test_loss.reset_state()
        self.test_accuracy.reset_state()
        for _ in range(self.test_steps):
            self.distributed_test_step(self.test_iterator)
        return float(self.test_loss.result()), float(self.test_accuracy.result())
