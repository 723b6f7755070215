"""Where workers that are not the chief save: folders inside the checkpoints', soon removed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cluster import Task

_PREFIX = "workertemp_"
"""As in TensorFlow's tutorial on multi-worker training."""
_HALF_SAVED = "ckpt-*_temp"
"""Where TensorFlow writes a checkpoint's parts; one that is killed then leaves them."""


def folder_of(task: Task, checkpoints: Path) -> Path:
    return checkpoints / f"{_PREFIX}{task.role}_{task.index}"


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def sweep(checkpoints: Path) -> None:
    """Removes the folders of earlier launches that were killed.

    Call it before the strategy is built: until then no worker of this launch can have saved.
    """
    for left in (f"{_PREFIX}*_*", _HALF_SAVED):
        for folder in checkpoints.glob(left):
            remove(folder)
