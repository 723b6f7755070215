"""Training with Model.fit and MultiWorkerMirroredStrategy: each task of TF_CONFIG runs this."""

import argparse
import json
import os
import sys
import uuid

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Model.fit of Keras 3 does not support this strategy

import numpy as np
import tensorflow as tf

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data-dir", help="a folder with mnist.npz; default: MNIST is downloaded")
parser.add_argument("--synthetic", action="store_true", help="grey squares in place of MNIST")
parser.add_argument("--checkpoint-dir", default="keras_checkpoints", help="a folder of all workers")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=70)
args = parser.parse_args()

task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {})  # none: one worker trains
task_type, task_id = task.get("type", "worker"), task.get("index", 0)
# Create the strategy first: it connects to the other workers. An evaluator needs none.
strategy = (tf.distribute.get_strategy() if task_type == "evaluator"
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

def scale(images, labels):
    return tf.cast(images, tf.float32) / 255, labels

def shuffled(number):  # of an endless order: each pass over the images is another permutation
    count = tf.constant(len(train[0]), tf.int64)
    seed = tf.stack([tf.constant(0, tf.int64), number // count])
    index = tf.random.experimental.index_shuffle(number % count, seed, count - 1)
    return scale(tf.gather(train[0], index), tf.gather(train[1], index))

def trained_epochs():
    """The epochs in the backup: after a failure, batches continue where they were."""
    backup = tf.train.latest_checkpoint(os.path.join(args.checkpoint_dir, "backup", "chief"))
    last = backup and tf.train.load_variable(backup, "ckpt_saved_epoch/.ATTRIBUTES/VARIABLE_VALUE")
    return 0 if last is None else int(last) + 1

def distributable(dataset):
    options = tf.data.Options()  # TensorFlow divides each batch among the workers
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.batch(global_batch_size).with_options(options)

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
    model.optimizer.build(model.trainable_variables)  # so that an evaluator can restore it
    return model

train, test = load_data()
first = trained_epochs() * args.steps_per_epoch * global_batch_size
train_dataset = distributable(tf.data.Dataset.range(first, tf.int64.max).map(shuffled))
test_dataset = distributable(tf.data.Dataset.from_tensor_slices(test).map(scale))
with strategy.scope():  # every replica gets a copy of the variables that are created here
    multi_worker_model = build_and_compile_cnn_model()

if task_type == "evaluator":  # evaluates each epoch's weights, up to those of the last epoch
    tf.keras.utils.SidecarEvaluator(
        multi_worker_model, test_dataset, args.checkpoint_dir, max_evaluations=args.epochs).start()
    sys.exit()
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
