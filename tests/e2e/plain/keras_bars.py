"""Trains, evaluates and predicts with what Keras prints; says at the end what that should show.

Arguments: kinds, each 2 or 3 for the version of Keras, and `verbose`, as `3-1`.
"""

import importlib
import json
import sys
import time
from typing import Any

import numpy as np

random = np.random.default_rng(0)
x = random.normal(size=(320, 4)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")


def batches():
    for start in range(0, 320, 32):
        yield x[start : start + 32], y[start : start + 32]


models: dict[Any, Any] = {}
for kind in sys.argv[1:]:
    keras: Any = importlib.import_module("tf_keras" if kind[0] == "2" else "keras")
    verbose = int(kind[2])

    class Slow(keras.callbacks.Callback):  # type: ignore[misc]
        """Takes long enough for several states of each bar."""

        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.02)

    if keras not in models:  # once a version: most of the time, its functions are traced
        models[keras] = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
        models[keras].compile("sgd", "binary_crossentropy", metrics=["accuracy"])
    model = models[keras]
    model.evaluate(x, y, verbose=verbose)
    model.predict(x, verbose=verbose)
    model.fit(batches(), epochs=1, verbose=verbose, callbacks=[Slow()])  # of unknown length
    history = model.fit(
        *(x, y), epochs=3, batch_size=16, verbose=verbose, validation_split=0.25,
        callbacks=[Slow(), keras.callbacks.ReduceLROnPlateau()],
    ).history  # fmt: skip
    model.evaluate(x[:64], y[:64], verbose=verbose)  # which is no training
    model.predict(x, verbose=verbose)
    last = {name.upper(): float(values[-1]) for name, values in history.items()}
    print(json.dumps({"EPOCH": 3, "EPOCHS": 3, "STEP": 15, "STEPS": 15, **last}), flush=True)
