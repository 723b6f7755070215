"""Model.fit under MultiWorkerMirroredStrategy, with callbacks."""

import os

if os.environ.get("KERAS") != "3":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
import trouble

trouble.here("begin")
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
points = tf.random.stateless_uniform([96, 3], seed=(1, 2))
whole = tf.data.Dataset.from_tensor_slices((points, tf.reduce_sum(points, 1, keepdims=True)))


class Watch(tf.keras.callbacks.Callback):
    seen = 0

    def on_train_batch_begin(self, batch, logs=None):
        trouble.here(self.seen)
        self.seen += 1

    def on_epoch_end(self, epoch, logs=None):
        trouble.here(f"epoch{epoch}")


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
model.fit(whole.repeat().batch(8), epochs=2, steps_per_epoch=5, verbose=2, callbacks=[Watch()])
trouble.here("end")
