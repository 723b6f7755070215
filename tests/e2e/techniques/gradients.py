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

import arguments
import inputs
import sampler
import synthetic
from cluster import Task
from state import State

IMAGES, GLOBAL_BATCH = 70, 32
LAST = 6
"""Images in the last batch: so few that one of four replicas has none."""

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
digits = synthetic.draw(IMAGES, 10, variants=4)


def batches():
    return sampler.passes(IMAGES, seed=3, epoch=0, start=0, global_batch=GLOBAL_BATCH)


def images_of(indices):
    images = tf.constant(digits.train_images[indices][..., None] / 255.0, tf.float32)
    return images, tf.constant(digits.train_labels[indices].astype(np.int32))


def right_gradients(model, indices, l2):
    images, labels = images_of(indices)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(
            tf_keras.losses.sparse_categorical_crossentropy(labels, model(images), from_logits=True)
        )
        kernels = [v for v in model.trainable_variables if "kernel" in v.name]
        loss += l2 * tf.add_n([tf.reduce_sum(kernel**2) for kernel in kernels])
    return tape.gradient(loss, model.trainable_variables), float(loss)


class GradientRecorder:
    """Replaces an optimizer: keeps the gradients, and leaves the weights as they are."""

    def __init__(self, *, are_summed: bool) -> None:
        self._are_summed = are_summed

    def apply_gradients(self, pairs: Any, *, skip_gradients_aggregation: bool) -> None:
        assert skip_gradients_aggregation == self._are_summed
        self.gradients = [gradient for gradient, _ in pairs]


def check(replicas: int, l2: float, how: str) -> None:
    asked = arguments.parse(["--model", "cnn", "--l2", str(l2)], {}, Task())
    strategy = tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(replicas)],
        # The default makes groups of devices, which must not overlap within a process.
        tf.distribute.ReductionToOneDevice(),
    )
    tf_keras.utils.set_random_seed(1)
    state = State(strategy, asked, GLOBAL_BATCH)
    state.optimizer = GradientRecorder(are_summed=False)
    dataset = inputs.training_dataset(strategy, digits, batches, global_batch=GLOBAL_BATCH, how=how)

    def of_replica(batch):
        part = state.train_on(batch)
        return [part, *state.optimizer.gradients]

    @tf.function
    def step(batch):
        parts = strategy.run(of_replica, args=(batch,))
        return [strategy.reduce("SUM", part, axis=None) for part in parts]

    losses, sizes = [], []
    for (indices, weights), batch in zip(batches().take(3), dataset, strict=False):
        chosen = indices.numpy()[weights.numpy() > 0]
        right, right_loss = right_gradients(state.model, chosen, l2)
        loss, *found = step(batch)
        for gradient, wanted in zip(found, right, strict=True):
            np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(loss, right_loss, rtol=1e-5)
        losses.append(right_loss)
        sizes.append(len(chosen))
    assert sizes == [GLOBAL_BATCH, GLOBAL_BATCH, LAST], sizes
    # In the epoch's metrics, each image counts once, in whatever batch it was.
    np.testing.assert_allclose(state.loss.result(), np.average(losses, weights=sizes), rtol=1e-5)
    images, labels = images_of(np.arange(IMAGES))
    accuracy = np.mean(np.argmax(state.model(images), 1) == labels.numpy())
    np.testing.assert_allclose(state.accuracy.result(), accuracy, rtol=1e-6)
    print(f"right with {replicas} replicas, l2 {l2}, {how}")


def check_float16() -> None:
    asked = arguments.parse(
        ["--strategy", "multi_worker_mirrored", "--reduce-as", "float16"], {}, Task()
    )
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )
    tf_keras.utils.set_random_seed(1)
    state = State(strategy, asked, GLOBAL_BATCH)
    state.optimizer = GradientRecorder(are_summed=True)
    dataset = inputs.training_dataset(
        strategy, digits, batches, global_batch=GLOBAL_BATCH, how="from_function"
    )

    def of_replica(batch):
        state.train_on(batch)
        return state.optimizer.gradients

    found = tf.function(lambda batch: strategy.run(of_replica, args=(batch,)))(next(iter(dataset)))
    indices, _ = next(iter(batches()))
    right, _ = right_gradients(state.model, indices.numpy(), 0.0)
    for gradient, wanted in zip(found, right, strict=True):
        first, second = (part.numpy() for part in strategy.experimental_local_results(gradient))
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(first, wanted, rtol=2e-3, atol=2e-5)
        sent = first * np.float32(GLOBAL_BATCH)
        np.testing.assert_array_equal(sent.astype(np.float16).astype(np.float32), sent)
    print("right as float16")


seen = [set(), set()]
for round_of, (indices, weights) in zip((0, 0, 0, 1, 1, 1), batches(), strict=False):
    seen[round_of] |= set(indices.numpy()[weights.numpy() > 0].tolist())
assert seen == [set(range(IMAGES))] * 2, "a pass has every image"

for replicas, l2, how in (
    (1, 0.01, "from_function"),
    (2, 0.01, "distribute"),
    (4, 0.01, "from_function"),
    (4, 0.0, "distribute"),
):
    check(replicas, l2, how)
check_float16()
print("all is as it must be")
