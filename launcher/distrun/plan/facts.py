"""What a host has for its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What a host said of itself, and what a task there inherits."""

    cores: float
    gpus: tuple[str, ...] = ()
    """CUDA's names for the GPUs that tasks may use."""
    python: str
    """The interpreter to run scripts with where the spec names none."""
    environ: Mapping[str, str]
    """Of the environment that its tasks inherit, at least the variables that are READ here."""
    address: str | None = None
    """What the other hosts dial; None: its name."""
    files: str | None = None
    """Where the copy of the program's files is on it; None: they are where they are here."""
    has_launch_folders: bool = False
    """Whether it has the launching side's folders at the same paths."""


READ = (
    "CUDA_VISIBLE_DEVICES",
    "NO_PROXY",
    "OMP_NUM_THREADS",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_NUM_INTRAOP_THREADS",
    "no_proxy",
)
"""Variables of a host that a plan depends on."""
