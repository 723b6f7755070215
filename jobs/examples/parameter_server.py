"""Custom training with ParameterServerStrategy: each task that TF_CONFIG names runs this script."""

import argparse
import os
import sys
import uuid

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras is Keras 2: with Keras 3, updates are lost
os.environ["GRPC_FAIL_FAST"] = "use_caller"  # report failed workers and ps to the chief

import numpy as np
import tensorflow as tf

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data-dir", help="a folder with mnist.npz; default: MNIST is downloaded")
parser.add_argument("--synthetic", action="store_true", help="grey squares in place of MNIST")
parser.add_argument("--checkpoint-dir", default="ps_checkpoints", help="a folder of the chief")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=140)
args = parser.parse_args()

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
task_type, cluster_spec = cluster_resolver.task_type, cluster_resolver.cluster_spec()
if task_type in ("worker", "ps"):  # they do what the chief asks, and never end by themselves
    server = tf.distribute.Server(
        cluster_spec, job_name=task_type, task_index=cluster_resolver.task_id, protocol="grpc")
    server.join()
if task_type not in ("chief", "evaluator"):
    parser.error("TF_CONFIG must name a chief, workers and ps, and this task")

def load_data():
    if args.synthetic:
        labels = np.arange(10000) % 10
        images = np.ones((10000, 28, 28), np.uint8) * np.uint8(25 * labels)[:, None, None]
        return (images, labels), (images[:1000], labels[:1000])
    path = os.path.expanduser(f"~/.keras/datasets/mnist-{task_type}.npz")
    path = os.path.join(args.data_dir, "mnist.npz") if args.data_dir else path
    try:
        if not args.data_dir and not os.path.exists(path):  # it gets its name when it is complete
            os.replace(tf.keras.utils.get_file(f"{uuid.uuid4()}.npz", URL), path)
        with np.load(path) as mnist:
            return [(mnist[f"x_{part}"], mnist[f"y_{part}"]) for part in ("train", "test")]
    except Exception as error:
        sys.exit(f"MNIST is not available ({error}). Give a folder with mnist.npz: --data-dir DIR; "
                 "or try the script without MNIST: --synthetic")

class CNN(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.steps = [
            tf.keras.layers.Reshape((28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10)]
        self.build((None, 28, 28))  # creates the variables, so that they can be restored

    def call(self, images):
        for step in self.steps:
            images = step(images)
        return images

def scale(images, labels):
    return tf.cast(images, tf.float32) / 255, labels

def evaluate(model):
    eval_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    for images, labels in tf.data.Dataset.from_tensor_slices(test).batch(64).map(scale):
        eval_accuracy.update_state(labels, model(images, training=False))
    return f"Evaluation accuracy: {eval_accuracy.result():.4f}"

train, test = load_data()
if task_type == "evaluator":  # it follows the checkpoints of the chief, without a strategy
    model, epoch = CNN(), tf.Variable(0)
    for path in tf.train.checkpoints_iterator(args.checkpoint_dir, min_interval_secs=1):
        tf.train.Checkpoint(model=model, epoch=epoch).restore(path).expect_partial()
        print(f"Evaluated {path}: {int(epoch)} epochs, {evaluate(model)}")
        if int(epoch) >= args.epochs:
            sys.exit()

# Large variables are divided among the parameter servers.
variable_partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
    min_shard_bytes=(256 << 10), max_shards=cluster_spec.num_tasks("ps"))
strategy = tf.distribute.ParameterServerStrategy(cluster_resolver, variable_partitioner)

def dataset_fn(input_context):  # runs on each worker, which shuffles all images in its own order
    batch_size = input_context.get_per_replica_batch_size(64)
    dataset = tf.data.Dataset.from_tensor_slices(train).shuffle(60000).repeat()
    return dataset.batch(batch_size).map(scale).prefetch(2)  # sent as bytes, scaled by the worker

with strategy.scope():  # the parameter servers hold the variables that are created here
    model = CNN()
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.001)
    optimizer.build(model.trainable_variables)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
epoch = tf.Variable(0)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, args.checkpoint_dir, max_to_keep=3)
if manager.restore_or_initialize():
    print(f"Resumed from {manager.latest_checkpoint}: {int(epoch)} epochs")

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
while int(epoch) < args.epochs:
    accuracy.reset_state()
    losses = []
    for _ in range(args.steps_per_epoch):  # the next idle worker runs the step
        losses.append(coordinator.schedule(step_fn, args=(per_worker_iterator,)))
    coordinator.join()  # wait until all steps of the epoch are done
    loss = np.mean(coordinator.fetch(losses))
    print(f"Finished epoch {int(epoch)}, accuracy: {accuracy.result():.4f}, loss: {loss:.4f}")
    epoch.assign_add(1)
    manager.save()  # the chief saves alone: it reads the variables from the ps
print(evaluate(model))
