"""What a job asks Slurm for: its nodes, and the options of sbatch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from distrun.spec.model import RoleSpec, Spec
from distrun.spec.schedulers import SlurmSpec
from distrun.strategies import Role

_OWN_NODE = (Role.CHIEF, Role.WORKER)
"""Roles whose tasks get a node each, unless GPUs decide. The others run beside them."""
_MIB = 1 << 20


def nodes(roles: Iterable[RoleSpec], slurm: SlurmSpec, spares: int) -> int:
    if slurm.nodes is not None:
        return slurm.nodes
    roles = tuple(roles)
    with_gpus = math.ceil(sum(_share(role, slurm) for role in roles if role.gpus))
    alone = sum(each.count for each in roles if each.role in _OWN_NODE and not each.gpus)
    return max(1, with_gpus + alone) + spares


def _share(role: RoleSpec, slurm: SlurmSpec) -> float:
    given = (slurm.gpus_per_node or "").rpartition(":")[2]
    room = int(given or 0) // (role.gpus or 1)
    return role.count / room if room else role.count


def options(spec: Spec) -> Iterator[tuple[str, str | None]]:
    """Yield the options of sbatch with their values; None: it has no value."""
    slurm, spares = spec.slurm, len(spec.spares)
    count = nodes(spec.roles, slurm, spares)
    tasks = sum(role.count for role in spec.roles)
    yield "job-name", spec.name
    yield "nodes", str(count)
    # `cpus_per_task` is for each of them.
    yield "ntasks-per-node", str(max(1, math.ceil(tasks / max(1, count - spares))))
    wanted = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time": None if slurm.time is None else math.ceil(slurm.time / 60),  # minutes
        "gpus-per-node": slurm.gpus_per_node,
        "cpus-per-task": slurm.cpus_per_task,
        "mem": None if slurm.mem_per_node is None else f"{-(-slurm.mem_per_node // _MIB)}M",
        "constraint": slurm.constraint,
    }
    for name, value in wanted.items():
        if value is not None:
            yield name, str(value)
    if slurm.exclusive:
        yield "exclusive", None
    # Only the batch script is told: distrun then stops the tasks in their order.
    yield "signal", f"B:TERM@{math.ceil(slurm.signal_before_end)}"
    yield ("requeue" if slurm.requeue else "no-requeue"), None
    if spec.restart.max > 0:
        yield "no-kill", None  # a lost node is replaced, and does not end the job
    yield "open-mode", "append"
    for name, value in slurm.options.items():
        yield name, None if value in ("", "true") else value
