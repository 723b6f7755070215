"""Assigns tasks to hosts, and determines the ports to hold there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from distrun.agent.protocol import Cause, Code
from distrun.errors import InvalidSpecError
from distrun.frozen import Frozen
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
