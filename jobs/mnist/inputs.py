"""Distributed tf.data pipelines of images: each replica gets its part of every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

import sampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from digits import Bytes, Digits

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


def training_dataset(
    strategy: tf.distribute.Strategy,
    digits: Digits,
    batches: Callable[[], tf.data.Dataset],
    *,
    global_batch: int,
    how: str,
) -> Any:
    """Returns one distributed dataset for the whole run; it has no end.

    Its elements are (images (b, 28, 28, 1) from 0 to 1, labels (b,), weights (b,)). Only `batches`
    decides which images are in a global batch. So the training is the same on any number of workers
    and with either way of distributing, and a resumed run continues where the stopped one was.

    Args:
        strategy: distributes them.
        digits: the training half is used.
        batches: makes the batches of `sampler`; the same on every worker.
        global_batch: images in a step over all replicas.
        how: `from_function` or `distribute`.
    """
    if how == "distribute":
        pixels, labels = _constants(digits.train_images, digits.train_labels)
        return distribute(strategy, looked_up(batches(), pixels, labels))

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        pixels, labels = _constants(digits.train_images, digits.train_labels)
        return looked_up(part(batches(), context, global_batch), pixels, labels)

    return strategy.distribute_datasets_from_function(pipeline)


def distribute(strategy: tf.distribute.Strategy, dataset: tf.data.Dataset) -> Any:
    """Distributes a dataset of global batches.

    TensorFlow cuts each batch into one piece per replica. With the policy DATA, each worker takes
    its own pieces, so all replicas together have exactly the global batch. With OFF, each worker
    would take all pieces one after the other, and a step of two workers would train twice on the
    same half of a batch. FILE needs files. AUTO would find no files and use DATA.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return strategy.experimental_distribute_dataset(dataset.with_options(options))


def looked_up(batches: tf.data.Dataset, pixels: tf.Tensor, labels: tf.Tensor) -> tf.data.Dataset:
    """The images and labels of each batch of indices, with their weights."""
    return (
        batches.map(
            lambda at, weights: (_floats(tf.gather(pixels, at)), tf.gather(labels, at), weights)
        )
        # If the dataset is known to be endless, the workers need not agree at each step whether
        # anyone has a batch left.
        .apply(tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY))
        .prefetch(tf.data.AUTOTUNE)
    )


def test_iterator(strategy: tf.distribute.Strategy, digits: Digits) -> tuple[Any, int]:
    """Returns (an iterator over the test set, the number of steps for one pass).

    Its elements are (images, labels, weights). The same iterator serves every evaluation. The last
    step is padded with images of weight 0.
    """
    count = len(digits.test_images)
    replicas = strategy.num_replicas_in_sync
    per_replica = min(_TEST_BATCH, -(-count // replicas))
    global_batch = per_replica * replicas
    steps = -(-count // global_batch)

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        pixels, labels = _constants(digits.test_images, digits.test_labels)

        rounds = tf.data.Dataset.range(count).batch(global_batch).repeat()
        batches = rounds.map(lambda at: sampler.padded(at, global_batch))
        return looked_up(part(batches, context, global_batch), pixels, labels)

    return iter(strategy.distribute_datasets_from_function(pipeline)), steps


def part(
    batches: tf.data.Dataset, context: tf.distribute.InputContext, global_batch: int
) -> tf.data.Dataset:
    """The worker's own part of each global batch, in one piece per replica."""
    per_worker = global_batch // context.num_input_pipelines
    first = context.input_pipeline_id * per_worker
    per_replica = context.get_per_replica_batch_size(global_batch)

    def pieces(*batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(
            tf.reshape(values[first : first + per_worker], [-1, per_replica]) for values in batch
        )

    return batches.map(pieces).unbatch()


def _constants(images: Bytes, labels: Bytes) -> tuple[tf.Tensor, tf.Tensor]:
    # On the CPU even where there is a GPU, and as bytes: only batches become floats.
    with tf.device("/cpu:0"):
        return tf.constant(images), tf.constant(labels.astype(np.int32))


def _floats(images: tf.Tensor) -> tf.Tensor:
    return tf.cast(images[..., tf.newaxis], tf.float32) / 255.0
