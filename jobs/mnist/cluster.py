"""This task's place in the cluster, as TF_CONFIG states it; needs no TensorFlow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClusterError(Exception):
    """TF_CONFIG is no cluster that this job can take part in; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One process of the cluster."""

    role: str = "worker"
    index: int = 0
    cluster: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(role, addresses of its tasks) of each role; empty where there is no cluster."""

    @property
    def name(self) -> str:
        return f"{self.role}:{self.index}"

    def addresses(self, role: str) -> tuple[str, ...]:
        """Where the cluster's tasks of this role are."""
        return dict(self.cluster).get(role, ())

    def count(self, role: str) -> int:
        """How many tasks of the cluster have this role."""
        return len(self.addresses(role))

    @property
    def trainers(self) -> int:
        """How many tasks train: the chief and the workers; 1 without a cluster."""
        return self.count("chief") + self.count("worker") or 1

    @property
    def is_chief(self) -> bool:
        """Whether this task's checkpoints stay: the chief, or worker 0 where there is none."""
        if self.count("chief"):
            return self.role == "chief"
        return self.role == "worker" and self.index == 0


def read_task(environ: Mapping[str, str]) -> Task:
    """Reads TF_CONFIG.

    Raises:
        ClusterError: the variable is set but is no valid description of a cluster and a task.
    """
    text = environ.get("TF_CONFIG", "").strip()
    if not text:
        return Task()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ClusterError(f"TF_CONFIG is not JSON ({error}): {text[:60]!r}") from error
    cluster = config.get("cluster") if isinstance(config, dict) else None
    if not cluster:
        return Task()
    task = config.get("task")
    try:
        roles = tuple(
            (str(role), tuple(map(str, addresses))) for role, addresses in cluster.items()
        )
        role, index = str(task["type"]), int(task["index"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            'TF_CONFIG must look like {"cluster": {"worker": ["host:port", ...]}, '
            '"task": {"type": "worker", "index": 0}}'
        ) from error
    read = Task(role=role, index=index, cluster=roles)
    # An evaluator may be in nobody's cluster.
    if role != "evaluator" and not 0 <= index < read.count(role):
        counts = ", ".join(f"{len(addresses)} {role}" for role, addresses in roles)
        raise ClusterError(f"TF_CONFIG's task {read.name} is not in its cluster ({counts})")
    return read
