"""Assigns tasks to hosts again after hosts were lost, left out or have returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from distrun.frozen import replace
from distrun.plan.placement import Placed, owner_of, place
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import Placement, Spec
from distrun.strategies import Role


def room_of_hosts(spec: Spec) -> dict[str, int]:
    """Return how many tasks each host may have.

    A host without `slots` has room for as many tasks as the first plan gives it; a spare for as
    many as that gives to any host.
    """
    first = Counter(placed.host.name for placed in place(spec))
    most = max(first.values())
    rooms = {}
    for host in spec.hosts:
        room = most if host.spare else first[host.name]
        rooms[host.name] = room if host.slots is None else host.slots
    return rooms


def place_again(
    spec: Spec, present: Sequence[Placed], moving: Collection[str], rooms: Mapping[str, int]
) -> tuple[Placed, ...] | None:
    """Place the tasks named in `moving`, and keep all others where they are; None: no room.

    A task stays on its host, with its address, if that is among `rooms` (how many tasks each usable
    host may have). Others are placed on spares first, then on other hosts with room. If there is no
    room for all workers, there are fewer, but at least `restart.min_workers`. If there were fewer,
    there may be more again.
    """
    first = place(spec)
    now = {placed.name: placed for placed in present}
    kept = {name for name in now if name not in moving}
    are_all_moving = any(name.startswith("worker:") for name in moving) and not any(
        name.startswith("worker:") for name in kept
    )
    free = Counter(rooms)
    free.subtract(now[name].host.name for name in kept if now[name].host.name in free)
    movable = [
        placed
        for placed in first
        if placed.name in moving
        or (are_all_moving and placed.role.role is Role.WORKER and placed.name not in kept)
    ]
    workers = [placed for placed in movable if placed.role.role is Role.WORKER]
    owners = {host.role for host in spec.hosts}
    room = Counter[str]()
    for host in spec.hosts:
        room[host.role] += max(0, free.get(host.name, 0))
    room.subtract(owner_of(each.role, owners) for each in movable if each not in workers)
    least = len(workers)
    if are_all_moving and spec.restart.min_workers is not None:
        least = spec.restart.min_workers
    owner = owner_of(workers[0].role, owners) if workers else ""
    count = min(len(workers), room[owner])
    if count < least or min(room.values()) < 0:
        return None
    dropped = {placed.name for placed in workers[count:]}
    chosen = [placed for placed in movable if placed.name not in dropped]
    placed_again: dict[str, Placed] = {}
    for task in chosen:
        old = now.get(task.name)
        if old is not None and free[old.host.name] > 0:
            free[old.host.name] -= 1
            placed_again[task.name] = old
    for task in chosen:
        if task.name in placed_again:
            continue
        if task.address is not None:
            return None  # the spec says where it serves
        host = _best_host(task, owner_of(task.role, owners), spec, free)
        free[host.name] -= 1
        placed_again[task.name] = replace(task, host=host)
    for name in kept:
        placed_again[name] = now[name]
    return tuple(placed_again[task.name] for task in first if task.name in placed_again)


def _best_host(task: Placed, owner: str, spec: Spec, free: Mapping[str, int]) -> HostSpec:
    """The host for a task: that of the first plan, a spare, or another one with room."""
    hosts = (host for host in spec.hosts if host.role == owner and free.get(host.name, 0) > 0)
    spread = spec.placement is Placement.SPREAD

    def rank(host: HostSpec) -> tuple[bool, bool, int]:
        return host.name != task.host.name, not host.spare, -free[host.name] if spread else 0

    return min(hosts, key=rank)
