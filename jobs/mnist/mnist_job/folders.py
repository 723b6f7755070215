"""The folders that a run writes to: tried before TensorFlow's slow import, and swept."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from mnist_job.cluster import Task
from mnist_job.errors import UsageError
from mnist_job.options import Options

_TEMP_PREFIX = "workertemp_"
"""As in TensorFlow's tutorial on multi-worker training."""


def write_filepath(checkpoint_dir: Path, task: Task) -> Path:
    """Where a task saves: the chief in the folder itself, others in temporary folders in it."""
    if task.is_chief:
        return checkpoint_dir
    return checkpoint_dir / f"{_TEMP_PREFIX}{task.role}_{task.index}"


def prepare(options: Options, task: Task) -> None:
    """Creates and tries the folders that this task writes to, and sweeps its own leftovers.

    A task that does not save in a folder removes nothing there: another one may be saving.
    """
    # Saving has collectives, so every worker that shares a step saves. On parameter servers, only
    # the chief does.
    saves = task.is_chief or (task.role == "worker" and options.strategy != "parameter_server")
    if options.checkpoint_dir and saves:
        _try_to_write("--checkpoint-dir", options.checkpoint_dir)
        _sweep(options.checkpoint_dir, task)
    if options.summary_dir and task.is_chief:
        _try_to_write("--summary-dir", options.summary_dir)
    if options.export_dir and task.is_chief:
        _check_export(options.export_dir)


def remove_partial_checkpoints(folder: Path) -> None:
    """Removes what TensorFlow leaves if it is killed while it saves."""
    for partial in folder.glob("ckpt-*_temp"):
        shutil.rmtree(partial, ignore_errors=True)


def _sweep(folder: Path, task: Task) -> None:
    if not task.is_chief:
        shutil.rmtree(write_filepath(folder, task), ignore_errors=True)
        return
    remove_partial_checkpoints(folder)
    names = {f"{role}_{at}" for role, tasks in task.cluster for at in range(len(tasks))}
    for left in folder.glob(f"{_TEMP_PREFIX}*_*"):
        if left.name.removeprefix(_TEMP_PREFIX) not in names:  # of an earlier, larger cluster
            shutil.rmtree(left, ignore_errors=True)


def _check_export(folder: Path) -> None:
    if folder.name in {"", ".."} or folder.is_mount():
        raise UsageError(
            f"--export-dir {folder} cannot be replaced by a new folder: name one inside it"
        )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"--export-dir {folder} is there, and is no folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "saved_model.pb").exists():
        raise UsageError(f"--export-dir {folder} holds other things than a SavedModel")
    _try_to_write("--export-dir", folder.parent)


def _try_to_write(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise UsageError(
            f"{option}: nothing can be written to {folder} ({error.strerror}); name another folder"
        ) from error
