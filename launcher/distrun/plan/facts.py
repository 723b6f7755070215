"""The facts of a host on which a plan depends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distrun.agent.protocol import Cause
from distrun.frozen import Frozen
from distrun.plan.freed_memory import MALLOC_SETTINGS


class HostFacts(Frozen, kw_only=True):
    """A host's resources, and the environment that its tasks inherit."""

    cores: float
    gpus: tuple[str, ...] = ()
    """The GPUs that tasks may use, as in CUDA_VISIBLE_DEVICES."""
    gpu_failure: Cause | None = None
    python: str
    """The interpreter for scripts if the spec names none."""
    environ: Mapping[str, str]
    """The environment that its tasks inherit; at least the variables in READ."""
    address: str | None = None
    """The address by which other hosts reach it; None: its name."""
    files: str | None = None
    """The folder with the copy of the program's files; None: all paths are as on this machine."""
    has_launch_folders: bool = False
    """Whether it has the launching side's folders at the same paths."""
    libc: str = ""
    """Its C library and the version, such as `glibc 2.36`; empty if it is another one."""


READ = (
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "NO_PROXY",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_NUM_INTRAOP_THREADS",
    "no_grpc_proxy",
    "no_proxy",
    *MALLOC_SETTINGS,
)
"""The variables of a host that a plan depends on; `NAME*`: all that begin so."""


def visible_gpus(environ: Mapping[str, str], indices: Sequence[int]) -> tuple[str, ...]:
    """The GPUs that tasks may use, within the launching shell's CUDA_VISIBLE_DEVICES."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(str(index) for index in indices)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    # CUDA ignores everything from the first invalid name on.
    return tuple(names[: names.index("-1")] if "-1" in names else names)
