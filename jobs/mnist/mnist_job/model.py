"""The models of the tutorials, and their export as a SavedModel."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from mnist_job.checkpoints import explained_io_errors
from mnist_job.data import CLASSES, SIDE


def build_model(name: str, l2: float = 0.0, kind: type[Any] = tf_keras.Sequential) -> Any:
    """Returns an untrained model. It maps images (n, 28, 28, 1) from 0 to 1 to logits (n, 10).

    `small_cnn` is of the tutorial on multi-worker training, `cnn` of that on custom training. Each
    layer adds l2 times its squared kernel to `model.losses`.
    """
    layers = tf_keras.layers
    penalty = tf_keras.regularizers.L2(l2) if l2 else None

    relu = {"activation": "relu", "kernel_regularizer": penalty}
    inner = [layers.Conv2D(32, 3, **relu)]
    if name == "cnn":
        inner += [layers.MaxPooling2D(), layers.Conv2D(64, 3, **relu), layers.MaxPooling2D()]
    inner += [layers.Flatten(), layers.Dense(64 if name == "cnn" else 128, **relu)]
    images = layers.InputLayer(input_shape=(SIDE, SIDE, 1), name="images")
    return kind([images, *inner, layers.Dense(CLASSES, kernel_regularizer=penalty)])


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
    with (
        explained_io_errors("model", folder),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary,
    ):
        new, old = Path(temporary, "new"), Path(temporary, "old")
        copied = tf.train.Checkpoint(layers=model.layers).write(str(Path(temporary, "layers")))
        tf.train.Checkpoint(layers=plain.layers).read(copied).assert_consumed()
        tf.saved_model.save(served, str(new), signatures={"serving_default": served.__call__})
        with suppress(FileNotFoundError):
            folder.rename(old)
        new.rename(folder)
