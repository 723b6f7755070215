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
    """The environment that its tasks inherit."""
