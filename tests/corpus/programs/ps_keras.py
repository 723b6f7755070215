"""Keras' fit under ParameterServerStrategy."""

import faults
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    ).join()
partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
strategy = tf.distribute.ParameterServerStrategy(
    resolver, variable_partitioner=partitioner if faults.WHAT == "sharded" else None
)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input(shape=(8,)), tf.keras.layers.Dense(4)])
    model.compile(loss="mse", optimizer="sgd")


def dataset_fn(_):
    x = tf.random.stateless_uniform([64, 8], seed=[1, 2])
    return tf.data.Dataset.from_tensor_slices((x, x[:, :4])).repeat().batch(8)


if faults.WHAT == "creator":
    data = tf.keras.utils.experimental.DatasetCreator(lambda context: dataset_fn(context))
else:
    data = dataset_fn(None)
model.fit(data, epochs=1, steps_per_epoch=5, verbose=2)
