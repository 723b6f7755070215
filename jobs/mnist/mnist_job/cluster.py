"""This task, as TF_CONFIG describes it, and the directories it writes to. Needs no TensorFlow."""

import json
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mnist_job import UsageError

_FORM = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
_TEMP_PREFIX = "workertemp_"
"""As in TensorFlow's tutorial on multi-worker training."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One process of the cluster."""

    role: str = "worker"
    index: int = 0
    cluster: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The addresses of each role's tasks; empty without a cluster."""

    @property
    def name(self) -> str:
        return f"{self.role}:{self.index}"

    def count(self, role: str) -> int:
        return len(self.cluster.get(role, ()))

    @property
    def trainers(self) -> int:
        """The number of tasks that train: the chief and the workers; 1 without a cluster."""
        return self.count("chief") + self.count("worker") or 1

    @property
    def is_chief(self) -> bool:
        """Whether this task's checkpoints are kept: the chief, or worker 0 if there is no chief."""
        chief = "chief" if self.count("chief") else "worker"
        return self.role == chief and self.index == 0


def read_task(environ: Mapping[str, str]) -> Task:
    """Reads TF_CONFIG; raises UsageError if it does not describe a cluster and a task."""
    text = environ.get("TF_CONFIG", "").strip() or "{}"
    try:
        config = json.loads(text)
        if not config.get("cluster"):
            return Task()
        cluster = {str(role): [*map(str, at)] for role, at in config["cluster"].items()}
        role, index = str(config["task"]["type"]), int(config["task"]["index"])
        # An evaluator need not be in the cluster.
        if role != "evaluator" and index not in range(len(cluster[role])):
            raise ValueError(f"{role}:{index} is not in the cluster")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"it is {text[:200]!r} ({type(error).__name__}: {error})"
        raise UsageError(f"TF_CONFIG must look like {_FORM}; {problem}") from error
    return Task(role=role, index=index, cluster=cluster)


def write_filepath(checkpoint_dir: Path, task: Task) -> Path:
    """Where a task saves: the chief in the folder itself, others in temporary folders in it."""
    temporary = checkpoint_dir / f"{_TEMP_PREFIX}{task.role}_{task.index}"
    return checkpoint_dir if task.is_chief else temporary


def prepare_directories(options: Namespace, task: Task) -> None:
    """Creates and tries the folders that this task writes to, and removes its own leftovers.

    A task that does not save in a folder removes nothing there: another one may be saving.
    """
    # Saving has collectives, so every worker that shares a step saves. On parameter servers, only
    # the chief does.
    saves = task.is_chief or (task.role == "worker" and options.strategy != "parameter_server")
    if options.checkpoint_dir and saves:
        _try_to_write("--checkpoint-dir", options.checkpoint_dir)
        _remove_leftovers(options.checkpoint_dir, task)
    if options.summary_dir and task.is_chief:
        _try_to_write("--summary-dir", options.summary_dir)
    if options.export_dir and task.is_chief:
        _check_export(options.export_dir)
        _try_to_write("--export-dir", options.export_dir.parent)


def remove_partial_checkpoints(folder: Path) -> None:
    """Removes the files that TensorFlow leaves if it is killed while it saves."""
    for partial in folder.glob("ckpt-*_temp"):
        shutil.rmtree(partial, ignore_errors=True)


def _remove_leftovers(folder: Path, task: Task) -> None:
    left = {write_filepath(folder, task)}
    if task.is_chief:
        remove_partial_checkpoints(folder)
        tasks = [(role, index) for role in task.cluster for index in range(task.count(role))]
        own = {folder / f"{_TEMP_PREFIX}{role}_{index}" for role, index in tasks}
        left = {*folder.glob(f"{_TEMP_PREFIX}*_*")} - own  # of an earlier, larger cluster
    for path in left:
        shutil.rmtree(path, ignore_errors=True)


def _check_export(folder: Path) -> None:
    """Checks that a new folder can take this one's place: it is absent, empty or a SavedModel."""
    replaceable = not folder.exists()
    if folder.is_dir():
        replaceable = (folder / "saved_model.pb").exists() or not any(folder.iterdir())
    if not replaceable or folder.is_symlink() or folder.is_mount():
        advice = "name one that is absent, empty or a SavedModel"
        raise UsageError(f"--export-dir {folder} cannot be replaced by a new folder: {advice}")


def _try_to_write(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        problem = f"nothing can be written to {folder} ({error.strerror})"
        raise UsageError(f"{option}: {problem}; name another folder") from error
