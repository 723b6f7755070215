"""The directories that a run writes to. They are tried before the slow import of TensorFlow."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from arguments import Arguments
    from cluster import Task

_BLOCK = bytes(4096)


class DirectoryError(Exception):
    """A directory cannot be written to: the message says which one and why."""


def check(chosen: Arguments, task: Task) -> None:
    """Creates the directories for this task's checkpoints and summaries, and writes to them.

    Raises:
        DirectoryError: one cannot be written to.
    """
    # Saving has collectives, so every worker that shares a step saves. On parameter servers,
    # only the chief does.
    saves = task.is_chief or (task.role == "worker" and chosen.strategy != "parameter_server")
    if chosen.checkpoint_dir and saves:
        check_writable("--checkpoint-dir", chosen.checkpoint_dir)
    if chosen.summary_dir and task.is_chief:
        check_writable("--summary-dir", chosen.summary_dir)


def check_writable(option: str, directory: Path) -> None:
    """Creates a directory if there is none, and writes a file without a name.

    Raises:
        DirectoryError: it cannot be created or written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(_BLOCK)
    except OSError as error:
        raise DirectoryError(
            f"{option}: nothing can be written to {directory} ({error.strerror}); name another "
            "folder"
        ) from error
