"""The data set and the model: what the job trains, and on what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras_cache
import synthetic
from archive import read_folder
from digits import CLASSES, SIDE, DataError, Digits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def load_digits(data: str, data_dir: Path | None, say: Callable[[str], None]) -> Digits:
    """Returns the images to train and test on.

    Args:
        data: `mnist`, `synthetic`, or `auto`: MNIST where it can be had, else synthetic.
        data_dir: a folder that must hold MNIST, or None for Keras's cache.
        say: told in one line when `auto` falls back.

    Raises:
        DataError: what was asked for cannot be had. A folder that the user named must hold MNIST
            also under `auto`: training on something else would not be noticed.
    """
    if data == "synthetic":
        return synthetic.load()
    if data_dir is not None:
        return read_folder(data_dir)
    try:
        return keras_cache.read_or_download(keras_cache.cache_folder())
    except DataError as error:
        if data == "mnist":
            raise DataError(
                f"{error}; name a folder that has it with --data-dir, or use --data synthetic"
            ) from error
        say(f"{error}: training on synthetic digits instead")
        return synthetic.load()


def build_model() -> Any:
    """Returns the tutorials' CNN, untrained: images (n, 28, 28, 1) in 0..1 to logits (n, 10)."""
    import tf_keras

    return tf_keras.Sequential(
        [
            tf_keras.layers.InputLayer(input_shape=(SIDE, SIDE, 1)),
            tf_keras.layers.Conv2D(32, 3, activation="relu"),
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(128, activation="relu"),
            tf_keras.layers.Dense(CLASSES),
        ]
    )
