"""ParameterServerStrategy: a data set for each worker, an optimizer, two parameter servers."""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
import trouble

trouble.here("begin")
import time

import tensorflow as tf

cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()


def serve():
    print(cluster.task_type, cluster.task_id, "is up", flush=True)
    if trouble.POINT == "trained" and trouble.WHAT.startswith(("signal", "other", "leave", "eat")):
        trouble.later("trained")
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id
    )
    while trouble.IS_MINE and trouble.POINT == "trained" and not os.path.exists("trained"):
        time.sleep(0.02)
    trouble.here("trained")
    server.join()


if cluster.task_type == "evaluator":
    time.sleep(3)
    trouble.here("evaluates")
    raise SystemExit(0)
if cluster.task_type != "chief":
    serve()

strategy = tf.distribute.ParameterServerStrategy(
    cluster,
    variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    layer = tf.keras.layers.Dense(1)
    layer.build([None, 6])
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(layer.trainable_variables)


def samples():
    points = tf.random.stateless_normal([60, 6], seed=(3, 4))
    if trouble.WHAT == "mapped":
        points = tf.where(points > 2.0, float("nan"), points)
        points = tf.debugging.check_numerics(points, "the input")
    return tf.data.Dataset.from_tensor_slices(points).repeat().batch(10)


per_worker = iter(coordinator.create_per_worker_dataset(samples))


@tf.function
def train(iterator):
    def replica(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((layer(batch) - tf.reduce_sum(batch, 1, keepdims=True)) ** 2)
        variables = layer.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    return strategy.run(replica, args=(next(iterator),))


for step in range(600):
    trouble.here(step)
    value = coordinator.schedule(train, args=(per_worker,))
    if step % 5 == 4:
        coordinator.join()
        print("step", step, "loss", float(value.fetch()), flush=True)
    if step == 24:
        with open("trained", "w"):
            pass
print("trained", flush=True)
