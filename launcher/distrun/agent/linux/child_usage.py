"""What a child has used, which the kernel tells when it is reaped."""

from __future__ import annotations

import os
import resource
from typing import Optional, Tuple

from distrun.agent.structs import Struct


class ChildUsage(Struct):
    """What a child that was reaped has used, and those descendants that were waited for.

    `peak`: bytes of resident memory; None: unknown, it was less than this process's own. `read`,
    `written`: bytes by read and write calls; None: unknown.
    """

    seconds: float
    peak: Optional[int]
    read: Optional[int]
    written: Optional[int]


def reap(pid: int, options: int = 0) -> Optional[ChildUsage]:
    """Reap a child; None: it has not ended (`os.WNOHANG`). Raises ChildProcessError: no child.

    The kernel adds to this process's counts of bytes those of each child that it reaps
    (wait_task_zombie in kernel/exit.c). The child's own could be read only as root: a process that
    has ended has no memory, by which the kernel decides who may read them.
    """
    before = _own_bytes()
    ended, _, used = os.wait4(pid, options)
    if not ended:
        return None
    after = _own_bytes()
    read = written = None
    if before is not None and after is not None:
        read = after[0] - before[0] - before[2]
        written = after[1] - before[1]
    # The kernel counts the memory of this process, too, from which the child was forked.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = used.ru_maxrss * 1024 if used.ru_maxrss > own else None
    return ChildUsage(used.ru_utime + used.ru_stime, peak, read, written)


def _own_bytes() -> Optional[Tuple[int, int, int]]:
    """The bytes that this process has read and written, and those that this call has read."""
    try:
        descriptor = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        try:
            raw = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    words = raw.split()
    return int(words[1]), int(words[3]), len(raw)
