"""Ranks of tasks, for programs that need them.

The chief and the workers are one group. They have the ranks that MultiWorkerMirroredStrategy gives
them: the chief is first. The tasks of each other role are a group of their own, in which a task's
rank is its index.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.strategies import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.plan.placement import Placed


class Rank(Frozen, kw_only=True):
    """A task's place in its group. `local`: among the group's tasks on the same host."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    first: str
    """The task with rank 0."""


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
