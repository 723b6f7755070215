"""Reads TF_CONFIG: this task and its cluster. Needs no TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from mnist_job.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Task:
    """One process of the cluster."""

    role: str = "worker"
    index: int = 0
    cluster: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(role, addresses of its tasks) for each role; empty without a cluster."""

    @property
    def name(self) -> str:
        return f"{self.role}:{self.index}"

    def addresses(self, role: str) -> tuple[str, ...]:
        return dict(self.cluster).get(role, ())

    def count(self, role: str) -> int:
        return len(self.addresses(role))

    @property
    def trainers(self) -> int:
        """The number of tasks that train: the chief and the workers; 1 without a cluster."""
        return self.count("chief") + self.count("worker") or 1

    @property
    def is_chief(self) -> bool:
        """Whether this task's checkpoints are kept: the chief, or worker 0 if there is no chief."""
        if self.count("chief"):
            return self.role == "chief"
        return self.role == "worker" and self.index == 0


def read_task(environ: Mapping[str, str]) -> Task:
    """Reads TF_CONFIG; raises UsageError if it does not describe a cluster and a task."""
    text = environ.get("TF_CONFIG", "").strip()
    try:
        config = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"TF_CONFIG is not JSON ({error}): {text[:60]!r}") from error
    cluster = config.get("cluster") if isinstance(config, dict) else None
    if not cluster:
        return Task()
    try:
        roles = tuple((str(role), tuple(map(str, each))) for role, each in cluster.items())
        task = config["task"]
        read = Task(role=str(task["type"]), index=int(task["index"]), cluster=roles)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            'TF_CONFIG must look like {"cluster": {"worker": ["host:port", ...]}, '
            '"task": {"type": "worker", "index": 0}}'
        ) from error
    # An evaluator need not be in the cluster.
    if read.role != "evaluator" and not 0 <= read.index < read.count(read.role):
        counts = ", ".join(f"{len(addresses)} {role}" for role, addresses in roles)
        raise UsageError(f"TF_CONFIG's task {read.name} is not in its cluster ({counts})")
    return read
