"""MultiWorkerMirroredStrategy: a small convolution, a distributed data set, checkpoints."""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = os.environ.get("QUIET", "0")
import trouble

trouble.here("begin")
import numpy as np
import tensorflow as tf

if trouble.ME.startswith("evaluator"):
    for turn in range(3):
        trouble.here(turn)
        print("evaluated", turn, flush=True)
    raise SystemExit(0)

strategy = tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CollectiveCommunication.RING
    )
)
print("replicas:", strategy.num_replicas_in_sync, flush=True)
trouble.here("made")


def batches(context):
    images = np.random.default_rng(0).normal(size=(64, 8, 8, 1)).astype("float32")
    labels = (images.mean((1, 2, 3)) > 0).astype("int64")
    whole = tf.data.Dataset.from_tensor_slices((images, labels)).repeat()
    if trouble.IS_MINE and trouble.WHAT == "mapped":

        def look(image, label):
            def check(value):
                raise ValueError(f"label {value} is none")

            tf.py_function(check, [label], [])
            return image, label

        whole = whole.map(look)
    return whole.shard(context.num_input_pipelines, context.input_pipeline_id).batch(8)


with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(4, 3, activation="relu", input_shape=(8, 8, 1)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(2),
        ]
    )
    optimizer = tf.keras.optimizers.SGD(0.1)
    losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

data = iter(strategy.distribute_datasets_from_function(batches))


@tf.function
def train(inputs):
    def replica(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(losses(labels, model(images, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return strategy.reduce("sum", strategy.run(replica, args=inputs), axis=None)


def epoch(number):
    for step in range(3):
        trouble.here(3 * number + step)
        if trouble.IS_MINE and trouble.WHAT == "stop-early" and number == 1:
            return False
        print(f"epoch {number} step {step} loss {float(train(next(data))):.4f}", flush=True)
    return True


for number in range(3):
    if not epoch(number):
        print("converged", flush=True)
        break
print("trained", flush=True)
os._exit(0) if trouble.IS_MINE and trouble.WHAT == "stop-early" else None
