"""The models of the tutorials, and their export as a SavedModel."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from mnist_job.data import CLASSES, SIDE
from mnist_job.errors import WriteError


def build_model(name: str, l2: float = 0.0, kind: type[Any] = tf_keras.Sequential) -> Any:
    """Returns an untrained model. It maps images (n, 28, 28, 1) from 0 to 1 to logits (n, 10).

    `small_cnn` is of the tutorial on multi-worker training, `cnn` of that on custom training. Each
    layer adds l2 times its squared kernel to `model.losses`.
    """
    layers = tf_keras.layers
    penalty = tf_keras.regularizers.L2(l2) if l2 else None

    def convolution(filters: int) -> Any:
        return layers.Conv2D(filters, 3, activation="relu", kernel_regularizer=penalty)

    def dense(units: int, activation: str | None = "relu") -> Any:
        return layers.Dense(units, activation=activation, kernel_regularizer=penalty)

    inner = [convolution(32)]
    if name == "cnn":
        inner += [layers.MaxPooling2D(), convolution(64), layers.MaxPooling2D()]
    inner += [layers.Flatten(), dense(64 if name == "cnn" else 128)]
    images = layers.InputLayer(input_shape=(SIDE, SIDE, 1), name="images")
    return kind([images, *inner, dense(CLASSES, activation=None)])


def export(model: Any, name: str, folder: Path) -> None:
    """Writes a trained model completely, or not at all; replaces a SavedModel that is there.

    Only the chief calls this: unlike metrics, the variables of layers can be read without other
    workers. They are copied to a model without a strategy. Otherwise, the SavedModel would contain
    the training's devices, and the parts into which parameter servers divide a variable.
    """
    plain = build_model(name)
    served = tf.Module()
    served.model = plain
    served.__call__ = tf.function(
        lambda images: {"logits": plain(images, training=False)},
        input_signature=[tf.TensorSpec((None, *plain.input_shape[1:]), tf.float32, "images")],
    )
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            new, old = Path(temporary, "new"), Path(temporary, "old")
            copied = tf.train.Checkpoint(layers=model.layers).write(str(Path(temporary, "layers")))
            tf.train.Checkpoint(layers=plain.layers).read(copied).assert_consumed()
            tf.saved_model.save(served, str(new), signatures={"serving_default": served.__call__})
            umask = os.umask(0)
            os.umask(umask)
            new.chmod(0o777 & ~umask)
            with suppress(FileNotFoundError):
                folder.rename(old)
            new.rename(folder)
    except (OSError, tf.errors.OpError, shutil.Error) as error:
        raise WriteError(f"the model cannot be written to {folder}: {error}") from error
