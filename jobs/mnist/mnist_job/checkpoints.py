"""Checkpoints, saved by all workers together and kept by the chief; the export of the model."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from mnist_job import JobError
from mnist_job.cluster import Task, remove_partial_checkpoints, write_filepath
from mnist_job.options import Options

TRAINING = ("dataset", "model", "optimizer")
"""Options that a resumed run must share with the checkpoint."""
EVALUATION = ("dataset", "model")
_UNUSABLE = (tf.errors.OpError, IndexError, RuntimeError, AssertionError, ValueError)
"""Raised for a checkpoint that is damaged or missing, or (the last two) of another model."""
_FILE_ERRORS = (
    *(OSError, tf.errors.NotFoundError, tf.errors.FailedPreconditionError),
    *(tf.errors.PermissionDeniedError, tf.errors.ResourceExhaustedError),  # the last: full disk
    tf.errors.OutOfRangeError,  # a file that becomes too large
)
"""The loss of a peer raises others: Unavailable, Aborted, Cancelled, Internal."""


class DamagedError(JobError):
    """A checkpoint cannot be read, or is not there."""


class WriteError(JobError):
    """A file cannot be written, for example because the disk is full."""


class Counters(tf.train.experimental.PythonState):  # type: ignore[misc]
    """How far a run has come. Python numbers: variables would be written and read at each step."""

    NUMBERS = ("epoch", "step", "epoch_images", "total_steps", "images_seen")
    KEY = "counters/.ATTRIBUTES/py_state"  # in a checkpoint that has them as `counters`

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.epoch = self.step = self.epoch_images = 0
        """Finished epochs; finished steps of the current epoch, and the images in them."""
        self.total_steps = self.images_seen = 0
        self._trained_with = {name: getattr(options, name) for name in TRAINING}

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, after step {self.step}"

    def count_steps(self, steps: int, images: int) -> None:
        self.step += steps
        self.total_steps += steps
        self.epoch_images += images
        self.images_seen += images

    def begin_epoch(self) -> None:
        self.epoch += 1
        self.step = self.epoch_images = 0

    def serialize(self) -> str:
        """Called when a checkpoint is saved."""
        numbers = {name: getattr(self, name) for name in self.NUMBERS}
        return json.dumps({**numbers, **self._trained_with})

    def deserialize(self, string_value: str | bytes) -> None:
        """Called when a checkpoint is restored."""
        for name in self.NUMBERS:
            setattr(self, name, json.loads(string_value)[name])


@contextmanager
def explained_io_errors(what: str, folder: Path | None) -> Iterator[None]:
    """Raises WriteError in place of Python's and TensorFlow's errors about files."""
    try:
        yield
    except _FILE_ERRORS as error:
        # Without TensorFlow's own names of operations.
        problem = re.sub(r"\{\{.*?\}\}| \[Op:\w+\]", "", getattr(error, "message", str(error)))
        raise WriteError(f"no {what} can be written to {folder}: {_first_line(problem)}") from error


def _first_line(error: object) -> str:
    """The first line of an error, short enough for a message."""
    return str(error).strip().partition("\n")[0][:300]


def listed(folder: Path) -> list[str]:
    """The paths in TensorFlow's list in a folder, the newest first; empty if there is no list.

    A checkpoint enters the list when it is complete. Its files exist before.
    """
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except ValueError:  # not text, or an empty file
        return []
    return list(reversed(state.all_model_checkpoint_paths)) if state else []


def saved(folder: Path) -> list[str]:
    """The same. If the list is lost or damaged, all checkpoints whose files exist.

    Without a list, the first save may have been interrupted. What it left is no checkpoint.
    """
    numbered = [(re.fullmatch(r"ckpt-(\d+)", path.stem), path) for path in folder.glob("*.index")]
    found = sorted(((int(name[1]), path) for name, path in numbered if name), reverse=True)
    if [number for number, _ in found] == [1] and not (folder / "checkpoint").exists():
        try:
            reader = tf.train.load_checkpoint(str(folder / "ckpt-1"))
            list(map(reader.get_tensor, reader.get_variable_to_shape_map()))  # reads all
        except _UNUSABLE:
            return []
    return listed(folder) or [str(path.with_suffix("")) for _, path in found]


def restore(checkpoint: Any, path: str, options: Options, same: tuple[str, ...]) -> None:
    """Restores everything that `checkpoint` has, and ignores what else the file has.

    Raises:
        DamagedError: an older checkpoint may be whole.
        JobError: it was trained with other options, of those named in `same`.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        if not reader.has_tensor(Counters.KEY):
            raise JobError(f"{path} cannot be restored: it is no checkpoint of this program")
        trained_with = json.loads(reader.get_tensor(Counters.KEY))
        for name in same:
            trained, asked = trained_with[name], getattr(options, name)
            if trained != asked:
                problem = f"it was trained with --{name} {trained}, not {asked}"
                advice = "use the same options, or another checkpoint folder"
                raise JobError(f"{path} cannot be restored: {problem}; {advice}")
        checkpoint.restore(path).assert_existing_objects_matched().expect_partial()
    except _UNUSABLE as error:
        raise DamagedError(f"{path} cannot be restored: {_first_line(error)}") from error


