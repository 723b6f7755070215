"""This task, as TF_CONFIG describes it, and the folders it writes to. Needs no TensorFlow."""

import json
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mnist_job import JobError

_FORM = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True, kw_only=True)
class Task:
    """One process. `cluster` has the addresses of each role's tasks; empty without a cluster."""

    role: str = "worker"
    index: int = 0
    cluster: Mapping[str, Sequence[str]] = field(default_factory=dict)

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
        return self.name == ("chief:0" if self.count("chief") else "worker:0")


def read_task(environ: Mapping[str, str]) -> Task:
    """Reads TF_CONFIG; raises JobError if it does not describe a cluster and a task."""
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
        raise JobError(f"TF_CONFIG must look like {_FORM}; {problem}", code=2) from error
    return Task(role=role, index=index, cluster=cluster)


def try_to_write(options: Namespace, task: Task) -> None:
    """Creates the folders that the chief writes to; raises JobError if nothing can be written."""
    for option in ("checkpoint_dir", "summary_dir") if task.is_chief else ():
        if folder := getattr(options, option):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=folder).close()
            except OSError as error:
                problem = f"nothing can be written to {folder} ({error.strerror})"
                raise JobError(f"--{option.replace('_', '-')}: {problem}", code=2) from error
