"""Custom training with ParameterServerStrategy: each task that TF_CONFIG names runs this script."""

import argparse
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras is Keras 2: with Keras 3, updates are lost
os.environ["GRPC_FAIL_FAST"] = "use_caller"  # report failed workers and ps to the chief

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data-dir", help="a folder with mnist.npz; default: Keras downloads MNIST")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=140)
args = parser.parse_args()

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
task_type, cluster_spec = cluster_resolver.task_type, cluster_resolver.cluster_spec()
if task_type in ("worker", "ps"):  # they do what the chief asks, and never end by themselves
    server = tf.distribute.Server(
        cluster_spec, job_name=task_type, task_index=cluster_resolver.task_id, protocol="grpc")
    server.join()
if task_type != "chief":
    parser.error("TF_CONFIG must name a chief, workers and ps, and this task")

def load_data():
    if args.data_dir:
        mnist = np.load(os.path.join(args.data_dir, "mnist.npz"))
        return [(mnist[f"x_{part}"], mnist[f"y_{part}"]) for part in ("train", "test")]
    try:
        return tf.keras.datasets.mnist.load_data()
    except Exception as error:
        print(f"MNIST is not available ({error}): training on ten shades of grey")
        labels = np.arange(10000) % 10
        images = np.ones((10000, 28, 28), np.uint8) * np.uint8(25 * labels)[:, None, None]
        return (images, labels), (images[:1000], labels[:1000])

train, test = load_data()
# Large variables are divided among the parameter servers.
variable_partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
    min_shard_bytes=(256 << 10), max_shards=cluster_spec.num_tasks("ps"))
strategy = tf.distribute.ParameterServerStrategy(cluster_resolver, variable_partitioner)

def scale(images, labels):
    return tf.cast(images, tf.float32) / 255, labels

def dataset_fn(input_context):  # runs on each worker, which shuffles all images in its own order
    batch_size = input_context.get_per_replica_batch_size(64)
    dataset = tf.data.Dataset.from_tensor_slices(train).shuffle(60000).repeat()
    return dataset.batch(batch_size).map(scale).prefetch(2)  # sent as bytes, scaled by the worker

with strategy.scope():  # the parameter servers hold the variables that are created here
    model = tf.keras.Sequential([
        tf.keras.layers.Reshape((28, 28, 1), input_shape=(28, 28)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.001)
    optimizer.build(model.trainable_variables)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

@tf.function
def step_fn(iterator):
    def replica_fn(images, labels):
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = tf.nn.compute_average_loss(loss_object(labels, predictions))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        accuracy.update_state(labels, predictions)
        return loss
    images, labels = next(iterator)
    losses = strategy.run(replica_fn, args=(images, labels))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)

coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
per_worker_iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
for epoch in range(args.epochs):
    accuracy.reset_state()
    losses = []
    for _ in range(args.steps_per_epoch):  # the next idle worker runs the step
        losses.append(coordinator.schedule(step_fn, args=(per_worker_iterator,)))
    coordinator.join()  # wait until all steps of the epoch are done
    loss = np.mean(coordinator.fetch(losses))
    print(f"Finished epoch {epoch}, accuracy: {accuracy.result():.4f}, loss: {loss:.4f}")

eval_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
for images, labels in tf.data.Dataset.from_tensor_slices(test).batch(64).map(scale):
    eval_accuracy.update_state(labels, model(images, training=False))
print(f"Evaluation accuracy: {eval_accuracy.result():.4f}")
