"""Has the C library keep the memory that a task frees.

Tasks that exchange gradients need large buffers at each step. By default, glibc returns them to the
kernel, which must clear new pages for the next step: 40% of the CPU of two workers.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

VARIABLE = "GLIBC_TUNABLES"
MALLOC_SETTINGS = (VARIABLE, "LD_PRELOAD", "MALLOC_*")
"""The variables by which users choose how memory is allocated; distrun leaves that alone then."""
_MIB = 1 << 20
_LARGEST_BEFORE_2_35 = 32 * _MIB
"""The highest threshold that glibc accepts before 2.35: HEAP_MAX_SIZE / 2 in its malloc.c. It
ignores a higher one, and then maps each block from 128 KiB on."""


def variables(libc: str, cores: float, environ: Collection[str]) -> dict[str, str]:
    """Return the variable that has a task keep the memory that it frees, if it is to.

    `libc` and `cores`: those of its host. `environ`: the names of the task's other variables.
    """
    if any(fnmatchcase(name, setting) for name in environ for setting in MALLOC_SETTINGS):
        return {}
    name, _, version = libc.partition(" ")
    numbers = version.split(".")
    release = tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else ()
    if name != "glibc" or release < (2, 26):  # the first with tunables
        return {}
    is_new = release >= (2, 35)
    settings = {
        **({"hugetlb": 1} if is_new else {}),  # large pages, where the kernel has them
        "mmap_threshold": 1024 * _MIB if is_new else _LARGEST_BEFORE_2_35,
        "trim_threshold": 4096 * _MIB,
        "top_pad": 256 * _MIB,
        # By default eight for each core, each of which keeps what its threads have freed.
        "arena_max": max(2, int(cores)),
    }
    return {VARIABLE: ":".join(f"glibc.malloc.{key}={value}" for key, value in settings.items())}
