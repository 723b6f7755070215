"""The cgroups of a process: their folders, of both versions. See cgroups(7)."""

from __future__ import annotations

import functools
import os
from typing import List, Tuple, Union

from distrun.agent.linux.regular import lines
from distrun.agent.structs import Struct


class _Mount(Struct):
    """Where a hierarchy is mounted, and which part of it (`root`). v2 names no controllers."""

    root: str
    point: str
    controllers: Tuple[str, ...]


def folders(pid: Union[int, str], controller: str, proc: str = "/proc") -> List[str]:
    """The folders whose limits bind a process: of its cgroup first, then of those above it."""
    found: List[str] = []
    for line in lines("{}/{}/cgroup".format(proc, pid)):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for mount in _mounts(proc):
            mine = set(names.split(",")) & set(mount.controllers) if names else ()
            if controller in mine or not (names or mount.controllers):
                parts = _below(path, mount.root).split("/")
                parts = [part for part in parts if part and part != ".."]
                depths = range(len(parts), -1, -1)
                found += [os.path.join(mount.point, *parts[:depth]) for depth in depths]
    return found


@functools.lru_cache(maxsize=8)
def _mounts(proc: str) -> List[_Mount]:
    """See proc_pid_mountinfo(5)."""
    found = []
    for line in lines(proc + "/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if kind[0] in ("cgroup", "cgroup2"):
            names = tuple(kind[-1].split(",")) if kind[0] == "cgroup" else ()
            found.append(_Mount(fields[3], fields[4], names))
    return found


def _below(path: str, root: str) -> str:
    """A cgroup's path below the root of its mount: a container may see a part of the tree."""
    if root != "/" and (path + "/").startswith(root + "/"):
        return path[len(root) :]
    return path
