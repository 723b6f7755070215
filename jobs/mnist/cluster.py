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
    cluster: tuple[tuple[str, int], ...] = ()
    """(role, number of tasks) of each role; empty where there is no cluster."""

    @property
    def name(self) -> str:
        return f"{self.role}:{self.index}"

    @property
    def trainers(self) -> int:
        """How many tasks train: the chief and the workers; 1 without a cluster."""
        return sum(count for role, count in self.cluster if role in {"chief", "worker"}) or 1

    @property
    def is_chief(self) -> bool:
        """Whether this task's checkpoints stay: the chief, or worker 0 where there is none."""
        if any(role == "chief" for role, _ in self.cluster):
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
        counts = tuple((str(role), len(addresses)) for role, addresses in cluster.items())
        role, index = str(task["type"]), int(task["index"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            'TF_CONFIG must look like {"cluster": {"worker": ["host:port", ...]}, '
            '"task": {"type": "worker", "index": 0}}'
        ) from error
    known = dict(counts)
    # An evaluator may be in nobody's cluster.
    if role != "evaluator" and not 0 <= index < known.get(role, 0):
        raise ClusterError(f"TF_CONFIG's task {role}:{index} is not in its cluster ({known})")
    return Task(role=role, index=index, cluster=counts)
