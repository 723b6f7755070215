"""Training with Model.fit and MultiWorkerMirroredStrategy: each worker of TF_CONFIG runs this."""

import argparse
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Model.fit of Keras 3 does not support this strategy

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data-dir", help="a folder with mnist.npz; default: Keras downloads MNIST")
parser.add_argument("--checkpoint-dir", default="checkpoints", help="a folder that workers share")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=70)
args = parser.parse_args()

# Create the strategy first: it connects to the other workers. Without TF_CONFIG, one worker trains.
strategy = tf.distribute.MultiWorkerMirroredStrategy()
task_id = strategy.cluster_resolver.task_id
global_batch_size = 64 * strategy.num_replicas_in_sync

def load_data():
    if args.data_dir:
        mnist = np.load(os.path.join(args.data_dir, "mnist.npz"))
        return [(mnist[f"x_{part}"], mnist[f"y_{part}"]) for part in ("train", "test")]
    try:  # a file for each worker: they may download at the same time
        return tf.keras.datasets.mnist.load_data(f"mnist-{task_id}.npz")
    except Exception as error:
        print(f"MNIST is not available ({error}): training on ten shades of grey")
        labels = np.arange(10000) % 10
        images = np.ones((10000, 28, 28), np.uint8) * np.uint8(25 * labels)[:, None, None]
        return (images, labels), (images[:1000], labels[:1000])

def mnist_dataset(images, labels):
    dataset = tf.data.Dataset.from_tensor_slices((images / np.float32(255), labels))
    options = tf.data.Options()  # TensorFlow divides each batch among the workers
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)

def build_and_compile_cnn_model():
    model = tf.keras.Sequential([
        tf.keras.layers.Reshape((28, 28, 1), input_shape=(28, 28)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dense(10)])
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.01),
        metrics=["accuracy"])
    return model

train, test = load_data()
train_dataset = mnist_dataset(*train).shuffle(60000, seed=0).repeat().batch(global_batch_size)
test_dataset = mnist_dataset(*test).batch(global_batch_size)
with strategy.scope():  # every replica gets a copy of the variables that are created here
    multi_worker_model = build_and_compile_cnn_model()

callbacks = [
    # Saves the weights after each epoch. Keras deletes what workers other than the chief save.
    tf.keras.callbacks.ModelCheckpoint(
        os.path.join(args.checkpoint_dir, "weights-{epoch}"), save_weights_only=True),
    # After a failure, training continues with the epoch that failed.
    tf.keras.callbacks.BackupAndRestore(os.path.join(args.checkpoint_dir, "backup")),
]
multi_worker_model.fit(
    train_dataset, epochs=args.epochs, steps_per_epoch=args.steps_per_epoch,
    validation_data=test_dataset, callbacks=callbacks, verbose=2)
