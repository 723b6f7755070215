"""Whether the kernel ended a process because there was no memory left.

Two witnesses, each where it can be read: the count of such kills that a cgroup keeps (v2:
`memory.events`, that of the cgroups below included; v1: `memory.oom_control`), and the kernel's
log. The kernel counts and logs before it kills (mm/oom_kill.c), so an exit is not seen before them.
What no task has died of soon after was another process's end.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from distrun.agent.structs import Struct

_KILLED = re.compile(rb"oom-kill:.*,pid=(\d+),|Killed process (\d+) ")
_RECORD_BYTES = 8192
_MOST_RECORDS = 20000
_LOOK_SECONDS = 5.0
_SOON = 2.0
"""Seconds within which the death of a task follows from a kill."""


class _Mount(Struct):
    """Where a hierarchy of cgroups that counts memory is mounted, and the part of it that is."""

    root: str
    point: str
    is_v2: bool


class OomWatch:
    """Looks at both witnesses from its making on; :meth:`look` is to be called now and then."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        proc: str = "/proc",
        kernel_log: str = "/dev/kmsg",
    ) -> None:
        self._clock = clock
        self._proc = proc
        self._mounts = _mounts(proc)
        self._accounted: Dict[str, int] = {}
        """By a cgroup's file, the kills in it that are old or some task's."""
        self._risen: Dict[str, Tuple[int, float]] = {}
        """What a file said when it was seen to have risen, and when that was."""
        self._killed: Dict[int, Tuple[str, float]] = {}
        """By a process's id, what the kernel's log says of its end, and when that was read."""
        self._log = _open_kernel_log(kernel_log)
        for path in self._counters(os.getpid()):
            self._accounted[path] = _count(path)
        self.next_look = clock() + _LOOK_SECONDS

    def look(self) -> None:
        """Note what has happened since the last look, and when; forget what is long ago."""
        now = self._clock()
        self.next_look = now + _LOOK_SECONDS
        self._read_log(now)
        self._killed = {pid: told for pid, told in self._killed.items() if now - told[1] <= _SOON}
        for path, accounted in self._accounted.items():
            seen, since = self._risen.get(path, (accounted, now))
            if now - since > _SOON:
                self._accounted[path] = max(accounted, seen)
            count = _count(path)
            if count > seen:
                self._risen[path] = (count, now)

    def evidence(self, pid: int, of_child: bool) -> str:
        """Why it is thought that this killed process ran out of memory; empty where it is not.

        To be called once for a process that SIGKILL has ended, before it is reaped; or for a
        shell whose exit code says that of a child of its own.
        """
        self.look()
        if of_child and self._killed:
            pid = next(reversed(self._killed))
        logged, _ = self._killed.pop(pid, ("", 0.0))
        counted = ""
        for path in dict.fromkeys([*self._accounted, *self._counters(pid)]):
            before, now = self._accounted.get(path, 0), _count(path)
            if now > before and not counted:
                self._accounted[path] = before + 1
                counted = "{}: oom_kill rose from {} to {}".format(path, before, now)
        return logged or counted

    def _counters(self, pid: int) -> List[str]:
        """The files that count a process's kills, by the cgroups it is in. See cgroups(7)."""
        found = []
        for line in _lines("{}/{}/cgroup".format(self._proc, pid)):
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            for mount in self._mounts:
                mine = number == "0" if mount.is_v2 else "memory" in controllers.split(",")
                if mine:
                    name = "memory.events" if mount.is_v2 else "memory.oom_control"
                    found.append(os.path.join(mount.point, _below(path, mount.root), name))
        return [path for path in found if os.path.exists(path)]

    def _read_log(self, now: float) -> None:
        for _ in range(_MOST_RECORDS if self._log is not None else 0):
            try:
                record = os.read(self._log or 0, _RECORD_BYTES)
            except BrokenPipeError:  # it was overwritten meanwhile; the next read goes on behind
                continue
            except OSError:
                return
            match = _KILLED.search(record)
            if match is not None:
                text = record.partition(b";")[2].partition(b"\n")[0].decode("utf-8", "replace")
                self._killed[int(match.group(1) or match.group(2))] = ("kernel: " + text, now)


def _open_kernel_log(path: str) -> Optional[int]:
    """The kernel's log from now on; None where it may not be read, as in most containers."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):  # a pipe has no end to go to
        os.lseek(descriptor, 0, os.SEEK_END)
    return descriptor


def _mounts(proc: str) -> List[_Mount]:
    """See proc_pid_mountinfo(5)."""
    found = []
    for line in _lines(proc + "/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        v1 = kind[0] == "cgroup" and "memory" in kind[-1].split(",")
        if kind[0] == "cgroup2" or v1:
            found.append(_Mount(fields[3], fields[4], kind[0] == "cgroup2"))
    return found


def _below(path: str, root: str) -> str:
    """A cgroup's path from the root of its mount on: a container may see a part of the tree."""
    if root != "/" and (path + "/").startswith(root + "/"):
        path = path[len(root) :]
    return path.lstrip("/")


def _count(path: str) -> int:
    for line in _lines(path):
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.isdigit():
            return int(number)
    return 0


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file.read().splitlines()
    except OSError:
        return
