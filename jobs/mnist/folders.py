"""The folders that a run writes to: tried before the seconds of TensorFlow's import."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from arguments import Arguments
    from cluster import Task

_BLOCK = bytes(4096)


class FolderError(Exception):
    """Nothing can be written to a folder: the text says which and why."""


def check(chosen: Arguments, task: Task) -> None:
    """Makes the folders that this task writes checkpoints and summaries to, and tries them.

    Raises:
        FolderError: one cannot be written to.
    """
    # Saving has collectives, so every worker of a step saves; parameter servers' chief alone.
    saves = task.is_chief or (task.role == "worker" and chosen.strategy != "parameter_server")
    if chosen.checkpoint_dir and saves:
        try_out("--checkpoint-dir", chosen.checkpoint_dir)
    if chosen.summary_dir and task.is_chief:
        try_out("--summary-dir", chosen.summary_dir)


def try_out(option: str, folder: Path) -> None:
    """Makes a folder where there is none, and writes a file that has no name.

    Raises:
        FolderError: that cannot be done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(_BLOCK)
    except OSError as error:
        raise FolderError(
            f"{option}: nothing can be written to {folder} ({error.strerror}); name another folder"
        ) from error
