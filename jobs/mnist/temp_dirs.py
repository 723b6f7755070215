"""Temporary directories and files of a run: other workers' checkpoints, partial ones, code."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cluster import Task

_PREFIX = "workertemp_"
"""As in TensorFlow's tutorial on multi-worker training."""
_PARTIAL_CHECKPOINT = "ckpt-*_temp"
"""TensorFlow writes the parts of a checkpoint here, and leaves them if it is killed."""
_GENERATED_CODE = "__autograph_generated_file"
"""The prefix of the modules that TensorFlow generates, as files in the temporary folder."""


def of_task(task: Task, checkpoints: Path) -> Path:
    """The directory in which a task that is not the chief saves."""
    return checkpoints / f"{_PREFIX}{task.role}_{task.index}"


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def remove_leftovers(checkpoints: Path) -> None:
    """Removes the temporary directories of earlier launches that were killed.

    Call it before the strategy is built: until then, no worker of this launch can have saved.
    """
    for directory in checkpoints.glob(f"{_PREFIX}*_*"):
        remove(directory)
    remove_partial_checkpoints(checkpoints)


def remove_partial_checkpoints(checkpoints: Path) -> None:
    """Removes the files of a save that did not finish."""
    for directory in checkpoints.glob(_PARTIAL_CHECKPOINT):
        remove(directory)


def remove_generated_code() -> None:
    """Removes the files that TensorFlow removes when Python ends, which `os._exit` skips."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_GENERATED_CODE) and module.__file__:
            with suppress(OSError):
                os.remove(module.__file__)
            if module.__cached__:
                with suppress(OSError):  # not compiled, or the folder has other files too
                    os.remove(module.__cached__)
                    os.rmdir(os.path.dirname(module.__cached__))
