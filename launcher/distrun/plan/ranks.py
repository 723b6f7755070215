"""Ranks of tasks, and the variables that pass them to programs (docs/spec.md lists all variables).

The chief and the workers are one group. They have the ranks that MultiWorkerMirroredStrategy gives
them: the chief is first. The tasks of each other role are a group of their own, in which a task's
rank is its index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from distrun.frozen import Frozen
from distrun.plan.placement import Placed, split_address
from distrun.spec.model import TORCHRUN
from distrun.strategies import Role

AT_LAUNCH = ("DISTRUN_JOB_ID", "DISTRUN_TOKEN", "DISTRUN_ATTEMPT", "DISTRUN_NOTIFY")
"""Variables whose values are not known before the launch."""
RANKS = ("DISTRUN_RANK", "DISTRUN_LOCAL_RANK", "RANK", "LOCAL_RANK")
"""Variables that differ between tasks of one program."""


class Rank(Frozen, kw_only=True):
    """A task's place in its group. `local`: among the group's tasks on the same host."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    first: str


def ranks(placement: Iterable[Placed]) -> dict[str, Rank]:
    """Return the ranks by task. `placement` is in the order of roles and indices."""
    groups: dict[Role, list[Placed]] = {}
    for placed in placement:
        role = placed.role.role
        groups.setdefault(Role.WORKER if role is Role.CHIEF else role, []).append(placed)
    found = {}
    for members in groups.values():
        sizes = Counter(placed.host.name for placed in members)
        before: Counter[str] = Counter()
        for number, placed in enumerate(members):
            host = placed.host.name
            found[placed.name] = Rank(
                rank=number,
                size=len(members),
                local_rank=before[host],
                local_size=sizes[host],
                first=members[0].name,
            )
            before[host] += 1
    return found


def rank_variables(rank: Rank) -> dict[str, str]:
    return {
        "DISTRUN_RANK": str(rank.rank),
        "DISTRUN_WORLD_SIZE": str(rank.size),
        "DISTRUN_LOCAL_RANK": str(rank.local_rank),
    }


def torchrun_variables(rank: Rank, addresses: Mapping[str, str]) -> dict[str, str]:
    """Return what torchrun sets. Rank 0 listens on its own port, which nothing else uses."""
    host, port = split_address(addresses[rank.first])
    values = (rank.rank, rank.size, rank.local_rank, rank.local_size, host, port)
    return {name: str(value) for name, value in zip(TORCHRUN, values, strict=True)}
