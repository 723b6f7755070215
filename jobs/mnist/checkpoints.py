"""Saves and restores the state of a run."""

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
    # Damaged or missing, as raised by operations and by the reader of the object graph:
    tf.errors.OpError,
    IndexError,
    RuntimeError,
    # The checkpoint of another model:
    AssertionError,
    ValueError,
)


class CheckpointError(Exception):
    """The run cannot resume from the checkpoints: the message says why and what to do."""


def problem_of(error: Exception) -> str:
    """The first line of an error, short enough for a message."""
    return str(error).strip().partition("\n")[0][:200]


def saved(folder: Path) -> list[str]:
    """The paths of the checkpoints in a folder, the newest first.

    They are those in TensorFlow's list. If the list is lost or damaged, they are all whose files
    exist.
    """
    named = listed(folder)
    if named is not None:
        return named
    numbered = [(re.fullmatch(r"ckpt-(\d+)", path.stem), path) for path in folder.glob("*.index")]
    found = sorted(((int(name[1]), path) for name, path in numbered if name), reverse=True)
    return [str(path.with_suffix("")) for _, path in found]


def listed(folder: Path) -> list[str] | None:
    """The paths in TensorFlow's list in a folder, the newest first; None if there is no list.

    A checkpoint enters the list when it is complete. Its files exist before.
    """
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except ValueError:  # not text, or an empty file
        return None
    paths = list(reversed(state.all_model_checkpoint_paths)) if state else []
    return paths or None


def _repair_list(folder: Path) -> None:
    """Writes TensorFlow's list again if it is lost or damaged, because saving continues it."""
    if listed(folder) is not None:
        return
    paths = saved(folder)
    if paths:
        tf.compat.v1.train.update_checkpoint_state(str(folder), paths[0], list(reversed(paths)))
    else:
        (folder / "checkpoint").unlink(missing_ok=True)


class Checkpoints:
    """Saves and restores. Only the chief's checkpoints are kept.

    Saving can need all workers, because it sums some variables over the replicas. So all of them
    save: the others into their own temporary folders inside the chief's folder.
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
        """Restores the newest usable checkpoint; returns its name, or None if there is none.

        Raises:
            CheckpointError: there are checkpoints, but none is usable.
        """
        paths = saved(self.folder)
        for path in paths:
            try:
                checkpoint_metadata.check(path, self._arguments, checkpoint_metadata.TRAINING)
                self._checkpoint.restore(path).assert_existing_objects_matched()
            except checkpoint_metadata.MismatchError as error:
                raise CheckpointError(
                    f"{path} cannot be resumed from: {error}; use the same options, or name "
                    "another --checkpoint-dir"
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
        """Saves. All workers must call it at the same step.

        Raises:
            DirectoryError: the checkpoint cannot be written. Earlier ones are still there.
        """
        folder = self._temp_dir or self.folder
        try:
            with explained_io_errors("checkpoint", folder):
                self._manager.save()
        except DirectoryError:
            temp_dirs.remove_partial_checkpoints(folder)
            raise

    def remove_temp_dir(self) -> None:
        """Removes the temporary folder of a worker that is not the chief."""
        if self._temp_dir is not None:
            temp_dirs.remove(self._temp_dir)