class Checkpoints:
    """Saves and restores. Only the chief's checkpoints are kept.

    Saving can need all workers, because it sums some variables over the replicas. So all of them
    save: the others into their own temporary folders inside the chief's folder.
    """

    def __init__(self, checkpoint: Any, folder: Path, task: Task, options: Options) -> None:
        self.folder, self._own = folder, write_filepath(folder, task)
        self._checkpoint, self._options = checkpoint, options
        if task.is_chief and not listed(folder):
            # Saving continues TensorFlow's list: write it again if it is lost or damaged.
            paths = saved(folder)
            (folder / "checkpoint").unlink(missing_ok=True)
            if paths:
                tf.compat.v1.train.update_checkpoint_state(str(folder), paths[0], paths[::-1])
        keep = 3 if task.is_chief else 1
        self._manager = tf.train.CheckpointManager(checkpoint, str(self._own), max_to_keep=keep)

    def restore(self) -> str:
        """Restores the newest usable checkpoint; returns its name."""
        paths = saved(self.folder)
        for path in paths:
            try:
                restore(self._checkpoint, path, self._options, TRAINING)
            except DamagedError as error:
                print(error, flush=True)
            else:
                return Path(path).name
        advice = "move them away to start anew, or name another --checkpoint-dir"
        found = f"none of the {len(paths)} checkpoints in {self.folder} can be restored"
        raise JobError(f"{found}; {advice}")

    def save(self) -> None:
        """Saves. All workers must call it at the same step. Earlier ones stay if it fails."""
        try:
            with explained_io_errors("checkpoint", self._own):
                self._manager.save()
        except WriteError:
            remove_partial_checkpoints(self._own)
            raise

    def remove_temp_dir(self) -> None:
        """Removes the temporary folder of a worker that is not the chief."""
        if self._own != self.folder:
            shutil.rmtree(self._own, ignore_errors=True)


def export(model: Any, plain: Any, folder: Path) -> None:
    """Writes a trained model completely, or not at all; replaces a SavedModel that is there.

    Only the chief calls this: unlike metrics, the variables of layers can be read without other
    workers. They are copied to `plain`, which has no strategy. Otherwise, the SavedModel would
    contain the training's devices, and the parts into which parameter servers divide a variable.
    """
    served = tf.Module()
    served.model = plain
    served.__call__ = tf.function(
        lambda images: {"logits": plain(images, training=False)},
        input_signature=[tf.TensorSpec((None, *plain.input_shape[1:]), tf.float32, "images")],
    )
    with (
        explained_io_errors("model", folder),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary,
    ):
        new, old = Path(temporary, "new"), Path(temporary, "old")
        copied = tf.train.Checkpoint(layers=model.layers).write(str(Path(temporary, "layers")))
        tf.train.Checkpoint(layers=plain.layers).read(copied).assert_consumed()
        tf.saved_model.save(served, str(new), signatures={"serving_default": served.__call__})
        with suppress(FileNotFoundError):
            folder.rename(old)
        new.rename(folder)
