"""The order of the images in a run: batches of indices, the same on every worker.

A batch is (indices (b,), weights (b,)), where b is the size of the global batch. The mean loss over
its b places multiplies each image's loss by its weight. The weight is 1 in a full batch. A smaller
batch of k < b images is padded with images of weight 0, and its own images get the weight b / k. So
the loss of a step is the mean over its images, however many there are and wherever the padding is,
and every replica always has images.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_FOREVER = np.iinfo(np.int64).max


def endless(count: int, *, seed: int, start: int, global_batch: int) -> tf.data.Dataset:
    """Full batches only, without end: permutations of all images, one after the other.

    Args:
        count: how many images there are.
        seed: of the permutations.
        start: how many images the run has seen before.
        global_batch: images in a step over all replicas.
    """
    first_round, offset = divmod(start, count)
    order = tf.data.Dataset.range(first_round, _FOREVER).flat_map(
        lambda time_round: _permutation(count, seed, time_round)
    )
    batches = order.skip(offset).batch(global_batch, drop_remainder=True)
    return batches.map(lambda indices: (indices, tf.ones([global_batch])))


def passes(count: int, *, seed: int, epoch: int, start: int, global_batch: int) -> tf.data.Dataset:
    """One permutation of all images per epoch. The last batch of an epoch may be smaller.

    Args:
        count: how many images there are.
        seed: of the permutations.
        epoch: the first epoch, counted from 0.
        start: how many images of that epoch the run has seen before.
        global_batch: images in a step over all replicas.
    """

    def batches(at: tf.Tensor) -> tf.data.Dataset:
        seen = tf.where(at == epoch, tf.constant(start, tf.int64), tf.constant(0, tf.int64))
        return _permutation(count, seed, at).skip(seen).batch(global_batch)

    return (
        tf.data.Dataset.range(epoch, _FOREVER)
        .flat_map(batches)
        .map(lambda indices: padded(indices, global_batch))
    )


def padded(indices: tf.Tensor, global_batch: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Pads a batch to the size of the global batch; returns its indices and weights."""
    found = tf.size(indices)
    missing = global_batch - found
    weight = tf.cast(global_batch, tf.float32) / tf.cast(found, tf.float32)
    weights = tf.concat([tf.fill([found], weight), tf.zeros([missing])], 0)
    indices = tf.concat([indices, tf.zeros([missing], indices.dtype)], 0)
    return tf.ensure_shape(indices, [global_batch]), tf.ensure_shape(weights, [global_batch])


def _permutation(count: int, seed: int, time_round: tf.Tensor) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(
        tf.random.experimental.stateless_shuffle(
            tf.range(count, dtype=tf.int64),
            seed=tf.stack([tf.constant(seed, tf.int64), time_round]),
        )
    )
