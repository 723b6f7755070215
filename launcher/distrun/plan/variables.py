"""The variables by which a program learns its rank. docs/spec.md lists all variables of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.plan.placement import split_address
from distrun.spec.model import TORCHRUN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distrun.plan.ranks import Rank

AT_LAUNCH = ("DISTRUN_JOB_ID", "DISTRUN_TOKEN", "DISTRUN_ATTEMPT", "DISTRUN_NOTIFY")
"""Variables whose values are not known before the launch."""
RANKS = ("DISTRUN_RANK", "DISTRUN_LOCAL_RANK", "RANK", "LOCAL_RANK")
"""Variables that differ between tasks of one program."""


def rank_variables(rank: Rank) -> dict[str, str]:
    """Return the variables for programs that need ranks."""
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
