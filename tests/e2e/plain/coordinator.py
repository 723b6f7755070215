"""Parameter server training with a custom loop, like TensorFlow's tutorial; no launcher."""

import os

import tensorflow as tf

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
os.environ["GRPC_FAIL_FAST"] = "use_caller"

if cluster_resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        cluster_resolver.cluster_spec(),
        job_name=cluster_resolver.task_type,
        task_index=cluster_resolver.task_id,
        protocol=cluster_resolver.rpc_layer or "grpc",
        start=True,
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(
    cluster_resolver,
    variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))
    steps = tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


def dataset_fn(_):
    x = tf.random.stateless_uniform([64, 4], seed=[1, 2])
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            prediction = tf.matmul(x, tf.convert_to_tensor(weights))
            loss = tf.reduce_mean((prediction - y) ** 2)
        for part, gradient in zip(
            weights.variables, tape.gradient(loss, weights.variables), strict=True
        ):
            part.assign_sub(0.1 * gradient)
        steps.assign_add(1)
        return loss

    losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


per_worker_dataset = coordinator.create_per_worker_dataset(per_worker_dataset_fn)
per_worker_iterator = iter(per_worker_dataset)
first = coordinator.schedule(train_step, args=(per_worker_iterator,)).fetch()
for _ in range(30):
    last = coordinator.schedule(train_step, args=(per_worker_iterator,))
coordinator.join()
assert last.fetch() < first
print("coordinator: steps", int(steps.numpy()), "shards", len(weights.variables))
