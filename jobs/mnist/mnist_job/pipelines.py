"""The tf.data pipelines: which images are in a batch, and which part of it a worker makes.

A global batch is (indices (b,), weights (b,)), the same on every worker. The weight is 1 in a full
batch. A smaller batch of k < b images is padded with images of weight 0, and its own images get the
weight b / k. So the loss of a step is the mean over its images, however many there are and wherever
the padding is, and every replica always has images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from mnist_job.data import Array

_Function = TypeVar("_Function", bound=Callable[..., Any])
_FOREVER = np.iinfo(np.int64).max
_TEST_BATCH = 500


def as_written(function: _Function) -> _Function:
    """Decorates a function that has no loop or condition over tensors.

    AutoGraph would convert it all the same, which takes a second before the first step.
    """
    unconverted: _Function = tf.autograph.experimental.do_not_convert(function)
    return unconverted


def endless(count: int, batch: int, seed: int, *, start: Any = 0) -> tf.data.Dataset:
    """Full batches, without end: permutations of `count` images, one after the other.

    The run has seen `start` images before.
    """

    def indices(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        places = first + tf.range(batch, dtype=tf.int64)
        return _shuffled(places % count, count, seed, places // count), tf.ones([batch])

    return tf.data.Dataset.range(start, _FOREVER, batch).map(as_written(indices))


def passes(count: int, batch: int, seed: int, *, epoch: int = 0, start: int = 0) -> tf.data.Dataset:
    """One permutation of all images per epoch. The last batch of an epoch may be smaller.

    The run has seen `start` images of the first epoch before.
    """

    def batches(number: tf.Tensor) -> tf.data.Dataset:
        def indices(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            places, weights = _padded(first, count, batch)
            return _shuffled(places, count, seed, tf.fill([batch], number)), weights

        first = tf.where(number == epoch, tf.constant(start, tf.int64), 0)
        return tf.data.Dataset.range(first, count, batch).map(as_written(indices))

    return tf.data.Dataset.range(epoch, _FOREVER).flat_map(as_written(batches))


def _padded(first: tf.Tensor, count: int, batch: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The places of a batch from `first` on, up to `count`, and their weights."""
    places = first + tf.range(batch, dtype=tf.int64)
    found = tf.cast(tf.minimum(count - first, batch), tf.float32)
    return tf.where(places < count, places, 0), tf.where(places < count, batch / found, 0.0)


def _shuffled(places: tf.Tensor, count: int, seed: int, rounds: tf.Tensor) -> tf.Tensor:
    """The images at these places of the permutations of these rounds."""
    words = [tf.zeros_like(rounds), tf.fill(tf.shape(rounds), tf.constant(seed, tf.int64)), rounds]
    return tf.raw_ops.RandomIndexShuffle(  # tf.random.experimental.index_shuffle takes one round
        index=places, seed=tf.stack(words, 1), max_index=tf.constant(count - 1, tf.int64)
    )


def looked_up(batches: tf.data.Dataset, pixels: tf.Tensor, labels: tf.Tensor) -> tf.data.Dataset:
    """The images (b, 28, 28, 1) from 0 to 1 and labels of each batch of indices, with weights."""

    def images(indices: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        floats = tf.cast(tf.gather(pixels, indices)[..., tf.newaxis], tf.float32) / 255.0
        return floats, tf.cast(tf.gather(labels, indices), tf.int32), weights

    # If the dataset is known to be endless, the workers need not agree at each step whether anyone
    # has a batch left.
    no_end = tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY)
    return batches.map(as_written(images)).apply(no_end).prefetch(tf.data.AUTOTUNE)


def _part(
    batches: tf.data.Dataset, context: tf.distribute.InputContext, global_batch: int
) -> tf.data.Dataset:
    """The worker's own part of each global batch, in one piece per replica."""
    per_worker = global_batch // context.num_input_pipelines
    first = context.input_pipeline_id * per_worker
    per_replica = context.get_per_replica_batch_size(global_batch)

    def pieces(*batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
        own = (values[first : first + per_worker] for values in batch)
        return tuple(tf.reshape(values, [-1, per_replica]) for values in own)

    return batches.map(as_written(pieces)).unbatch()


def distributed(
    strategy: tf.distribute.Strategy,
    batches: Callable[[], tf.data.Dataset],
    data: tuple[Array, Array],
    global_batch: int,
    how: str = "from_function",
) -> Any:
    """Returns one distributed dataset for the whole run; it has no end.

    Only `batches` decides which images are in a global batch. So the training is the same on any
    number of workers and with either way of distributing (`from_function` or `distribute`).
    """
    with tf.device("/cpu:0"):  # even where there is a GPU, and as bytes: only batches are floats
        pixels, labels = map(tf.constant, data)
    if how == "distribute":
        return divided(strategy, looked_up(batches(), pixels, labels))
    return strategy.distribute_datasets_from_function(
        lambda context: looked_up(_part(batches(), context, global_batch), pixels, labels)
    )


def divided(strategy: tf.distribute.Strategy, dataset: tf.data.Dataset) -> Any:
    """Distributes a dataset of global batches.

    TensorFlow cuts each batch into one piece per replica. With the policy DATA, each worker takes
    its own pieces, so all replicas together have exactly the global batch. With OFF, each worker
    would take all pieces one after the other, and a step of two workers would train twice on the
    same half of a batch. FILE needs files. AUTO would find no files and use DATA.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return strategy.experimental_distribute_dataset(dataset.with_options(options))


def test_iterator(strategy: tf.distribute.Strategy, data: tuple[Array, Array]) -> tuple[Any, int]:
    """Returns (an iterator over the test set without end, the number of steps for one pass)."""
    count, replicas = len(data[0]), strategy.num_replicas_in_sync
    batch = min(_TEST_BATCH, -(-count // replicas)) * replicas

    def batches() -> tf.data.Dataset:
        rounds = tf.data.Dataset.range(0, count, batch).repeat()
        return rounds.map(as_written(lambda first: _padded(first, count, batch)))

    return iter(distributed(strategy, batches, data, batch)), -(-count // batch)
