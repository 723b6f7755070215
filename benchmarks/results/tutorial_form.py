"""MNIST as TensorFlow's tutorials on custom training loops write it, for one task.

Nothing of distrun or of its job: tf.keras as it was, data in memory, a new iterator over the
distributed data set at each epoch, one call of a tf.function for each step. Started by hand,
once for each task of TF_CONFIG. Prints a line an epoch, and one after the first step.
"""

import argparse
import os
import sys
import time

started = time.monotonic()
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("strategy")
parser.add_argument("data", help="mnist.npz")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=70)
parser.add_argument("--batch-size", type=int, default=64, help="for each worker")
parser.add_argument("--checkpoint-dir")
options = parser.parse_args()

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if options.strategy == "parameter_server" and resolver.task_type in ("worker", "ps"):
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    ).join()


def logical_cpus(count):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    )
    return [f"CPU:{index}" for index in range(count)]


if options.strategy == "default":
    strategy = tf.distribute.get_strategy()
elif options.strategy == "one_device":
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
elif options.strategy == "mirrored":
    strategy = tf.distribute.MirroredStrategy(logical_cpus(2))
elif options.strategy == "central_storage":
    strategy = tf.distribute.experimental.CentralStorageStrategy(logical_cpus(2))
elif options.strategy == "multi_worker_mirrored":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
elif options.strategy == "parameter_server":
    strategy = tf.distribute.ParameterServerStrategy(resolver)
else:
    sys.exit(f"no strategy {options.strategy}")

workers = len(resolver.cluster_spec().as_dict().get("worker", [])) if resolver.task_type else 1
asynchronous = options.strategy == "parameter_server"
global_batch_size = options.batch_size * (1 if asynchronous else workers)


def mnist_dataset(batch_size):
    with np.load(options.data) as file:
        x_train, y_train = file["x_train"], file["y_train"]
    x_train = x_train[..., np.newaxis] / np.float32(255)
    y_train = y_train.astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(60000).batch(batch_size)


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = mnist_dataset(batch_size).repeat()
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.prefetch(2)


with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.001)
    optimizer.build(model.trainable_variables)
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")

epoch = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(model=model, epoch=epoch)
manager = None
if options.checkpoint_dir:
    chief = resolver.task_id in (None, 0)
    folder = (
        options.checkpoint_dir if chief else f"{options.checkpoint_dir}/worker{resolver.task_id}"
    )
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            per_batch_loss = tf.keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction=tf.keras.losses.Reduction.NONE
            )(y, predictions)
            loss = tf.nn.compute_average_loss(per_batch_loss, global_batch_size=global_batch_size)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        train_accuracy.update_state(y, predictions)
        return loss

    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


def say_first_step():
    print(f"first step after {time.monotonic() - started:.2f} s", flush=True)


def epochs_of_all_replicas():
    dataset = strategy.distribute_datasets_from_function(dataset_fn)
    for number in range(options.epochs):
        iterator = iter(dataset)
        total_loss = 0.0
        for step in range(options.steps_per_epoch):
            total_loss += train_step(iterator)
            if number == step == 0:
                say_first_step()
        yield total_loss / options.steps_per_epoch


def epochs_of_a_coordinator():
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def per_worker_dataset_fn():
        return strategy.distribute_datasets_from_function(dataset_fn)

    per_worker_dataset = coordinator.create_per_worker_dataset(per_worker_dataset_fn)
    for number in range(options.epochs):
        iterator = iter(per_worker_dataset)
        losses = [
            coordinator.schedule(train_step, args=(iterator,))
            for _ in range(options.steps_per_epoch)
        ]
        if number == 0:
            losses[0].fetch()
            say_first_step()
        coordinator.join()
        yield sum(loss.fetch() for loss in losses) / options.steps_per_epoch


began = time.monotonic()
for mean_loss in epochs_of_a_coordinator() if asynchronous else epochs_of_all_replicas():
    accuracy = float(train_accuracy.result())
    took = time.monotonic() - began
    images = options.steps_per_epoch * global_batch_size / took
    print(
        f"epoch {int(epoch) + 1}/{options.epochs}  accuracy {accuracy:.3f}  "
        f"loss {float(mean_loss):.3f}  images/s {images:.0f}  seconds {took:.1f}",
        flush=True,
    )
    train_accuracy.reset_states()
    epoch.assign_add(1)
    if manager:
        manager.save()
    began = time.monotonic()
