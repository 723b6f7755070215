"""Checks that any number of replicas has the gradients of the mean over the global batch.

Working folder: jobs/mnist. The expected gradients are computed without a strategy: those of the
mean over the images of a batch, plus the penalty once.
"""

import os
import sys
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path.insert(0, os.getcwd())

import numpy as np
import tensorflow as tf
import tf_keras

from mnist_job import data
from mnist_job import training as job
from mnist_job.loop import Loop
from mnist_job.options import parse

IMAGES, GLOBAL_BATCH = 70, 32
LAST = 6
"""Images in the last batch: so few that one of two or four replicas has none."""

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
drawn = data.synthetic()
digits = data.DataSet(
    name="synthetic",
    source="",
    train_images=drawn.train_images[:IMAGES],
    train_labels=drawn.train_labels[:IMAGES],
    test_images=drawn.test_images[:10],
    test_labels=drawn.test_labels[:10],
)


def batches():
    return job.batches(IMAGES, GLOBAL_BATCH, seed=3, passes=True)


def images_of(indices):
    images = tf.constant(digits.train_images[indices][..., None] / 255.0, tf.float32)
    return images, tf.constant(digits.train_labels[indices].astype(np.int32))


def right_gradients(model, indices, l2, own=1.0, divided_by=None):
    images, labels = images_of(indices)
    with tf.GradientTape() as tape:
        losses = tf_keras.losses.sparse_categorical_crossentropy(
            labels, model(images), from_logits=True
        )
        loss = tf.reduce_sum(losses * own) / (divided_by or len(indices))
        kernels = [v for v in model.trainable_variables if "kernel" in v.name]
        loss += l2 * tf.add_n([tf.reduce_sum(kernel**2) for kernel in kernels])
    return tape.gradient(loss, model.trainable_variables), float(loss)


class GradientRecorder:
    """Replaces an optimizer: keeps the gradients, and leaves the weights as they are."""

    def apply_gradients(self, pairs: Any) -> None:
        self.gradients = [gradient for gradient, _ in pairs]


def check(replicas: int, l2: float, how: str, weighted: bool, steps: str) -> None:
    """Compares the gradients, the loss and the metrics of a pass with those without a strategy.

    weighted: whether each image has a weight of its own. steps: `all`, or `all-global`.
    """
    weights_of = np.random.default_rng(1).uniform(0.5, 2, IMAGES).astype(np.float32)
    given = digits._replace(sample_weights=weights_of) if weighted else digits
    strategy = tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(replicas)],
        # The default makes groups of devices, which must not overlap within a process.
        tf.distribute.ReductionToOneDevice(),
    )
    batch = ["--batch-size", str(GLOBAL_BATCH // replicas), "--input", how, "--seed", "3"]
    asked = ["--steps-per-epoch", steps, "--model", "cnn", "--l2", str(l2), *batch]
    tf_keras.utils.set_random_seed(1)
    training = Loop(strategy, given, parse(asked, {}))
    training.prepare()
    training.optimizer = recorder = GradientRecorder()
    KEPT.append(training)

    def of_replica(batch):
        part = training.train_step(batch)
        return [part, *recorder.gradients]

    @tf.function(autograph=False)
    def step(batch):
        parts = strategy.run(of_replica, args=(batch,))
        return [strategy.reduce("SUM", part, axis=None) for part in parts]

    means, sizes = [], []
    for (indices, weights), batch in zip(batches().take(3), training.dataset, strict=False):
        chosen = indices.numpy()[weights.numpy() > 0]
        own = weights_of[chosen] if weighted else 1.0
        divided_by = GLOBAL_BATCH if steps == "all-global" else len(chosen)
        right, right_loss = right_gradients(training.model, chosen, l2, own, divided_by)
        _, mean = right_gradients(training.model, chosen, l2, own)
        loss, *found = step(batch)
        for gradient, wanted in zip(found, right, strict=True):
            np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(loss, right_loss, rtol=1e-5)
        means.append(mean)
        sizes.append(len(chosen))
    assert sizes == [GLOBAL_BATCH, GLOBAL_BATCH, LAST], sizes
    # In the epoch's metrics, each image counts once, in whatever batch it was.
    found_loss, found_accuracy = training.train_loss.result(), training.train_accuracy.result()
    np.testing.assert_allclose(found_loss, np.average(means, weights=sizes), rtol=1e-5)
    images, labels = images_of(np.arange(IMAGES))
    accuracy = np.mean(np.argmax(training.model(images), 1) == labels.numpy())
    np.testing.assert_allclose(found_accuracy, accuracy, rtol=1e-6)
    print(f"right with {replicas} replicas, l2 {l2}, {how}, weighted: {weighted}, {steps}")


KEPT: list[Any] = []
"""Deleting the iterators of several replicas takes seconds."""
seen = [set(), set()]
for round_of, (indices, weights) in zip((0, 0, 0, 1, 1, 1), batches(), strict=False):
    seen[round_of] |= set(indices.numpy()[weights.numpy() > 0].tolist())
assert seen == [set(range(IMAGES))] * 2, "a pass has every image"

for replicas, l2, how, weighted, steps in (
    (2, 0.01, "distribute", False, "all"),
    (4, 0.01, "from_function", True, "all-global"),
):
    check(replicas, l2, how, weighted, steps)

# The worked example of TensorFlow's tutorials: 3.5 for two replicas, not 1.75 for each.
example = Loop(
    tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()),
    digits,
    parse(["--batch-size", "2"], {}),
)
losses_of_replicas = iter([tf.constant([1.0, 3.0]), tf.constant([4.0, 6.0])])
parts = [example.compute_loss(losses, tf.ones([2])) for losses in losses_of_replicas]
assert [float(part) for part in parts] == [1.0, 2.5]
assert float(sum(parts)) == 3.5
print("all is as it must be", flush=True)
os._exit(0)
