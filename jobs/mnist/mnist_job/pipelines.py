"""The tf.data pipelines: which images are in a batch, and which part of it a worker makes.

A global batch is (indices (b,), weights (b,)), the same on every worker. The weight is 1 in a full
batch. A smaller batch of k < b images is padded with images of weight 0, so that every replica
always has images. Its own images get the weight b / k: the loss of a step is the mean over its
images. With `by_global`, they get 1: the sum is divided by b, as in the tutorial.
"""

from typing import Any

import numpy as np
import tensorflow as tf

_FOREVER = np.iinfo(np.int64).max

as_written = tf.autograph.experimental.do_not_convert
"""For functions that have no loop or condition over tensors: AutoGraph would convert them all the
same, which takes a second before the first step."""


def batches(
    count: int, batch: int, seed: int, start: Any = 0, passes: bool = False, by_global: bool = False
) -> Any:
    """Batches without end, from permutations of `count` images: one after the other.

    The run has seen `start` images before. Without `passes`, all batches are full: one can have
    images of two permutations. With `passes`, the last batch of each permutation may be smaller.
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


def distributed(strategy: Any, batches: Any, data: Any, size: int, how: str) -> Any:
    """Returns one distributed dataset of images and labels for the whole run; it has no end.

    Only `batches`, each of `size` images, decides which images are in a global batch: the training
    is the same on any number of workers, and with either `how`.
    """
    with tf.device("/cpu:0"):  # even where there is a GPU, and as bytes: only batches are floats
        arrays = [*map(tf.constant, data)]
    if how == "distribute":
        return divided(strategy, looked_up(batches, *arrays))

    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
        """The worker's own part of each global batch, in one piece per replica."""
        workers, own = context.num_input_pipelines, context.input_pipeline_id
        per_replica = context.get_per_replica_batch_size(size)

        def pieces(*batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return tuple(tf.reshape(values, [workers, -1, per_replica])[own] for values in batch)

        return looked_up(batches.map(as_written(pieces)).unbatch(), *arrays)

    return strategy.distribute_datasets_from_function(dataset_fn)


def divided(strategy: Any, dataset: tf.data.Dataset) -> Any:
    """Distributes a dataset of global batches: TensorFlow cuts each into one piece per replica.

    With the policy DATA, each worker takes its own pieces. With OFF, each would take all pieces one
    after the other: a step of two workers would train twice on the same half of a batch.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return strategy.experimental_distribute_dataset(dataset.with_options(options))
