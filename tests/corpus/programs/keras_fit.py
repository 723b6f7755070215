"""Keras' fit under MultiWorkerMirroredStrategy."""

import os

import faults
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
STEPS = int(os.environ.get("STEPS", "6"))


class Struck(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        faults.at(batch)


def samples():
    x = np.random.default_rng(0).uniform(size=(64, 8)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1) > 4)).batch(16)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    if faults.WHAT != "dataset":
        return data.repeat().with_options(options)
    return data.take(1 if faults.ME == faults.WHO else 4).with_options(options)


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input(shape=(8,)), tf.keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
model.fit(samples(), epochs=2, steps_per_epoch=STEPS, verbose=2, callbacks=[Struck()])
print("done")
