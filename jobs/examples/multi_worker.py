"""Custom training with MultiWorkerMirroredStrategy: each worker that TF_CONFIG names runs this."""

import argparse
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras is Keras 2, with which all strategies work

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data-dir", help="a folder with mnist.npz; default: Keras downloads MNIST")
parser.add_argument("--checkpoint-dir", default="checkpoints", help="a folder that workers share")
parser.add_argument("--checkpoint-every", type=int, default=35, metavar="STEPS")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=70)
args = parser.parse_args()

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # one worker where TF_CONFIG is not set
resolver = strategy.cluster_resolver
task_type, task_id, cluster_spec = resolver.task_type, resolver.task_id, resolver.cluster_spec()
global_batch_size = 64 * strategy.num_replicas_in_sync

def load_data():
    if args.data_dir:
        mnist = np.load(os.path.join(args.data_dir, "mnist.npz"))
        return mnist["x_train"] / np.float32(255), mnist["y_train"]
    try:  # a file for each worker: they may download at the same time
        (x_train, y_train), _ = tf.keras.datasets.mnist.load_data(f"mnist-{task_id}.npz")
        return x_train / np.float32(255), y_train
    except Exception as error:
        print(f"MNIST is not available ({error}): training on ten shades of grey")
        labels = np.arange(10000) % 10
        return np.ones((10000, 28, 28), np.float32) * labels[:, None, None] / 10, labels

def dataset_fn(input_context):
    # All workers shuffle alike, skip what was trained before a restart, and take their share.
    dataset = tf.data.Dataset.from_tensor_slices(load_data()).shuffle(60000, seed=0).repeat()
    dataset = dataset.skip(int(epoch * args.steps_per_epoch + step_in_epoch) * global_batch_size)
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(input_context.get_per_replica_batch_size(global_batch_size))

def _is_chief(task_type, task_id, cluster_spec):
    return task_type in (None, "chief") or (task_id == 0 and "chief" not in cluster_spec.as_dict())

def write_filepath(filepath, task_type, task_id, cluster_spec):
    temp_dir = os.path.join(filepath, f"workertemp_{task_id}")
    return filepath if _is_chief(task_type, task_id, cluster_spec) else temp_dir

with strategy.scope():  # every replica gets a copy of the variables that are created here
    multi_worker_model = tf.keras.Sequential([
        tf.keras.layers.Reshape((28, 28, 1), input_shape=(28, 28)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.001)
    optimizer.build(multi_worker_model.trainable_variables)  # so that they can be restored
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = multi_worker_model(x, training=True)
            loss = tf.nn.compute_average_loss(  # the gradients of all replicas are summed
                loss_object(y, predictions), global_batch_size=global_batch_size)
        grads = tape.gradient(loss, multi_worker_model.trainable_variables)
        optimizer.apply_gradients(zip(grads, multi_worker_model.trainable_variables))
        train_accuracy.update_state(y, predictions)
        return loss
    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

epoch, step_in_epoch, total_loss = tf.Variable(0), tf.Variable(0), tf.Variable(0.0)
checkpoint = tf.train.Checkpoint(model=multi_worker_model, optimizer=optimizer, epoch=epoch,
    step_in_epoch=step_in_epoch, total_loss=total_loss, train_accuracy=train_accuracy)
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
