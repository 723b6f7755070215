"""Model.fit of Keras 3 with callbacks, on the devices of one machine."""

import os
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf
from tensorflow.keras import callbacks, layers

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = os.environ.get("OUTPUT", ".")


class Log(callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch}: {(logs or {}).get('loss'):.3f}")


def build_model() -> keras.Model:
    model = tf.keras.Sequential([layers.Input((8,)), layers.Dense(4, "relu"), layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=1e-3), loss="mse")
    return model


def all_callbacks() -> "Sequence[callbacks.Callback]":
    weights = os.path.join(FOLDER, "best.weights.h5")
    return [
        callbacks.ModelCheckpoint(weights, save_weights_only=True, save_best_only=True),
        callbacks.ModelCheckpoint(os.path.join(FOLDER, "model-{epoch:02d}.keras")),
        callbacks.EarlyStopping(patience=3),
        Log(),
    ]


x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = build_model()
model.fit(x, x[:, :1], epochs=2, validation_split=0.2, callbacks=all_callbacks(), verbose=0)
model.load_weights(os.path.join(FOLDER, "best.weights.h5"))
model.save(os.path.join(FOLDER, "final.keras"))
