"""Reads `cluster`: the tasks of each role, and whether the strategy can use them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distrun.frozen import replace
from distrun.spec.addresses import is_loopback, parse_address
from distrun.spec.hostnames import machine_name
from distrun.spec.machine import is_this_machine
from distrun.spec.model import NO_RESTARTS, Ready, RestartSpec, RoleSpec
from distrun.spec.nodes import flow_style
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.schema import Section
from distrun.spec.variables import ports_in_texts
from distrun.strategies import CUSTOM_ROLE_PATTERN, STRATEGIES, Role, RoleRule, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.spec.context import LoadContext
    from distrun.spec.model import HostSpec
    from distrun.spec.problems import Mark, Problems


def read_roles(
    document: Section, restart: RestartSpec, context: LoadContext, problems: Problems
) -> tuple[RoleSpec, ...]:
    """The valid roles that have tasks, in the order of :class:`Role`, custom ones last.

    `restart` is the policy of the job: a role takes from it what its own leaves out.
    """
    cluster: Section = document.get("cluster", Section())
    needs_port = ports_in_texts(document, context)
    roles = []
    for role in (*Role, *custom_roles(cluster)):
        section: Section = cluster.get(role.value, Section())
        addresses = () if "count" in section else section.get("addresses", ())
        tasks = section.get("count", len(addresses) or int(role.is_custom))
        if not tasks:
            continue
        ready = section.get("ready")
        given = {name: section[name] for name in ("gpus", "cpus", "env", "pod") if name in section}
        one = RoleSpec(
            role=role,
            count=tasks,
            addresses=addresses,
            expects_free_port=role.is_custom or needs_port(role),
            ready=Ready.LINE if isinstance(ready, Section) else ready,
            ready_line=ready.get("line", "") if isinstance(ready, Section) else "",
            after=tuple(
                Role(name)
                for name in section.get("after", ())
                if re.fullmatch(CUSTOM_ROLE_PATTERN, name)
            ),
            in_tf_config=section.get("in_tf_config", not role.is_custom),
            args=() if role.is_custom else section.get("args", ()),
            restart=_restart(section, restart, problems),
            **given,
        )
        roles.append(one)
    return tuple(roles)


def _restart(role: Section, common: RestartSpec, problems: Problems) -> RestartSpec | None:
    """The policy of a role; None: that of the job."""
    written = role.get("restart")
    if written == "never":
        return replace(common, max=0)
    if isinstance(written, str):
        return replace(common, on=(written,))
    if written is None:
        return None
    return checked_restart(replace(common, **written), written.path, problems)


def checked_restart(restart: RestartSpec, path: str, problems: Problems) -> RestartSpec:
    """The policy that is written at `path`; if its times contradict each other: none."""
    written = (f"{path}.{key}" for key in ("backoff_max", "backoff"))
    where = next((each for each in written if each in problems.keys), None)
    if where is None or restart.backoff <= restart.backoff_max:
        return restart
    problems.add(
        where,
        f"{path}.backoff is longer than {path}.backoff_max ({restart.backoff_max:g}s)",
        "raise backoff_max, or lower backoff",
    )
    return NO_RESTARTS


def custom_roles(cluster: Section) -> dict[Role, Section]:
    """The sections of the custom roles."""
    known = {role.value for role in Role}
    return {
        Role(name): section
        for name, section in cluster.items()
        if name not in known and re.fullmatch(CUSTOM_ROLE_PATTERN, name)
    }


def check_order(
    cluster: Section, roles: tuple[RoleSpec, ...], strategy: Strategy, problems: Problems
) -> None:
    """Add a problem for each `ready` and `after` by which a task could never start."""
    specs = {role.role: role for role in roles}
    for one in roles:
        section: Section = cluster[one.role.value]
        if one.ready is Ready.PORT and not one.has_ports(strategy):
            problems.add(
                section.path_of("ready"),
                f"the tasks of {one.role.value} have no port to be ready at",
                "write off, or {line: TEXT}",
            )
        for index, name in enumerate(section.get("after", ())):
            _check_after(f"{section.path_of('after')}[{index}]", name, one.role, specs, problems)


def _check_after(
    where: str, name: str, role: Role, specs: dict[Role, RoleSpec], problems: Problems
) -> None:
    names = {each.value for each in specs}
    if name not in names:
        message = f"cluster.{role.value} starts after {quoted(name)}, which is no role here"
        problems.add_unknown(where, message, name, sorted(names - {role.value}))
        return
    path = _path(Role(name), role, specs)
    if path:
        steps = " after ".join(each.value for each in (role, *path))
        problems.add(where, f"roles wait for each other: {steps}", "remove one of these")


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
    document: Section, roles: tuple[RoleSpec, ...], strategy: Strategy, problems: Problems
) -> None:
    """Add a problem for each role that is missing, is not allowed, or has too many tasks."""
    cluster: Section = document.get("cluster", Section())
    unknown = "cluster" in problems.with_unknown
    least = {role.value: rule.least for role, rule in strategy.roles.items() if rule.least}
    if any(place.startswith("cluster.") for place in problems.keys):
        if not unknown:
            _check_missing(cluster, roles, strategy, problems)
    elif strategy.tf_config and not unknown:
        problems.add(
            problems.keys.get("cluster") or problems.keys["strategy"],
            f"{strategy.name} needs a cluster with {' and '.join(least)}",
            f"add 'cluster: {flow_style(least)}'",
        )
    for one in roles:
        name = one.role.value
        if one.role.is_custom:
            _check_custom(one, cluster[name], strategy, problems)
            continue
        rule = strategy.roles.get(one.role)
        if rule is None:
            others = [other.name for other in STRATEGIES.values() if one.role in other.roles]
            problems.add(
                problems.keys[f"cluster.{name}"],
                f"{strategy.name} has no {name}",
                f"remove it, or use the strategy {' or '.join(others)}",
            )
            continue
        _check_count(one, rule, strategy, problems)
        if one.addresses and not strategy.tf_config:
            problems.add(
                f"cluster.{name}",
                f"{strategy.name} runs in one process and has no addresses",
                f"write '{name}: 1', or remove cluster",
            )


def _check_custom(one: RoleSpec, section: Section, strategy: Strategy, problems: Problems) -> None:
    if section.has("count") and section.has("addresses"):
        problems.add(
            problems.keys[section.path_of("addresses")],
            f"{section.path} has both count and addresses",
            "keep one of them",
        )
    if one.in_tf_config and not strategy.tf_config:
        problems.add(
            section.path_of("in_tf_config"),
            f"{strategy.name} runs in one process and has no TF_CONFIG",
            "remove it",
        )


def _check_missing(
    cluster: Section, roles: tuple[RoleSpec, ...], strategy: Strategy, problems: Problems
) -> None:
    there = {one.role for one in roles}
    for role, rule in strategy.roles.items():
        # A role that is invalid has a problem already.
        reported = _is_unreadable(cluster, role) or (
            roles and not strategy.tf_config and not cluster.has(role.value)
        )
        if rule.least and role not in there and not reported:
            problems.add(
                problems.keys["cluster"],
                f"{strategy.name} needs a {role.value} ({rule.count_text})",
                f"add '{role.value}: {rule.least}' to cluster",
            )


def _is_unreadable(cluster: Section, role: Role) -> bool:
    if role.value in cluster:
        return not {"count", "addresses"} & cluster[role.value].keys()
    return cluster.is_wrong(role.value)


def _check_count(one: RoleSpec, rule: RoleRule, strategy: Strategy, problems: Problems) -> None:
    count, role = one.count, one.role.value
    if rule.most is None or count <= rule.most:
        return
    hint = f"write '{role}: {rule.most}'"
    if not strategy.tf_config:
        hint += ", or use the strategy multi_worker_mirrored for several"
    message = f"{strategy.name} takes {rule.count_text} {role}, not {count}"
    problems.add(f"cluster.{role}", message, hint)


def check_addresses(
    roles: Iterable[RoleSpec], hosts: tuple[HostSpec, ...] | None, problems: Problems
) -> None:
    """Add a problem for each address that is given twice or is on none of `hosts`."""
    seen: dict[tuple[str, int], tuple[Mark, str]] = {}
    machines = _Machines(hosts)
    spares = {each.name for each in hosts or () if each.spare}
    written = [
        (problems.places[_address_path(one, index, problems)], text, parse_address(text))
        for one in roles
        for index, text in enumerate(one.addresses)
    ]
    of_hosts = [machines.host_of(address.host) for _, _, address in written]
    used = list(dict.fromkeys(host for host in of_hosts if host is not None))
    for (mark, text, address), host in zip(written, of_hosts, strict=True):
        first = seen.setdefault((host or address.host, address.port), (mark, text))
        if first != (mark, text):
            problems.add(
                mark,
                f"the address {text} is given twice{_first_place(*first, text)}",
                "give each task its own port",
            )
        if host is not None and host in spares:
            problems.add(
                mark,
                f"the address {text} is on {host}, which is a spare",
                "a spare runs no task at first: use another host, or remove `spare`",
            )
        if host is None:
            problems.add(
                mark,
                f"the address {text} is on none of the hosts",
                f"add {address.host} to hosts, or use an address of {machines.names_text}",
            )
        elif len(used) > 1 and is_loopback(address.host):
            other = next(each for each in used if each != host)
            problems.add(
                mark,
                f"the address {text} leads the tasks on {other} to their own machine",
                f"write the address by which other hosts reach {host}",
            )


def _address_path(role: RoleSpec, index: int, problems: Problems) -> str:
    """The path of an address: a role is a list of them, or a mapping that has one."""
    path = f"cluster.{role.role.value}.addresses[{index}]"
    return path if path in problems.places else f"cluster.{role.role.value}[{index}]"


def _first_place(mark: Mark, text: str, again: str) -> str:
    """The place of the first of two equal addresses, and its spelling if that differs."""
    words = [f"first in line {mark.line}"] if mark.line else []
    if text.lower() != again.lower():
        words.append(f"as {text}")
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
