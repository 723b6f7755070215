"""`cluster`: which tasks there are, and whether the strategy can use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distrun.spec.addresses import parse_address
from distrun.spec.flow import flow
from distrun.spec.hostnames import bare
from distrun.spec.machine import is_loopback, is_this_machine
from distrun.spec.model import RoleSpec
from distrun.spec.problems import Mark, Problems
from distrun.spec.records import Section
from distrun.strategies import STRATEGIES, Role, RoleRule, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.spec.model import HostSpec
    from distrun.spec.shapes import At

EMPTY = Section(Mark(""))


@dataclass(frozen=True)
class Written:
    """A role as the spec has it: its meaning and where it and its addresses stand."""

    spec: RoleSpec
    mark: Mark
    key: Mark
    addresses: tuple[At[str], ...] = ()


def written_roles(cluster: Section) -> tuple[Written, ...]:
    """The roles that could be read and have tasks, in the table's order."""
    read = (_written(role, cluster) for role in Role if cluster.get(role.value) is not None)
    return tuple(one for one in read if one is not None and one.spec.count)


def _written(role: Role, cluster: Section) -> Written | None:
    value: Any = cluster.get(role.value)
    section = value if isinstance(value, Section) else EMPTY
    if isinstance(value, Section):
        value = value.get("count", value.get("addresses"))
    if value is None:
        return None
    addresses = () if isinstance(value, int) else value
    return Written(
        RoleSpec(
            role=role,
            count=value if isinstance(value, int) else len(addresses),
            addresses=tuple(at.value for at in addresses),
            gpus=section.get("gpus"),
            cpus=section.get("cpus"),
            args=tuple(at.value for at in section.get("args", ())),
            env={name: at.value for name, at in section.get("env", {}).items()},
        ),
        cluster.marks[role.value],
        cluster.keys[role.value],
        tuple(addresses),
    )


def check_roles(
    document: Section, roles: tuple[Written, ...], strategy: Strategy, problems: Problems
) -> None:
    """Add a problem for each role that the strategy lacks, cannot have, or has too many of."""
    cluster: Section = document.get("cluster", EMPTY)
    if cluster.marks:
        _check_missing(document.keys["cluster"], cluster, roles, strategy, problems)
    elif strategy.tf_config and not cluster.unknown:
        least = {role.value: rule.least for role, rule in strategy.roles.items() if rule.least}
        problems.add(
            document.keys.get("cluster") or document.keys["strategy"],
            f"{strategy.name} needs a cluster with {' and '.join(least)}",
            f"add 'cluster: {flow(least)}'",
        )
    for one in roles:
        rule = strategy.roles.get(one.spec.role)
        if rule is None:
            _refuse_role(one, strategy, problems)
            continue
        _check_count(one, rule, strategy, problems)
        if one.addresses and not strategy.tf_config:
            problems.add(
                one.mark,
                f"{strategy.name} runs in one process and has no addresses",
                f"write '{one.spec.role.value}: 1', or remove cluster",
            )


def _check_missing(
    place: Mark,
    cluster: Section,
    roles: tuple[Written, ...],
    strategy: Strategy,
    problems: Problems,
) -> None:
    there = {one.spec.role for one in roles}
    for role, rule in strategy.roles.items():
        # A role that is there but wrong, perhaps misspelt, or another, has been said already.
        said = cluster.unknown or _unreadable(cluster, role) or (roles and not strategy.tf_config)
        if rule.least and role not in there and not said:
            problems.add(
                place,
                f"{strategy.name} needs a {role.value} ({rule.in_words})",
                f"add '{role.value}: {rule.least}' to cluster",
            )


def _unreadable(cluster: Section, role: Role) -> bool:
    value = cluster.get(role.value)
    if isinstance(value, Section):
        return not {"count", "addresses"} & value.values.keys()
    return cluster.wrong(role.value)


def _refuse_role(one: Written, strategy: Strategy, problems: Problems) -> None:
    role = one.spec.role
    takers = [other.name for other in STRATEGIES.values() if role in other.roles]
    problems.add(
        one.key,
        f"{strategy.name} has no {role.value}",
        f"remove it, or use the strategy {' or '.join(takers)}",
    )


def _check_count(one: Written, rule: RoleRule, strategy: Strategy, problems: Problems) -> None:
    count, role = one.spec.count, one.spec.role.value
    if rule.most is None or count <= rule.most:
        return
    hint = f"write '{role}: {rule.most}'"
    if not strategy.tf_config:
        hint += ", or use the strategy multi_worker_mirrored for several"
    problems.add(one.mark, f"{strategy.name} takes {rule.in_words} {role}, not {count}", hint)


def check_addresses(
    roles: Iterable[Written], hosts: tuple[HostSpec, ...] | None, problems: Problems
) -> None:
    """Add a problem for each address that is given twice or leads to none of `hosts`."""
    seen: dict[tuple[str, int], At[str]] = {}
    known = _Known(hosts)
    written = [
        (at, address, known.host_of(address.host))
        for at, address in ((at, parse_address(at.value)) for one in roles for at in one.addresses)
    ]
    used = list(dict.fromkeys(host for _, _, host in written if host is not None))
    for at, address, host in written:
        first = seen.setdefault((host or address.host, address.port), at)
        if first is not at:
            problems.add(
                at.mark,
                f"the address {at.value} is given twice{_first(first, at)}",
                "give each task its own port",
            )
        if host is None:
            problems.add(
                at.mark,
                f"the address {at.value} is on none of the hosts",
                f"add {address.host} to hosts, or use an address of {known.in_words}",
            )
        elif len(used) > 1 and is_loopback(address.host):
            other = next(each for each in used if each != host)
            problems.add(
                at.mark,
                f"the address {at.value} leads the tasks on {other} to their own machine",
                f"write the address by which other hosts reach {host}",
            )


def _first(first: At[str], again: At[str]) -> str:
    """Where an address stood before, and how if it was written otherwise."""
    words = [f"first in line {first.mark.line}"] if first.mark.line else []
    if first.value.lower() != again.value.lower():
        words.append(f"as {first.value}")
    return f" ({', '.join(words)})" if words else ""


class _Known:
    """The machines that addresses may be on; all of them where `hosts` could not be read."""

    def __init__(self, hosts: tuple[HostSpec, ...] | None) -> None:
        self._hosts = hosts
        self._owners: dict[str, str] = {}
        for host in hosts or ():
            self._owners.setdefault(bare(host.name), host.name)
            if host.address is not None:
                self._owners.setdefault(host.address.lower(), host.name)
        self._here = next((host.name for host in hosts or () if host.is_local), None)

    def host_of(self, machine: str) -> str | None:
        """The host that a machine's name or address is one of; None: of none."""
        if machine in self._owners:
            return self._owners[machine]
        is_here = is_this_machine(machine)
        if self._hosts is None:
            return "localhost" if is_here else machine
        return self._here if is_here else None

    @property
    def in_words(self) -> str:
        names = [host.address or bare(host.name) for host in self._hosts or ()]
        return " or ".join(names[:3]) + (" ..." if len(names) > 3 else "")
