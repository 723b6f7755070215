"""Custom training with MultiWorkerMirroredStrategy: each task that TF_CONFIG names runs this."""

import argparse
import json
import os
import sys
import uuid

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras is Keras 2, with which all strategies work

import numpy as np
import tensorflow as tf

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data-dir", help="a folder with mnist.npz; default: MNIST is downloaded")
parser.add_argument("--synthetic", action="store_true", help="grey squares in place of MNIST")
parser.add_argument("--checkpoint-dir", default="checkpoints", help="a folder that workers share")
parser.add_argument("--checkpoint-every", type=int, default=35, metavar="STEPS")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=70)
args = parser.parse_args()

config = json.loads(os.environ.get("TF_CONFIG") or "{}")  # none: one worker trains alone
cluster_spec, task = config.get("cluster", {}), config.get("task", {})
task_type, task_id = task.get("type", "worker"), task.get("index", 0)
is_evaluator = task_type == "evaluator"  # it is in nobody's cluster, and needs no strategy
strategy = (tf.distribute.get_strategy() if is_evaluator  # the others connect to each other
            else tf.distribute.MultiWorkerMirroredStrategy())
global_batch_size = 64 * strategy.num_replicas_in_sync
tf.keras.utils.set_random_seed(0)  # every run begins with the same weights

def load_data():
    if args.synthetic:
        labels = np.arange(10000) % 10
        images = np.ones((10000, 28, 28), np.uint8) * np.uint8(25 * labels)[:, None, None]
        return (images, labels), (images[:1000], labels[:1000])
    path = os.path.expanduser(f"~/.keras/datasets/mnist-{task_type}-{task_id}.npz")
    path = os.path.join(args.data_dir, "mnist.npz") if args.data_dir else path
    try:
        if not args.data_dir and not os.path.exists(path):  # it gets its name when it is complete
            os.replace(tf.keras.utils.get_file(f"{uuid.uuid4()}.npz", URL), path)
        with np.load(path) as mnist:
            return [(mnist[f"x_{part}"], mnist[f"y_{part}"]) for part in ("train", "test")]
    except Exception as error:
        sys.exit(f"MNIST is not available ({error}). Give a folder with mnist.npz: --data-dir DIR; "
                 "or try the script without MNIST: --synthetic")

def dataset_fn(input_context):
    def shuffled(number):  # of an endless order: each pass over the images is another permutation
        count = tf.constant(len(train[0]), tf.int64)
        seed = tf.stack([tf.constant(0, tf.int64), number // count])
        index = tf.random.experimental.index_shuffle(number % count, seed, count - 1)
        return scale(tf.gather(train[0], index), tf.gather(train[1], index))
    # All workers have the same order, begin after what was trained before, and take their share.
    first = int(epoch * args.steps_per_epoch + step_in_epoch) * global_batch_size
    dataset = tf.data.Dataset.range(first, tf.int64.max)
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.map(shuffled).batch(input_context.get_per_replica_batch_size(global_batch_size))

def scale(images, labels):
    return tf.cast(images, tf.float32) / 255, labels

def _is_chief(task_type, task_id, cluster_spec):
    return task_type == "chief" or (
        task_type == "worker" and task_id == 0 and "chief" not in cluster_spec)

def write_filepath(filepath, task_type, task_id, cluster_spec):
    temp_dir = os.path.join(filepath, f"workertemp_{task_type}_{task_id}")
    return filepath if _is_chief(task_type, task_id, cluster_spec) else temp_dir

def build_cnn_model():
    inputs = tf.keras.Input((28, 28))
    x = tf.keras.layers.Reshape((28, 28, 1))(inputs)
    x = tf.keras.layers.Conv2D(32, 3, activation="relu")(x)
    x = tf.keras.layers.Flatten()(x)
    x = tf.keras.layers.Dense(128, activation="relu", kernel_regularizer="l2")(x)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(10)(x))

with strategy.scope():  # every replica gets a copy of the variables that are created here
    multi_worker_model = build_cnn_model()
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.001)
    optimizer.build(multi_worker_model.trainable_variables)  # so that they can be restored
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
epoch, step_in_epoch, total_loss = tf.Variable(0), tf.Variable(0), tf.Variable(0.0)
checkpoint = tf.train.Checkpoint(model=multi_worker_model, optimizer=optimizer, epoch=epoch,
    step_in_epoch=step_in_epoch, total_loss=total_loss, train_accuracy=train_accuracy)
train, test = load_data()

def evaluate():  # a task `evaluator` follows the checkpoints of the others
    for path in tf.train.checkpoints_iterator(args.checkpoint_dir, min_interval_secs=1):
        try:
            checkpoint.restore(path).expect_partial()
        except tf.errors.OpError:
            continue  # a newer checkpoint has replaced it
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        for images, labels in tf.data.Dataset.from_tensor_slices(test).batch(500).map(scale):
            accuracy.update_state(labels, multi_worker_model(images, training=False))
        print(f"Evaluated {path}: {int(epoch)} epochs, accuracy: {accuracy.result():.4f}")
        if int(epoch) >= args.epochs:
            sys.exit()

if is_evaluator:
    evaluate()

@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = multi_worker_model(x, training=True)
            loss = tf.nn.compute_average_loss(  # the gradients of all replicas are summed
                loss_object(y, predictions), global_batch_size=global_batch_size)
            loss += tf.nn.scale_regularization_loss(tf.add_n(multi_worker_model.losses))
        grads = tape.gradient(loss, multi_worker_model.trainable_variables)
        optimizer.apply_gradients(zip(grads, multi_worker_model.trainable_variables))
        train_accuracy.update_state(y, predictions)
        return loss
    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

write_checkpoint_dir = write_filepath(args.checkpoint_dir, task_type, task_id, cluster_spec)
checkpoint_manager = tf.train.CheckpointManager(checkpoint, write_checkpoint_dir, max_to_keep=1)
if latest_checkpoint := tf.train.latest_checkpoint(args.checkpoint_dir):
    checkpoint.restore(latest_checkpoint)
    print(f"Resumed from {latest_checkpoint}: {int(epoch)} epochs, {int(step_in_epoch)} steps")
iterator = iter(strategy.distribute_datasets_from_function(dataset_fn))  # one for all epochs
while int(epoch) < args.epochs:
    total_loss.assign_add(train_step(iterator))
    step_in_epoch.assign_add(1)
    if int(step_in_epoch) >= args.steps_per_epoch:
        print(f"Epoch: {int(epoch)}, accuracy: {train_accuracy.result():.4f}, "
              f"train_loss: {total_loss / args.steps_per_epoch:.4f}")
        epoch.assign_add(1)
        step_in_epoch.assign(0)
        total_loss.assign(0)
        train_accuracy.reset_state()
    if int(step_in_epoch) % args.checkpoint_every == 0:  # true at the end of each epoch, too
        checkpoint_manager.save()  # all workers save; those that are not the chief clean up
        if not _is_chief(task_type, task_id, cluster_spec):
            tf.io.gfile.rmtree(write_checkpoint_dir)
