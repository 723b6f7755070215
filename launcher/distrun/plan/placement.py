"""Assigns tasks to hosts, also after some were lost or returned, and finds the ports to hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from distrun.agent.protocol import Cause, Code
from distrun.errors import InvalidSpecError
from distrun.frozen import Frozen, replace
from distrun.spec.addresses import parse_address
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import Placement, RoleSpec, Spec
from distrun.strategies import STRATEGIES, Role


class Placed(Frozen, kw_only=True):
    """A task and its host. `address` is set if the spec has one."""

    role: RoleSpec
    index: int
    host: HostSpec
    address: str | None = None

    @property
    def name(self) -> str:
        return f"{self.role.role.value}:{self.index}"


class PortNeed(Frozen, kw_only=True):
    """The ports to hold on a host: a number of free ones, and explicit ones."""

    free: int = 0
    wanted: tuple[int, ...] = ()


def place(spec: Spec) -> tuple[Placed, ...]:
    """Assign tasks to hosts that are no spares: round robin or one host after another."""
    explicit = [
        Placed(role=role, index=index, host=_host_of(address, spec), address=address)
        for role in spec.roles
        for index, address in enumerate(role.addresses)
    ]
    owners = {host.role for host in spec.hosts}
    free = [role for role in spec.roles if not role.addresses]
    seats = {
        owner: _seats(
            [host for host in spec.hosts if not host.spare and host.role == owner],
            spec.placement,
            sum(role.count for role in free if owner_of(role, owners) == owner),
        )
        for owner in sorted(owners)
    }
    chosen = [
        Placed(role=role, index=index, host=next(seats[owner_of(role, owners)]))
        for role in free
        for index in range(role.count)
    ]
    order = [*Role, *(role.role for role in spec.roles)]
    return tuple(
        sorted(explicit + chosen, key=lambda each: (order.index(each.role.role), each.index))
    )


def owner_of(role: RoleSpec, owners: Collection[str]) -> str:
    """Return which of these `role` of hosts is that of the hosts for a role."""
    return role.role.value if role.role.value in owners else ""


def _host_of(address: str, spec: Spec) -> HostSpec:
    machine = parse_address(address).host
    for host in spec.hosts:
        if machine in (host.machine.lower(), (host.address or "").lower()):
            return host
    return spec.local_host or next(host for host in spec.hosts if not host.spare)


def _seats(hosts: Sequence[HostSpec], placement: Placement, count: int) -> Iterator[HostSpec]:
    """The hosts in the order in which tasks are assigned to them."""
    slots = [host.slots if host.slots is not None else count for host in hosts]
    if sum(slots) < count:
        raise InvalidSpecError(cause=Cause(Code.TOO_FEW_SLOTS, count=count, total=sum(slots)))
    if placement is Placement.PACK and all(host.slots is None for host in hosts):
        slots = [-(-count // len(hosts))] * len(hosts)
    if placement is Placement.PACK:
        order = [host for host, free in zip(hosts, slots, strict=True) for _ in range(free)]
    else:
        rounds = range(max(slots, default=0))
        order = [
            host for turn in rounds for host, free in zip(hosts, slots, strict=True) if turn < free
        ]
    return iter(order[:count])


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


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[::1]:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def ports_needed(spec: Spec, placement: Sequence[Placed]) -> dict[str, PortNeed]:
    """The ports to hold on each host before :func:`make`."""
    strategy = STRATEGIES[spec.strategy]
    wanted: dict[str, list[int]] = {}
    for placed in placement:
        if placed.role.has_ports(strategy):
            port = 0 if placed.address is None else split_address(placed.address)[1]
            wanted.setdefault(placed.host.name, []).append(port)
    return {
        host: PortNeed(free=ports.count(0), wanted=tuple(filter(None, ports)))
        for host, ports in wanted.items()
    }
