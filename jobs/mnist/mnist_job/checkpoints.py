"""Checkpoints, saved by all workers together and kept by the chief."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from mnist_job import JobError
from mnist_job.cluster import Task
from mnist_job.options import Options

TRAINING, EVALUATION = ("dataset", "model", "optimizer"), ("dataset", "model")
"""Options that a resumed run, or an evaluation, must share with the checkpoint."""
_UNUSABLE = (tf.errors.OpError, IndexError, RuntimeError, AssertionError, ValueError)
"""Raised for a checkpoint that is damaged or missing, or (the last two) of another model."""
_NAMES = ("Unavailable", "Aborted", "Cancelled", "Internal")
_PEER_ERRORS = tuple(getattr(tf.errors, f"{name}Error") for name in _NAMES)
"""Raised when a peer is lost. Others are about files."""


class Counters(tf.train.experimental.PythonState):  # type: ignore[misc]
    """How far a run has come. Python numbers: variables would be written and read at each step.

    Finished epochs; steps of the current epoch and images in them; those of all epochs.
    """

    KEY = "counters/.ATTRIBUTES/py_state"  # in a checkpoint that has them as `counters`
    NUMBERS = ("epoch", "step", "epoch_images", "total_steps", "images_seen")
    epoch = step = epoch_images = total_steps = images_seen = 0

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._trained_with = {name: getattr(options, name) for name in TRAINING}

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, after step {self.step}"

    def count_steps(self, steps: int, images: int) -> None:
        self.step += steps
        self.total_steps += steps
        self.epoch_images += images
        self.images_seen += images

    def serialize(self) -> str:
        numbers = {name: getattr(self, name) for name in self.NUMBERS}
        return json.dumps({**numbers, **self._trained_with})

    def deserialize(self, string_value: str | bytes) -> None:
        for name in self.NUMBERS:
            setattr(self, name, json.loads(string_value)[name])


def saved(folder: Path) -> list[str]:
    """The paths of the complete checkpoints in a folder, the newest first: TensorFlow's list.

    A checkpoint enters the list when it is complete. So one without a list is what an interrupted
    first save has left. If there are several, the list is lost.
    """
    with suppress(ValueError):  # not text, or an empty file
        if state := tf.train.get_checkpoint_state(str(folder)):
            return list(reversed(state.all_model_checkpoint_paths))
    names = sorted(path.stem for path in folder.glob("ckpt-*.index"))
    if names not in ([], ["ckpt-1"]) or (folder / "checkpoint").exists():
        advice = "name one of them to --evaluate, or move them away to start anew"
        raise JobError(f"the list {folder}/checkpoint of {', '.join(names)} is lost: {advice}")
    return []


def restore(checkpoint: Any, path: str, options: Options, same: tuple[str, ...]) -> None:
    """Restores everything that `checkpoint` has; raises JobError if that cannot be.

    What else the file has is ignored. It must be trained with the same options, of those named.
    """
    failed = f"{path} cannot be restored"
    try:
        reader = tf.train.load_checkpoint(path)
        trained_with = json.loads(reader.get_tensor(Counters.KEY))
        for name in same:
            if trained_with[name] != (asked := getattr(options, name)):
                problem = f"it was trained with --{name} {trained_with[name]}, not {asked}"
                raise JobError(f"{failed}: {problem}; use the same options, or another folder")
        checkpoint.restore(path).assert_existing_objects_matched().expect_partial()
    except _UNUSABLE as error:
        raise JobError(f"{failed}: {str(error).strip().partition(chr(10))[0][:300]}") from error


def write_filepath(folder: Path, task: Task) -> Path:
    """Where a task saves: the chief in the folder itself, others in temporary folders in it."""
    return folder if task.is_chief else folder / f"workertemp_{task.role}_{task.index}"


class Checkpoints:
    """Saves and restores. Only the chief's checkpoints are kept.

    Saving can need all workers, because it sums some variables over the replicas. So all of them
    save: the others into their own temporary folders inside the chief's folder.
    """

    def __init__(self, state: dict[str, Any], folder: Path, task: Task, options: Options) -> None:
        self.folder, self._own, self._options = folder, write_filepath(folder, task), options
        if task.is_chief:  # nobody saves before all have come here
            self._remove(*folder.glob("ckpt-*_temp"), *folder.glob("workertemp_*"))
        saved(folder)  # raises JobError if the list is damaged, which the manager cannot read
        self._checkpoint, keep = tf.train.Checkpoint(**state), 3 if task.is_chief else 1
        self._manager = tf.train.CheckpointManager(self._checkpoint, str(self._own), keep)

    def restore(self) -> str | None:
        """Restores the newest usable checkpoint; returns its name, or None if there is none."""
        problems = []
        for path in saved(self.folder):
            try:
                restore(self._checkpoint, path, self._options, TRAINING)
            except JobError as error:
                problems.append(str(error))
            else:
                print(*problems, sep="\n", end="\n" * bool(problems), flush=True)
                return Path(path).name
        if problems:
            advice = "move them away to start anew, or name another --checkpoint-dir"
            found = f"none of the {len(problems)} checkpoints in {self.folder} can be restored"
            raise JobError(f"{found}: {problems[0]}; {advice}")
        if (self.folder / "ckpt-1.index").exists():
            torn = f"the first checkpoint in {self.folder} is incomplete"
            print(f"{torn}: its save was interrupted; training starts anew", flush=True)
        return None

    def save(self) -> None:
        """Saves. All workers must call it at the same step. Earlier ones stay if it fails."""
        try:
            self._manager.save()
        except _PEER_ERRORS:
            raise
        except (OSError, tf.errors.OpError) as error:
            self._remove(*self._own.glob("ckpt-*_temp"))
            problem = str(getattr(error, "message", error)).strip().partition("\n")[0][:300]
            raise JobError(f"no checkpoint can be written to {self._own}: {problem}") from error

    def remove_temp_dir(self) -> None:
        if self._own != self.folder:
            self._remove(self._own)

    def _remove(self, *folders: Path) -> None:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
