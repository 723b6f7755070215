"""The trained model as a SavedModel, which needs nothing of this job to be loaded."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from folders import try_out

_MARK = "saved_model.pb"


class ExportError(Exception):
    """The model cannot be exported there: the text says why."""


def check(folder: Path) -> None:
    """Checks that a model can be written to a folder, before there is one; needs no TensorFlow.

    Raises:
        ExportError: what is there is no model, or cannot be replaced.
        FolderError: nothing can be written beside it.
    """
    if folder.name in {"", ".."} or os.path.ismount(folder):
        raise ExportError(
            f"--export-dir {folder} cannot be replaced by a new folder: name one inside it"
        )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExportError(f"--export-dir {folder} is there, and is no folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise ExportError(f"--export-dir {folder} holds other things than a SavedModel")
    try_out("--export-dir", folder.parent)


def export(model: Any, plain: Any, folder: Path) -> None:
    """Writes the model, whole or not at all.

    Reading the layers' variables needs no other worker (reading metrics would), so the chief does
    this alone. They are copied into a model without a strategy: else the SavedModel would have
    the devices of the training in it, and the parts into which parameter servers divide a
    variable.

    Args:
        model: the trained one.
        plain: another of the same kind, made outside of every strategy.
        folder: takes the place of a SavedModel that is there.

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
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
            new, old = Path(scratch, "new"), Path(scratch, "old")
            copied = tf.train.Checkpoint(layers=model.layers).write(str(Path(scratch, "layers")))
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
