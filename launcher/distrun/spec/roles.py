"""`cluster`: which tasks there are, and whether the strategy can use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distrun.spec.addresses import parse_address
from distrun.spec.machine import is_this_machine
from distrun.spec.hostnames import bare
from distrun.spec.model import RoleSpec
from distrun.spec.problems import Mark, Problems
from distrun.spec.shapes import At, Section
from distrun.strategies import STRATEGIES, Role, RoleRule, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.spec.model import HostSpec

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
    cluster = document.get("cluster", EMPTY)
    by_role = {one.spec.role: one for one in roles}
    for role, rule in strategy.roles.items():
        if role in by_role or cluster.wrong(role.value):
            continue
        if rule.least and (strategy.tf_config or document.has("cluster")):
            problems.add(_place(document), f"{strategy.name} needs {rule.in_words} {role.value}",
                         f"add '{role.value}: {rule.least}' to cluster")
    for one in roles:
        rule_or_none = strategy.roles.get(one.spec.role)
        if rule_or_none is None:
            _refuse_role(one, strategy, problems)
        else:
            _check_count(one, rule_or_none, strategy, problems)
        if one.addresses and not strategy.tf_config and rule_or_none is not None:
            problems.add(one.mark, f"{strategy.name} runs in one process and has no addresses",
                         f"write '{one.spec.role.value}: 1', or remove cluster")


def _place(document: Section) -> Mark:
    """Where a missing role is said to be missing."""
    return document.keys.get("cluster") or document.keys.get("strategy") or document.mark


def _refuse_role(one: Written, strategy: Strategy, problems: Problems) -> None:
    role = one.spec.role
    takers = [other.name for other in STRATEGIES.values() if role in other.roles]
    problems.add(one.key, f"{strategy.name} has no {role.value}",
                 f"remove it, or use the strategy {' or '.join(takers)}")


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
    """Add a problem for each address that is given twice or lies on none of `hosts`."""
    seen: dict[tuple[str, int], Mark] = {}
    known = _Known(hosts)
    for at in (at for one in roles for at in one.addresses):
        address = parse_address(at.value)
        host = "localhost" if is_this_machine(address.host) else address.host
        first = seen.setdefault((host, address.port), at.mark)
        if first is not at.mark:
            where = f" (first in line {first.line})" if first.line else ""
            problems.add(at.mark, f"the address {at.value} is given twice{where}",
                         "give each task its own port")
        if not known.has(address.host):
            problems.add(at.mark, f"the address {at.value} is on none of the hosts",
                         f"add {address.host} to hosts, or use an address of {known.in_words}")


class _Known:
    """The machines that addresses may be on; all of them where `hosts` could not be read."""

    def __init__(self, hosts: tuple[HostSpec, ...] | None) -> None:
        self._hosts = hosts
        self._names = {bare(host.name) for host in hosts or ()}
        self._names |= {(host.address or "").lower() for host in hosts or ()}
        self._here = any(host.is_local for host in hosts or ())

    def has(self, host: str) -> bool:
        if self._hosts is None or host in self._names:
            return True
        return self._here and is_this_machine(host)

    @property
    def in_words(self) -> str:
        names = [host.address or bare(host.name) for host in self._hosts or ()]
        return " or ".join(names[:3]) + (" ..." if len(names) > 3 else "")
