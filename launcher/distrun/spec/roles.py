"""Reads `cluster`: the tasks of each role, and whether the strategy can use them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distrun.frozen import Frozen
from distrun.spec.addresses import is_loopback, parse_address
from distrun.spec.hostnames import machine_name
from distrun.spec.machine import is_this_machine
from distrun.spec.model import Ready, RoleSpec
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.schema import Section
from distrun.spec.yamlnodes import flow_style
from distrun.strategies import CUSTOM_ROLE_PATTERN, STRATEGIES, Role, RoleRule, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.spec.model import HostSpec
    from distrun.spec.schema import Located

EMPTY = Section(Mark(""))


class WrittenRole(Frozen):
    """A role of the spec: its meaning, and the places of the role and its addresses."""

    spec: RoleSpec
    mark: Mark
    key: Mark
    addresses: tuple[Located[str], ...] = ()


def read_roles(cluster: Section) -> tuple[WrittenRole, ...]:
    """The valid roles that have tasks, in the order of :class:`Role`, custom ones last."""
    order = [*Role, *custom_roles(cluster)]
    read = (_read_role(role, cluster) for role in order if cluster.get(role.value) is not None)
    return tuple(one for one in read if one is not None and one.spec.count)


def custom_roles(cluster: Section) -> dict[Role, Section]:
    """The sections of the custom roles."""
    known = {role.value for role in Role}
    return {
        Role(name): section
        for name, section in cluster.values.items()
        if name not in known and re.fullmatch(CUSTOM_ROLE_PATTERN, name)
    }


def _read_role(role: Role, cluster: Section) -> WrittenRole | None:
    value: Any = cluster.get(role.value)
    section = value if isinstance(value, Section) else EMPTY
    if isinstance(value, Section):
        default = 1 if role.is_custom else None
        value = value.get("count", value.get("addresses", default))
    if value is None:
        return None
    addresses = () if isinstance(value, int) else value
    ready = section.get("ready")
    return WrittenRole(
        RoleSpec(
            role=role,
            count=value if isinstance(value, int) else len(addresses),
            addresses=tuple(at.value for at in addresses),
            gpus=section.get("gpus"),
            cpus=section.get("cpus"),
            expects_free_port=role.is_custom,
            ready=_ready(section),
            ready_line=ready.get("line") if isinstance(ready, Section) else "",
            after=_roles_before(section),
            in_tf_config=section.get("in_tf_config", not role.is_custom),
            args=() if role.is_custom else tuple(at.value for at in section.get("args", ())),
            env={name: at.value for name, at in section.get("env", {}).items()},
        ),
        cluster.marks[role.value],
        cluster.keys[role.value],
        tuple(addresses),
    )


def _ready(section: Section) -> Ready | None:
    """When the tasks are ready; None if the spec does not say."""
    ready = section.get("ready")
    if isinstance(ready, Section):
        return Ready.LINE
    return None if ready is None else Ready(ready)


def _roles_before(section: Section) -> tuple[Role, ...]:
    return tuple(
        Role(at.value)
        for at in section.get("after", ())
        if re.fullmatch(CUSTOM_ROLE_PATTERN, at.value)
    )


def check_order(
    cluster: Section, roles: tuple[WrittenRole, ...], strategy: Strategy, problems: Problems
) -> None:
    """Add a problem for each `ready` and `after` by which a task could never start."""
    specs = {one.spec.role: one.spec for one in roles}
    for one in roles:
        section: Any = cluster.values.get(one.spec.role.value)
        if not isinstance(section, Section):
            continue
        if one.spec.ready is Ready.PORT and not one.spec.has_ports(strategy):
            problems.add(
                section.marks["ready"],
                f"the tasks of {one.spec.role.value} have no port to be ready at",
                "write off, or {line: TEXT}",
            )
        for at in section.get("after", ()):
            _check_after(at, one.spec.role, specs, problems)


def _check_after(
    at: Located[str], role: Role, specs: dict[Role, RoleSpec], problems: Problems
) -> None:
    names = {each.value for each in specs}
    if at.value not in names:
        message = f"cluster.{role.value} starts after {quoted(at.value)}, which is no role here"
        problems.add_unknown(at.mark, message, at.value, sorted(names - {role.value}))
        return
    path = _path(Role(at.value), role, specs)
    if path:
        steps = " after ".join(each.value for each in (role, *path))
        problems.add(at.mark, f"roles wait for each other: {steps}", "remove one of these")


def _path(start: Role, end: Role, specs: dict[Role, RoleSpec]) -> list[Role]:
    """The roles from `start` to `end`, each after the next; empty if there is no such path."""
    waiting = [[start]]
    seen = {start}
    while waiting:
        path = waiting.pop(0)
        if path[-1] is end:
            return path
        for each in specs[path[-1]].after if path[-1] in specs else ():
            if each not in seen:
                seen.add(each)
                waiting.append([*path, each])
    return []


def check_roles(
    document: Section, roles: tuple[WrittenRole, ...], strategy: Strategy, problems: Problems
) -> None:
    """Add a problem for each role that is missing, is not allowed, or has too many tasks."""
    cluster: Section = document.get("cluster", EMPTY)
    if cluster.marks:
        _check_missing(document.keys["cluster"], cluster, roles, strategy, problems)
    elif strategy.tf_config and not cluster.unknown:
        least = {role.value: rule.least for role, rule in strategy.roles.items() if rule.least}
        problems.add(
            document.keys.get("cluster") or document.keys["strategy"],
            f"{strategy.name} needs a cluster with {' and '.join(least)}",
            f"add 'cluster: {flow_style(least)}'",
        )
    for one in roles:
        if one.spec.role.is_custom:
            _check_custom(one, cluster.values[one.spec.role.value], strategy, problems)
            continue
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


def _check_custom(
    one: WrittenRole, section: Section, strategy: Strategy, problems: Problems
) -> None:
    name = one.spec.role.value
    if section.has("count") and section.has("addresses"):
        problems.add(
            section.keys["addresses"],
            f"cluster.{name} has both count and addresses",
            "keep one of them",
        )
    if one.spec.in_tf_config and not strategy.tf_config:
        problems.add(
            section.marks["in_tf_config"],
            f"{strategy.name} runs in one process and has no TF_CONFIG",
            "remove it",
        )


def _check_missing(
    place: Mark,
    cluster: Section,
    roles: tuple[WrittenRole, ...],
    strategy: Strategy,
    problems: Problems,
) -> None:
    there = {one.spec.role for one in roles}
    for role, rule in strategy.roles.items():
        # A role that is invalid or misspelt has a problem already.
        reported = (
            cluster.unknown
            or _unreadable(cluster, role)
            or (roles and not strategy.tf_config and not cluster.has(role.value))
        )
        if rule.least and role not in there and not reported:
            problems.add(
                place,
                f"{strategy.name} needs a {role.value} ({rule.count_text})",
                f"add '{role.value}: {rule.least}' to cluster",
            )


def _unreadable(cluster: Section, role: Role) -> bool:
    value = cluster.get(role.value)
    if isinstance(value, Section):
        return not {"count", "addresses"} & value.values.keys()
    return cluster.is_wrong(role.value)


def _refuse_role(one: WrittenRole, strategy: Strategy, problems: Problems) -> None:
    role = one.spec.role
    others = [other.name for other in STRATEGIES.values() if role in other.roles]
    problems.add(
        one.key,
        f"{strategy.name} has no {role.value}",
        f"remove it, or use the strategy {' or '.join(others)}",
    )


def _check_count(one: WrittenRole, rule: RoleRule, strategy: Strategy, problems: Problems) -> None:
    count, role = one.spec.count, one.spec.role.value
    if rule.most is None or count <= rule.most:
        return
    hint = f"write '{role}: {rule.most}'"
    if not strategy.tf_config:
        hint += ", or use the strategy multi_worker_mirrored for several"
    problems.add(one.mark, f"{strategy.name} takes {rule.count_text} {role}, not {count}", hint)


def check_addresses(
    roles: Iterable[WrittenRole], hosts: tuple[HostSpec, ...] | None, problems: Problems
) -> None:
    """Add a problem for each address that is given twice or is on none of `hosts`."""
    seen: dict[tuple[str, int], Located[str]] = {}
    machines = _Machines(hosts)
    spares = {each.name for each in hosts or () if each.spare}
    written = [
        (at, address, machines.host_of(address.host))
        for at, address in ((at, parse_address(at.value)) for one in roles for at in one.addresses)
    ]
    used = list(dict.fromkeys(host for _, _, host in written if host is not None))
    for at, address, host in written:
        first = seen.setdefault((host or address.host, address.port), at)
        if first is not at:
            problems.add(
                at.mark,
                f"the address {at.value} is given twice{_first_place(first, at)}",
                "give each task its own port",
            )
        if host is not None and host in spares:
            problems.add(
                at.mark,
                f"the address {at.value} is on {host}, which is a spare",
                "a spare runs no task at first: use another host, or remove `spare`",
            )
        if host is None:
            problems.add(
                at.mark,
                f"the address {at.value} is on none of the hosts",
                f"add {address.host} to hosts, or use an address of {machines.names_text}",
            )
        elif len(used) > 1 and is_loopback(address.host):
            other = next(each for each in used if each != host)
            problems.add(
                at.mark,
                f"the address {at.value} leads the tasks on {other} to their own machine",
                f"write the address by which other hosts reach {host}",
            )


def _first_place(first: Located[str], again: Located[str]) -> str:
    """The place of the first of two equal addresses, and its spelling if that differs."""
    words = [f"first in line {first.mark.line}"] if first.mark.line else []
    if first.value.lower() != again.value.lower():
        words.append(f"as {first.value}")
    return f" ({', '.join(words)})" if words else ""


class _Machines:
    """The machines that addresses may be on. If `hosts` could not be read: any machine."""

    def __init__(self, hosts: tuple[HostSpec, ...] | None) -> None:
        self._hosts = hosts
        self._owners: dict[str, str] = {}
        for host in hosts or ():
            self._owners.setdefault(machine_name(host.name), host.name)
            if host.address is not None:
                self._owners.setdefault(host.address.lower(), host.name)
        self._here = next((host.name for host in hosts or () if host.is_local), None)

    def host_of(self, machine: str) -> str | None:
        """The host that has this name or address; None if no host has it."""
        if machine in self._owners:
            return self._owners[machine]
        is_here = is_this_machine(machine)
        if self._hosts is None:
            return "localhost" if is_here else machine
        return self._here if is_here else None

    @property
    def names_text(self) -> str:
        names = [host.address or machine_name(host.name) for host in self._hosts or ()]
        return " or ".join(names[:3]) + (" ..." if len(names) > 3 else "")
