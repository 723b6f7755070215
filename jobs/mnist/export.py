"""Exports the trained model as a SavedModel, which can be loaded without this job."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from directories import check_writable

_MARK = "saved_model.pb"


class ExportError(Exception):
    """The model cannot be exported there: the message says why."""


def check(folder: Path) -> None:
    """Checks, before training, that a model can be written to a folder; needs no TensorFlow.

    Raises:
        ExportError: the folder has other content, or cannot be replaced.
        DirectoryError: its parent cannot be written to.
    """
    if folder.name in {"", ".."} or os.path.ismount(folder):
        raise ExportError(
            f"--export-dir {folder} cannot be replaced by a new folder: name one inside it"
        )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExportError(f"--export-dir {folder} is there, and is no folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise ExportError(f"--export-dir {folder} holds other things than a SavedModel")
    check_writable("--export-dir", folder.parent)


def export(model: Any, plain: Any, folder: Path) -> None:
    """Writes the complete model, or nothing.

    Only the chief calls this: unlike metrics, the variables of layers can be read without other
    workers. They are copied to a model without a strategy. Otherwise, the SavedModel would contain
    the training's devices, and the parts into which parameter servers divide a variable.

    Args:
        model: the trained one.
        plain: a model of the same kind, built without a strategy.
        folder: the target. A SavedModel that is there is replaced.

    Raises:
        ExportError: it cannot be written.
    """
    import tensorflow as tf

    served = tf.Module()
    served.model = plain
    served.__call__ = tf.function(
        lambda images: {"logits": plain(images, training=False)},
        input_signature=[tf.TensorSpec((None, *plain.input_shape[1:]), tf.float32, "images")],
    )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
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
        raise ExportError(f"the model cannot be written to {folder}: {error}") from error
