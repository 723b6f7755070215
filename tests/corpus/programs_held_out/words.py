"""MultiWorkerMirroredStrategy without Keras: an embedding of words, a distributed data set."""

import os

import mishap

mishap.point("top")
import tensorflow as tf

options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=None)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
mishap.point("strategy")
TEXTS = ["the cat sat on the mat", "a dog ate my homework", "it rains in spain"] * 20
words = sorted({word for text in TEXTS for word in text.split()})
table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(words, tf.range(len(words), dtype=tf.int64)), -1
)
whole = tf.data.Dataset.from_tensor_slices(TEXTS).map(tf.strings.length).repeat().batch(8)
data = iter(strategy.experimental_distribute_dataset(whole))
with strategy.scope():
    scale = tf.Variable(1.0)
    bias = tf.Variable(0.0)


@tf.function
def update(batch):
    def one(lengths):
        error = tf.cast(lengths, tf.float32) * scale - 20.0 + bias
        context = tf.distribute.get_replica_context()
        change = context.all_reduce("mean", [tf.reduce_mean(error), tf.reduce_mean(error * error)])
        bias.assign_sub(0.1 * change[0])
        return change[1]

    return strategy.reduce("mean", strategy.run(one, args=(batch,)), axis=None)


def train():
    for number in range(9):
        mishap.point(number)
        print(f"[{number}] error {float(update(next(data))):.3f}", flush=True)


train()
mishap.point("bottom")
os._exit(0)
