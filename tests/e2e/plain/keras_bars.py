"""Trains, evaluates and predicts with what Keras prints; says at the end what that should show.

Arguments: kinds, each 2 or 3 for the version of Keras, and `verbose`, as `3-1`. Each task of a job
takes the one at its rank.
"""

import json
import os
import sys
import time

import numpy as np

version, _, verbose = sys.argv[1 + int(os.environ.get("DISTRUN_RANK", "0"))].partition("-")
if version == "2":
    import tf_keras as keras
else:
    import keras

verbose = int(verbose)


class Slow(keras.callbacks.Callback):  # type: ignore[misc]
    """Takes long enough for several states of each bar."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)


random = np.random.default_rng(0)
x = random.normal(size=(320, 4)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
model = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
callbacks = [Slow(), keras.callbacks.ReduceLROnPlateau()]
model.evaluate(x, y, verbose=verbose)
model.predict(x, verbose=verbose)


def batches():
    for start in range(0, 320, 32):
        yield x[start : start + 32], y[start : start + 32]


model.fit(batches(), epochs=1, verbose=verbose, callbacks=[Slow()])  # of unknown length
history = model.fit(
    x, y, epochs=3, batch_size=16, verbose=verbose, validation_split=0.25, callbacks=callbacks
).history
last = {name.upper(): float(values[-1]) for name, values in history.items()}
print(json.dumps({"EPOCH": 3, "EPOCHS": 3, "STEP": 15, "STEPS": 15, **last}))
