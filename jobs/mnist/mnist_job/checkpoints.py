"""Saving, restoring, and testing what was restored."""

import json
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from mnist_job import JobError, first_line, launcher
from mnist_job.data import DataSet
from mnist_job.options import Options
from mnist_job.training import Training

_UNUSABLE = (tf.errors.OpError, IndexError, RuntimeError, AssertionError, ValueError)
"""Raised for a checkpoint that is damaged or missing, or (the last two) of another model."""
_NAMES = ("Unavailable", "Aborted", "Cancelled", "Internal")
_PEER_ERRORS = tuple(getattr(tf.errors, f"{name}Error") for name in _NAMES)
"""Raised when a peer is lost. Others are about files."""


class Counters(tf.train.experimental.PythonState):  # type: ignore[misc]
    """Finished epochs; steps of the current epoch and images in them; those of all epochs."""

    KEY = "counters/.ATTRIBUTES/py_state"  # in a checkpoint that has them as `counters`
    # Python's numbers: variables would be written and read at each step.
    NUMBERS = ("epoch", "step", "epoch_images", "total_steps", "images_seen")
    epoch = step = epoch_images = total_steps = images_seen = 0

    def __init__(self, options: Options) -> None:
        super().__init__()
        names = ("dataset", "model", "optimizer")
        self.trained_with = {name: getattr(options, name) for name in names}

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, after step {self.step}"

    def serialize(self) -> str:
        numbers = {name: getattr(self, name) for name in self.NUMBERS}
        return json.dumps({**numbers, **self.trained_with})

    def deserialize(self, string_value: str | bytes) -> None:
        for name in self.NUMBERS:
            setattr(self, name, json.loads(string_value)[name])


def saved(folder: Path) -> list[str]:
    """The paths of the complete checkpoints in a folder, the newest first: TensorFlow's list.

    One without a list is what an interrupted first save has left. Several: the list is lost.
    """
    with suppress(ValueError):  # not text, or an empty file
        if state := tf.train.get_checkpoint_state(str(folder)):
            return list(reversed(state.all_model_checkpoint_paths))
    names = sorted(path.stem for path in folder.glob("ckpt-*.index"))
    if names not in ([], ["ckpt-1"]) or (folder / "checkpoint").exists():
        advice = "name one of them to --evaluate, or move them away to start from the beginning"
        raise JobError(f"the list {folder}/checkpoint of {', '.join(names)} is lost: {advice}")
    return []


def restore(checkpoint: Any, path: str) -> None:
    """Restores all that `checkpoint` has; raises JobError if it cannot, or other options differ."""
    try:
        trained_with = json.loads(tf.train.load_checkpoint(path).get_tensor(Counters.KEY))
        for name, asked in checkpoint.counters.trained_with.items():
            if (found := trained_with[name]) != asked:
                problem = f"it was trained with --{name} {found}, not {asked}"
                raise JobError(f"{problem}; use the same options, or another folder")
        checkpoint.restore(path).assert_existing_objects_matched().expect_partial()
    except (JobError, *_UNUSABLE) as error:
        raise JobError(f"{path} cannot be restored: {first_line(error)}") from error


class Checkpoints:
    """Saves and restores. Saving can sum variables over the replicas, so all workers save.

    Only the chief's checkpoints are kept. The others save into temporary folders inside its folder.
    """

    def __init__(self, state: dict[str, Any], options: Options) -> None:
        self.folder, task = options.checkpoint_dir, options.task
        self._own, keep = self.folder, 3
        if not task.is_chief:
            self._own, keep = self.folder / f"workertemp_{task.role}_{task.index}", 1
        else:  # nobody saves before all have come here
            for left in (*self.folder.glob("ckpt-*_temp"), *self.folder.glob("workertemp_*")):
                shutil.rmtree(left, ignore_errors=True)
        saved(self.folder)  # raises JobError if the list is damaged, which the manager cannot read
        self._checkpoint = tf.train.Checkpoint(**state)
        self._manager = tf.train.CheckpointManager(self._checkpoint, str(self._own), keep)

    def restore(self) -> str | None:
        """Restores the newest usable checkpoint; returns its name, or None if there is none."""
        problems = []
        for path in saved(self.folder):
            try:
                restore(self._checkpoint, path)
                return Path(path).name
            except JobError as error:
                problems.append(error)
                print(error)
        if problems:
            found = f"none of the {len(problems)} checkpoints in {self.folder} can be restored"
            advice = "move them away to start from the beginning, or name another --checkpoint-dir"
            raise JobError(f"{found}: {problems[0]}; {advice}")
        if (self.folder / "ckpt-1.index").exists():
            torn = f"the first checkpoint in {self.folder} is incomplete"
            print(f"{torn}: its save was interrupted; training starts from the beginning")
        return None

    def save(self) -> None:
        """Saves. All workers must call it at the same step. Earlier ones stay if it fails."""
        try:
            self._manager.save()
        except _PEER_ERRORS:
            raise
        except (OSError, tf.errors.OpError) as error:
            for left in self._own.glob("ckpt-*_temp"):
                shutil.rmtree(left, ignore_errors=True)
            problem = f"no checkpoint can be written to {self._own}"
            raise JobError(f"{problem}: {first_line(error)}") from error

    def remove_temp_dir(self) -> None:
        if self._own != self.folder:
            shutil.rmtree(self._own, ignore_errors=True)


def evaluate(data: DataSet, options: Options) -> None:
    """Tests the checkpoint of --evaluate, or all that others save, up to the last epoch's."""
    training, counters = Training(tf.distribute.get_strategy(), data, options), Counters(options)
    del counters.trained_with["optimizer"]  # which is not restored
    checkpoint = tf.train.Checkpoint(model=training.model, counters=counters)
    folder, epochs, asked = options.checkpoint_dir, options.epochs, options.evaluate
    if asked:
        paths = saved(asked)[:1] if asked.is_dir() else [str(asked).removesuffix(".index")]
        if not (paths and Path(f"{paths[0]}.index").exists()):
            advice = "name a folder that has one, or a checkpoint such as run1/ckpt-3"
            raise JobError(f"there is no checkpoint at {asked}: {advice}")
    else:
        print(f"evaluator: follows the checkpoints in {folder} to epoch {epochs}")
        paths = tf.train.checkpoints_iterator(str(folder), min_interval_secs=0.2)
    for path in paths:
        began = time.monotonic()
        try:
            restore(checkpoint, path)
        except JobError as error:
            if asked:
                raise
            print(error)  # or the chief has removed it, because there are newer ones
            continue
        loss, accuracy = training.test()
        at = str(counters) if counters.step else f"epoch {counters.epoch}"
        tested = f"data: {data.source}, {len(data.test_images):,} images"
        results = f"test_accuracy {accuracy:.3f}  test_loss {loss:.3f}"
        print(f"{Path(path).name} ({at}): {results}  {tested}")
        counts = {"STEP": counters.total_steps, "EPOCH": max(counters.epoch, 1), "EPOCHS": epochs}
        speed = len(data.test_images) / max(time.monotonic() - began, 1e-9)
        launcher.report(**counts, LOSS=loss, EXAMPLES_PER_SEC=speed)
        if counters.epoch >= epochs:
            return
