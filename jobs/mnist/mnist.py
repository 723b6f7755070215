"""The models that the job trains, and the choice of the data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras_cache
import synthetic
from archive import read_folder
from digits import CLASSES, SIDE, DataError, Digits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def load_digits(
    data: str, dataset: str, data_dir: Path | None, say: Callable[[str], None]
) -> Digits:
    """Returns the images to train and test on.

    Args:
        data: `mnist`, `synthetic`, or `auto`: the data set if it is available; otherwise synthetic
            digits instead of MNIST.
        dataset: `mnist` or `fashion_mnist`; nothing replaces the latter.
        data_dir: a folder with the data set, or None for Keras's cache.
        say: called with one line if `auto` falls back to synthetic digits.

    Raises:
        DataError: the data is not available. `auto` does not fall back if the user named a folder:
            nobody would notice that the job trains on other data.
    """
    if data == "synthetic":
        return synthetic.load()
    if data_dir is not None:
        return read_folder(data_dir, dataset)
    try:
        return keras_cache.read_or_download(keras_cache.cache_folder(dataset), dataset)
    except DataError as error:
        if dataset == "mnist" and data == "auto":
            say(f"{error}: training on synthetic digits instead")
            return synthetic.load()
        remedy = "name a folder that has it with --data-dir"
        if dataset == "mnist":
            remedy += ", or use --data synthetic"
        raise DataError(f"{error}; {remedy}") from error


def build_model(name: str = "small_cnn", l2: float = 0.0) -> Any:
    """Returns one of the tutorials' models, untrained.

    It maps images (n, 28, 28, 1) from 0 to 1 to logits (n, 10).

    Args:
        name: `small_cnn`, from the tutorial on multi-worker training, or `cnn`, from the tutorial
            on custom training.
        l2: the factor of the squared kernels that each layer adds to `model.losses`.
    """
    import tf_keras

    layers = tf_keras.layers
    penalty = tf_keras.regularizers.L2(l2) if l2 else None

    def convolution(filters: int) -> Any:
        return layers.Conv2D(filters, 3, activation="relu", kernel_regularizer=penalty)

    def dense(units: int, activation: str | None = "relu") -> Any:
        return layers.Dense(units, activation=activation, kernel_regularizer=penalty)

    bodies = {
        "small_cnn": lambda: [convolution(32), layers.Flatten(), dense(128)],
        "cnn": lambda: [
            convolution(32),
            layers.MaxPooling2D(),
            convolution(64),
            layers.MaxPooling2D(),
            layers.Flatten(),
            dense(64),
        ],
    }
    images = layers.InputLayer(input_shape=(SIDE, SIDE, 1), name="images")
    return tf_keras.Sequential([images, *bodies[name](), dense(CLASSES, activation=None)])
