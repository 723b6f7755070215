"""Custom training with MirroredStrategy: one replica on each GPU, or one replica on the CPU."""

import argparse
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras is Keras 2: with Keras 3, two replicas fail

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data-dir", help="a folder with mnist.npz; default: Keras downloads MNIST")
parser.add_argument("--checkpoint-dir", default="training_checkpoints")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=70)
args = parser.parse_args()

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

(train_images, train_labels), (test_images, test_labels) = load_data()
train_images = train_images[..., None] / np.float32(255)
test_images = test_images[..., None] / np.float32(255)

strategy = tf.distribute.MirroredStrategy()
print("Number of devices:", strategy.num_replicas_in_sync)
GLOBAL_BATCH_SIZE = 64 * strategy.num_replicas_in_sync
train_dataset = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
train_dataset = train_dataset.shuffle(60000).repeat().batch(GLOBAL_BATCH_SIZE)
test_dataset = tf.data.Dataset.from_tensor_slices((test_images, test_labels))
test_dataset = test_dataset.batch(GLOBAL_BATCH_SIZE)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)  # divides each batch
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)  # among the replicas

with strategy.scope():  # every replica gets a copy of the variables that are created here
    model = tf.keras.Sequential([
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.Adam()
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    test_loss = tf.keras.metrics.Mean()
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

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
for epoch in range(args.epochs):
    total_loss = 0.0
    for _ in range(args.steps_per_epoch):
        total_loss += distributed_train_step(next(train_iter))
    for x in test_dist_dataset:
        distributed_test_step(x)
    print(f"Epoch {epoch + 1}, Loss: {total_loss / args.steps_per_epoch:.4f}, "
          f"Accuracy: {train_accuracy.result():.4f}, Test Loss: {test_loss.result():.4f}, "
          f"Test Accuracy: {test_accuracy.result():.4f}")
    for metric in (test_loss, train_accuracy, test_accuracy):
        metric.reset_state()
    checkpoint.save(os.path.join(args.checkpoint_dir, "ckpt"))
