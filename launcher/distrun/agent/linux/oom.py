"""Finds out whether the kernel killed a process because memory had run out.

There are two sources, if they can be read: the count of such kills that a cgroup keeps (v2:
`memory.events`, which includes the cgroups below it; v1: `memory.oom_control`), and the kernel's
log. The kernel counts and logs a kill before it kills (mm/oom_kill.c), so both precede the exit. A
kill counts for a task only if the task dies soon after it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Callable, Dict, List, Optional, Tuple

from distrun.agent.linux import cgroups
from distrun.agent.linux.regular import numbers
from distrun.agent.protocol import Cause, Code

_KILLED = rb"oom-kill:.*,pid=(\d+),|Killed process (\d+) "
"""Compiled where it is first needed, because that takes time."""
_RECORD_BYTES = 8192
_MOST_RECORDS = 20000
UPDATE_SECONDS = 5.0
_SOON = 2.0
"""A task that dies within these seconds of a kill may have died of it."""


class OomWatch:
    """Watches both sources."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        proc: str = "/proc",
        kernel_log: str = "/dev/kmsg",
    ) -> None:
        self._clock = clock
        self._proc = proc
        self._accounted: Dict[str, int] = {}
        """For each cgroup's file, the number of kills that are old or belong to a task."""
        self._risen: Dict[str, Tuple[int, float]] = {}
        """For each file, the last count that was higher than before, and when that was seen."""
        self._killed: Dict[int, Tuple[Cause, float]] = {}
        """For each process id, the kernel's log record of its kill, and when that was read."""
        self._log = _open_kernel_log(kernel_log)
        for path in self._counters(os.getpid()):
            self._accounted[path] = _count(path)
        self.updated = clock()

    def update(self) -> None:
        """Note the kills since the last update, and forget old ones."""
        now = self.updated = self._clock()
        self._read_log(now)
        self._killed = {
            pid: record for pid, record in self._killed.items() if now - record[1] <= _SOON
        }
        for path, accounted in self._accounted.items():
            seen, since = self._risen.get(path, (accounted, now))
            if now - since > _SOON:
                self._accounted[path] = max(accounted, seen)
            count = _count(path)
            if count > seen:
                self._risen[path] = (count, now)

    def find_kill(self, pid: int, of_child: bool) -> Optional[Cause]:
        """What shows that the kernel killed this process for its memory; None if nothing does.

        Call this once for a process that was ended by SIGKILL, before it is reaped; or, with
        `of_child`, for a shell whose exit code says so of its child.
        """
        self.update()
        if of_child and self._killed:
            pid = next(reversed(self._killed))
        logged, _ = self._killed.pop(pid, (None, 0.0))
        counted = None
        for path in dict.fromkeys([*self._accounted, *self._counters(pid)]):
            before, now = self._accounted.get(path, 0), _count(path)
            if now > before and counted is None:
                self._accounted[path] = before + 1
                counted = Cause(Code.OOM_KILL_COUNTED, path=path, count=before, total=now)
        return logged or counted

    def _counters(self, pid: int) -> List[str]:
        """The file that counts the kills in a process's cgroup. See cgroups(7).

        In v2, it is one that is watched, if that is of a cgroup above: it counts the same kills.
        """
        names = ("memory.events", "memory.oom_control")
        inner = cgroups.folders(pid, "memory", self._proc)
        paths = [os.path.join(folder, name) for folder in inner for name in names]
        paths = [path for path in paths if os.path.exists(path)]
        watched = [path for path in paths if path in self._accounted and path.endswith("events")]
        return watched[:1] or paths[:1]

    def _read_log(self, now: float) -> None:
        for _ in range(_MOST_RECORDS if self._log is not None else 0):
            try:
                record = os.read(self._log or 0, _RECORD_BYTES)
            except BrokenPipeError:  # overwritten meanwhile; the next read returns a later one
                continue
            except OSError:
                return
            match = re.search(_KILLED, record)
            if match is not None:
                text = record.partition(b";")[2].partition(b"\n")[0].decode("utf-8", "replace")
                cause = Cause(Code.OOM_KILL_LOGGED, text=text)
                self._killed[int(match.group(1) or match.group(2))] = (cause, now)


def _open_kernel_log(path: str) -> Optional[int]:
    """The kernel's log from now on; None if it may not be read, as in most containers."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):  # a pipe has no end to go to
        os.lseek(descriptor, 0, os.SEEK_END)
    return descriptor


def _count(path: str) -> int:
    return numbers(path).get("oom_kill", 0)
