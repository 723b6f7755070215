"""Multi-worker training with Keras, like TensorFlow's tutorial; no launcher.

Like the tutorial, it needs Keras 2 as tf.keras (TF_USE_LEGACY_KERAS=1).
"""

import json
import os

import numpy as np
import tensorflow as tf

PER_WORKER_BATCH_SIZE = 16

tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def dataset(batch_size):
    generator = np.random.default_rng(0)
    x = generator.uniform(size=(256, 28, 28)).astype(np.float32)
    y = (x[:, :14].sum(axis=(1, 2)) > x[:, 14:].sum(axis=(1, 2))).astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(256).repeat().batch(batch_size)


with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(28, 28)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(16, activation="relu"),
            tf.keras.layers.Dense(2),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
        metrics=["accuracy"],
    )

history = model.fit(
    dataset(PER_WORKER_BATCH_SIZE * num_workers),
    epochs=2,
    steps_per_epoch=4,
    verbose=2,
    callbacks=[
        # Keras makes the other workers save elsewhere, and removes their files.
        tf.keras.callbacks.ModelCheckpoint(
            filepath=os.path.join("ckpt", "weights-{epoch}"), save_weights_only=True
        )
    ],
)
print("fit: epochs", len(history.history["loss"]), "steps", model.optimizer.iterations.numpy())
