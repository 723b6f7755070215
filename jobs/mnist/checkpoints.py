"""Where a run's state is kept between launches, and by whom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

import checkpoint_metadata
import temp_dirs
from directories import DirectoryError
from io_errors import explained_io_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from arguments import Arguments
    from cluster import Task


UNUSABLE = (
    # Damaged or gone, as the operations and as the reader of the object graph tell it:
    tf.errors.OpError,
    IndexError,
    RuntimeError,
    # Another model's:
    AssertionError,
    ValueError,
)


class CheckpointError(Exception):
    """The checkpoints cannot be resumed from: the text says which, where and what to do."""


def problem_of(error: Exception) -> str:
    """The first line of what is wrong, short enough for a message."""
    return str(error).strip().partition("\n")[0][:200]


def saved(folder: Path) -> list[str]:
    """The checkpoints in a folder by their paths, the newest first.

    They are those that TensorFlow's list there names; where it is lost or garbled, all whose files
    are there.
    """
    named = listed(folder)
    if named is not None:
        return named
    numbered = [(re.fullmatch(r"ckpt-(\d+)", path.stem), path) for path in folder.glob("*.index")]
    found = sorted(((int(name[1]), path) for name, path in numbered if name), reverse=True)
    return [str(path.with_suffix("")) for _, path in found]


def listed(folder: Path) -> list[str] | None:
    """What TensorFlow's list in a folder names, the newest first; None where there is none.

    The list names a checkpoint once it is whole; its files are there before.
    """
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except ValueError:  # not text, or an empty file
        return None
    paths = list(reversed(state.all_model_checkpoint_paths)) if state else []
    return paths or None


def _repair_list(folder: Path) -> None:
    """Writes TensorFlow's list anew where it is lost or garbled: saving goes on from it."""
    if listed(folder) is not None:
        return
    paths = saved(folder)
    if paths:
        tf.compat.v1.train.update_checkpoint_state(str(folder), paths[0], list(reversed(paths)))
    else:
        (folder / "checkpoint").unlink(missing_ok=True)


class Checkpoints:
    """Saves and restores; only what the chief saves stays.

    Saving may need all workers (variables that are summed over the replicas), so all of them
    save: the others into a folder of their own inside the chief's, removed again.
    """

    def __init__(
        self, checkpoint: tf.train.Checkpoint, folder: Path, task: Task, arguments: Arguments
    ) -> None:
        self.folder = folder
        self._checkpoint, self._arguments = checkpoint, arguments
        self._temp_dir = None if task.is_chief else temp_dirs.of_task(task, folder)
        if task.is_chief:
            _repair_list(folder)
        self._manager = tf.train.CheckpointManager(
            checkpoint,
            str(self._temp_dir or folder),
            max_to_keep=arguments.max_to_keep if task.is_chief else 1,
        )

    def restore(self, say: Callable[[str], None]) -> str | None:
        """Restores the newest usable checkpoint; returns its name, or None where there is none.

        Raises:
            CheckpointError: there are checkpoints, but none fits.
        """
        paths = saved(self.folder)
        for path in paths:
            try:
                checkpoint_metadata.check(path, self._arguments, checkpoint_metadata.TRAINING)
                self._checkpoint.restore(path).assert_existing_objects_matched()
            except checkpoint_metadata.MismatchError as error:
                raise CheckpointError(
                    f"{path} cannot be resumed from: {error}; ask for the same, or name another "
                    "--checkpoint-dir"
                ) from error
            except UNUSABLE as error:
                say(f"{path} cannot be restored: {problem_of(error)}")
            else:
                return Path(path).name
        if paths:
            raise CheckpointError(
                f"none of the {len(paths)} checkpoints in {self.folder} can be restored; move them "
                "away to start anew, or name another --checkpoint-dir"
            )
        return None

    def save(self) -> None:
        """Saves; all workers must call it at the same step.

        Raises:
            DirectoryError: it cannot be written; what was saved before is still there.
        """
        folder = self._temp_dir or self.folder
        try:
            with explained_io_errors("checkpoint", folder):
                self._manager.save()
        except DirectoryError:
            temp_dirs.remove_partial_checkpoints(folder)
            raise

    def remove_temp_dir(self) -> None:
        """Removes what a worker that is not the chief has saved."""
        if self._temp_dir is not None:
            temp_dirs.remove(self._temp_dir)
