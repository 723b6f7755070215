"""The images as tf.data pipelines, one for each worker, each with its part of every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from digits import Bytes, Digits

_FOREVER = np.iinfo(np.int64).max
_TEST_BATCH = 500


class BatchSizeError(Exception):
    """The global batch cannot be divided among the replicas."""


def global_batch_size(strategy: tf.distribute.Strategy, workers: int, per_worker: int) -> int:
    """Images in a step over all replicas.

    Raises:
        BatchSizeError: the workers' batches cannot be divided among the replicas.
    """
    batch, replicas = per_worker * workers, strategy.num_replicas_in_sync
    if batch % replicas:
        raise BatchSizeError(
            f"--batch-size {per_worker} on each of {workers} workers makes {batch} images a step, "
            f"which {replicas} replicas cannot share evenly"
        )
    return batch


def training_iterator(
    strategy: tf.distribute.Strategy, digits: Digits, *, global_batch: int, seed: int, start: int
) -> Any:
    """Returns the one iterator of the whole run: (images (b, 28, 28, 1) in 0..1, labels (b,)).

    The order of the images is a function of the seed alone: a new permutation of all of them
    each time round, from which each step takes the next global batch and each worker its part of
    it. So the same global batch gives the same training on any number of workers, and a resumed
    run goes on where the stopped one was.

    Args:
        strategy: asks for one pipeline on each worker.
        digits: the training half is used.
        global_batch: images in a step over all replicas.
        seed: of the permutations.
        start: how many images the run has seen before.
    """

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        order = endless_order(len(digits.train_images), seed, start)
        pixels, labels = _constants(digits.train_images, digits.train_labels)
        return training_batches(_part(order, context, global_batch), pixels, labels)

    return iter(strategy.distribute_datasets_from_function(pipeline))


def endless_order(count: int, seed: int, start: int) -> tf.data.Dataset:
    """The images' indices in the order of a run: a new permutation of all each time round."""
    first_round, offset = divmod(start, count)

    def shuffled(time_round: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(
            tf.random.experimental.stateless_shuffle(
                tf.range(count, dtype=tf.int64),
                seed=tf.stack([tf.constant(seed, tf.int64), time_round]),
            )
        )

    return tf.data.Dataset.range(first_round, _FOREVER).flat_map(shuffled).skip(offset)


def training_batches(
    batches: tf.data.Dataset, pixels: tf.Tensor, labels: tf.Tensor
) -> tf.data.Dataset:
    """The images and labels that each batch of indices names."""
    return (
        batches.map(lambda at: (_floats(tf.gather(pixels, at)), tf.gather(labels, at)))
        # Known to be endless, it needs no agreement between the workers at each step on
        # whether anyone has a batch left.
        .apply(tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY))
        .prefetch(tf.data.AUTOTUNE)
    )


def test_iterator(strategy: tf.distribute.Strategy, digits: Digits) -> tuple[Any, int]:
    """Returns (iterator, steps of one round): (images, labels, weights) of the whole test set.

    The same iterator serves every evaluation. What is missing to fill the last step on every
    replica is padded with images of weight 0, so that each image counts once on any number of
    replicas.
    """
    count = len(digits.test_images)
    replicas = strategy.num_replicas_in_sync
    per_replica = min(_TEST_BATCH, -(-count // replicas))
    global_batch = per_replica * replicas
    steps = -(-count // global_batch)

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        pixels, labels = _constants(digits.test_images, digits.test_labels)

        def batch(at: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            inside = tf.minimum(at, count - 1)
            weights = tf.cast(at < count, tf.float32)
            return _floats(tf.gather(pixels, inside)), tf.gather(labels, inside), weights

        order = tf.data.Dataset.range(steps * global_batch)
        return _part(order, context, global_batch).map(batch).repeat().prefetch(1)

    return iter(strategy.distribute_datasets_from_function(pipeline)), steps


def _part(
    order: tf.data.Dataset, context: tf.distribute.InputContext, global_batch: int
) -> tf.data.Dataset:
    """Of each global batch of indices the worker's own, in pieces of one replica each."""
    per_worker = global_batch // context.num_input_pipelines
    first = context.input_pipeline_id * per_worker
    parts = order.batch(global_batch, drop_remainder=True).map(
        lambda indices: indices[first : first + per_worker]
    )
    per_replica = context.get_per_replica_batch_size(global_batch)
    if per_replica == per_worker:
        return parts
    return parts.unbatch().batch(per_replica, drop_remainder=True)


def _constants(images: Bytes, labels: Bytes) -> tuple[tf.Tensor, tf.Tensor]:
    # On the CPU even where there is a GPU, and as bytes: only batches become floats.
    with tf.device("/cpu:0"):
        return tf.constant(images), tf.constant(labels.astype(np.int32))


def _floats(images: tf.Tensor) -> tf.Tensor:
    return tf.cast(images[..., tf.newaxis], tf.float32) / 255.0
