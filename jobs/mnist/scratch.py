"""What is written for a while only: non-chief workers' saves, code that TensorFlow generates."""

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
_HALF_SAVED = "ckpt-*_temp"
"""Where TensorFlow writes a checkpoint's parts; one that is killed then leaves them."""
_GENERATED_CODE = "__autograph_generated_file"
"""How TensorFlow names the modules it makes of functions, as files in the temporary folder."""


def folder_of(task: Task, checkpoints: Path) -> Path:
    return checkpoints / f"{_PREFIX}{task.role}_{task.index}"


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def sweep(checkpoints: Path) -> None:
    """Removes the folders of earlier launches that were killed.

    Call it before the strategy is built: until then no worker of this launch can have saved.
    """
    for folder in checkpoints.glob(f"{_PREFIX}*_*"):
        remove(folder)
    remove_half_saved(checkpoints)


def remove_half_saved(checkpoints: Path) -> None:
    """Removes what is left of a checkpoint whose saving was broken off."""
    for folder in checkpoints.glob(_HALF_SAVED):
        remove(folder)


def remove_generated_code() -> None:
    """Removes what TensorFlow would at the interpreter's end, which `os._exit` does not reach."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_GENERATED_CODE) and module.__file__:
            with suppress(OSError):
                os.remove(module.__file__)
            if module.__cached__:
                with suppress(OSError):  # it was not compiled, or others' code is there as well
                    os.remove(module.__cached__)
                    os.rmdir(os.path.dirname(module.__cached__))
