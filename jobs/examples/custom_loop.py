"""Custom training with MirroredStrategy: one replica on each GPU, or one replica on the CPU."""

import argparse
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
parser.add_argument("--checkpoint-dir", default="training_checkpoints")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=70)
args = parser.parse_args()

def load_data():
    if args.synthetic:
        labels = np.arange(10000) % 10
        images = np.ones((10000, 28, 28), np.uint8) * np.uint8(25 * labels)[:, None, None]
        return (images, labels), (images[:1000], labels[:1000])
    path = os.path.expanduser("~/.keras/datasets/mnist.npz")
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
    return tf.cast(images, tf.float32)[..., None] / 255, labels

def shuffled(number):  # of an endless order: each pass over the images is another permutation
    count = tf.constant(len(train[0]), tf.int64)
    seed = tf.stack([tf.constant(0, tf.int64), number // count])
    index = tf.random.experimental.index_shuffle(number % count, seed, count - 1)
    return tf.gather(train[0], index), tf.gather(train[1], index)

def create_model():
    return tf.keras.Sequential([
        tf.keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(64, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10)])

tf.keras.utils.set_random_seed(0)  # every run begins with the same weights
train, test = load_data()
strategy = tf.distribute.MirroredStrategy()
print("Number of devices:", strategy.num_replicas_in_sync)
GLOBAL_BATCH_SIZE = 64 * strategy.num_replicas_in_sync
with strategy.scope():  # every replica gets a copy of the variables that are created here
    model = create_model()
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)  # so that they can be restored
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    test_loss = tf.keras.metrics.Mean()
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
epoch = tf.Variable(0)
checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, args.checkpoint_dir, max_to_keep=3)
if manager.restore_or_initialize():
    print(f"Resumed from {manager.latest_checkpoint}: {int(epoch)} epochs")
first = int(epoch) * args.steps_per_epoch * GLOBAL_BATCH_SIZE  # what was trained is not read again
train_dataset = tf.data.Dataset.range(first, tf.int64.max).map(shuffled).batch(GLOBAL_BATCH_SIZE)
test_dataset = tf.data.Dataset.from_tensor_slices(test).batch(GLOBAL_BATCH_SIZE).map(scale)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset.map(scale))
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)  # one part a replica

def compute_loss(labels, predictions):  # the replicas' gradients are summed: divide by all images
    per_example_loss = loss_object(labels, predictions)
    return tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)

def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_accuracy.update_state(labels, predictions)
    return loss

def test_step(inputs):
    images, labels = inputs
    predictions = model(images, training=False)
    test_loss.update_state(loss_object(labels, predictions))
    test_accuracy.update_state(labels, predictions)

@tf.function
def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

@tf.function
def distributed_test_step(dataset_inputs):
    strategy.run(test_step, args=(dataset_inputs,))

train_iter = iter(train_dist_dataset)  # docs/strategies.md shows two other ways to iterate
while int(epoch) < args.epochs:
    total_loss = 0.0
    for _ in range(args.steps_per_epoch):
        total_loss += distributed_train_step(next(train_iter))
    for x in test_dist_dataset:
        distributed_test_step(x)
    epoch.assign_add(1)
    print(f"Epoch {int(epoch)}, Loss: {total_loss / args.steps_per_epoch:.4f}, "
          f"Accuracy: {train_accuracy.result():.4f}, Test Loss: {test_loss.result():.4f}, "
          f"Test Accuracy: {test_accuracy.result():.4f}")
    for metric in (test_loss, train_accuracy, test_accuracy):
        metric.reset_state()
    manager.save()

restored, accuracy = create_model(), tf.keras.metrics.SparseCategoricalAccuracy()
tf.train.Checkpoint(model=restored).restore(manager.latest_checkpoint).expect_partial()
for images, labels in test_dataset:
    accuracy.update_state(labels, restored(images, training=False))
print(f"Accuracy after restoring the saved model without strategy: {accuracy.result():.4f}")
