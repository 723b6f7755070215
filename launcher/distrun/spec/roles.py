"""Reads `cluster`: the tasks of each role, and whether the strategy can use them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from distrun.frozen import replace
from distrun.spec.addresses import is_loopback, parse_address
from distrun.spec.context import LoadContext
from distrun.spec.host_spec import HostSpec, machine_name
from distrun.spec.machine import is_this_machine
from distrun.spec.model import Ready, RoleSpec
from distrun.spec.nodes import flow_style
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.restart_spec import NO_RESTARTS, RestartSpec
from distrun.spec.schema import Section
from distrun.spec.variables import ports_in_texts
from distrun.strategies import CUSTOM_ROLE_PATTERN, STRATEGIES, Role, RoleRule, Strategy


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
    message = f"{path}.backoff is longer than {path}.backoff_max ({restart.backoff_max:g}s)"
    problems.add(where, message, "raise backoff_max, or lower backoff")
    return NO_RESTARTS


def custom_roles(cluster: Section) -> dict[Role, Section]:
    known = {role.value for role in Role}
    return {
        Role(name): section
        for name, section in cluster.items()
        if name not in known and re.fullmatch(CUSTOM_ROLE_PATTERN, name)
    }


class ClusterChecker:
    """Checks the roles that have tasks, by what the strategy allows and by each other."""

    def __init__(
        self, document: Section, roles: tuple[RoleSpec, ...], strategy: Strategy, problems: Problems
    ) -> None:
        self._cluster: Section = document.get("cluster", Section("cluster"))
        self._roles = {one.role: one for one in roles}
        self._strategy, self._problems = strategy, problems

    def check_order(self) -> None:
        """Add a problem for each `ready` and `after` by which a task could never start."""
        names = sorted(each.value for each in self._roles)
        known, has_cycle = {*names}, self._has_cycle()
        for one in self._roles.values():
            name, section = one.role.value, self._cluster[one.role.value]
            if one.ready is Ready.PORT and not one.has_ports(self._strategy):
                message = f"the tasks of {name} have no port to be ready at"
                hint = "write off, or {line: TEXT}"
                self._problems.add(section.path_of("ready"), message, hint)
            for index, after in enumerate(section.get("after", ())):
                where = f"{section.path_of('after')}[{index}]"
                if after not in known:
                    message = f"cluster.{name} starts after {quoted(after)}, which is no role here"
                    others = (each for each in names if each != name)
                    self._problems.add_unknown(where, message, after, others)
                elif has_cycle and (path := self._path(Role(after), one.role)):
                    steps = " after ".join(each.value for each in (one.role, *path))
                    message = f"roles wait for each other: {steps}"
                    self._problems.add(where, message, "remove one of these")

    def _path(self, start: Role, end: Role) -> list[Role]:
        """The roles from `start` to `end`, each after the next; empty if there is no such path."""
        reached, waits = [start], {start: start}
        for role in reached:
            for each in self._roles[role].after if role in self._roles else ():
                if each not in waits:
                    waits[each] = role
                    reached.append(each)
        path = [end] if end in waits else []
        while path and path[-1] is not start:
            path.append(waits[path[-1]])
        return path[::-1]

    def _has_cycle(self) -> bool:
        try:
            TopologicalSorter({role: one.after for role, one in self._roles.items()}).prepare()
        except CycleError:
            return True
        return False

    def check_roles(self) -> None:
        """Add a problem for each role that the strategy does not allow, and for those it lacks."""
        strategy, problems = self._strategy, self._problems
        unknown = "cluster" in problems.with_unknown
        if any(place.startswith("cluster.") for place in problems.keys):
            if not unknown:
                self._check_missing()
        elif strategy.tf_config and not unknown:
            least = {role.value: rule.least for role, rule in strategy.roles.items() if rule.least}
            where = problems.keys.get("cluster") or problems.keys["strategy"]
            message = f"{strategy.name} needs a cluster with {' and '.join(least)}"
            problems.add(where, message, f"add 'cluster: {flow_style(least)}'")
        for one in self._roles.values():
            name = one.role.value
            rule = strategy.roles.get(one.role)
            if one.role.is_custom:
                self._check_custom(one, self._cluster[name])
            elif rule is None:
                others = [other.name for other in STRATEGIES.values() if one.role in other.roles]
                hint = f"remove it, or use the strategy {' or '.join(others)}"
                where = problems.keys[f"cluster.{name}"]
                problems.add(where, f"{strategy.name} has no {name}", hint)
            else:
                self._check_count(one, rule)

    def _check_custom(self, one: RoleSpec, section: Section) -> None:
        if section.has("count") and section.has("addresses"):
            where = self._problems.keys[section.path_of("addresses")]
            message = f"{section.path} has both count and addresses"
            self._problems.add(where, message, "keep one of them")
        if one.in_tf_config and not self._strategy.tf_config:
            message = f"{self._strategy.name} runs in one process and has no TF_CONFIG"
            self._problems.add(section.path_of("in_tf_config"), message, "remove it")

    def _check_missing(self) -> None:
        strategy = self._strategy
        for role, rule in strategy.roles.items():
            # A role that is invalid has a problem already.
            is_reported = self._is_unreadable(role) or (
                self._roles and not strategy.tf_config and not self._cluster.has(role.value)
            )
            if rule.least and role not in self._roles and not is_reported:
                message = f"{strategy.name} needs a {role.value} ({rule.count_text})"
                hint = f"add '{role.value}: {rule.least}' to cluster"
                self._problems.add(self._problems.keys["cluster"], message, hint)

    def _is_unreadable(self, role: Role) -> bool:
        if role.value in self._cluster:
            return not {"count", "addresses"} & self._cluster[role.value].keys()
        return self._cluster.is_wrong(role.value)

    def _check_count(self, one: RoleSpec, rule: RoleRule) -> None:
        strategy, role = self._strategy, one.role.value
        if rule.most is not None and one.count > rule.most:
            hint = f"write '{role}: {rule.most}'"
            if not strategy.tf_config:
                hint += ", or use the strategy multi_worker_mirrored for several"
            message = f"{strategy.name} takes {rule.count_text} {role}, not {one.count}"
            self._problems.add(f"cluster.{role}", message, hint)
        if one.addresses and not strategy.tf_config:
            message = f"{strategy.name} runs in one process and has no addresses"
            self._problems.add(f"cluster.{role}", message, f"write '{role}: 1', or remove cluster")


def check_roles_of_hosts(
    document: Section, roles: Iterable[RoleSpec], hosts: Sequence[HostSpec], problems: Problems
) -> None:
    """Add a problem for each host of an unknown role, and for each role that has no host."""
    written, names = document.get("hosts"), sorted(one.role.value for one in roles)
    items = () if isinstance(written, str) or written is None else written
    for item in items:
        if "role" in item and item["role"] not in names:
            message = f"the host is for {quoted(item['role'])}, which is no role here"
            problems.add_unknown(item.path_of("role"), message, item["role"], names)
    for name in (one.role.value for one in roles if hosts and not one.addresses):
        own = [host for host in hosts if host.role == name]
        if all(host.spare for host in own or [host for host in hosts if not host.role]):
            others = "all of its hosts are spares" if own else "all others have a role"
            hint = "leave out `spare` of one" if own else "add a host, or leave out the role of one"
            problems.add("hosts", f"no host is left for {name}: {others}", hint)


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
            message = f"the address {text} is given twice{_first_place(*first, text)}"
            problems.add(mark, message, "give each task its own port")
        if host is not None and host in spares:
            message = f"the address {text} is on {host}, which is a spare"
            hint = "a spare runs no task at first: use another host, or remove `spare`"
            problems.add(mark, message, hint)
        if host is None:
            message = f"the address {text} is on none of the hosts"
            names = [each.address or machine_name(each.name) for each in hosts or ()]
            shown = " or ".join(names[:3]) + (" ..." if len(names) > 3 else "")
            hint = f"add {address.host} to hosts, or use an address of {shown}"
            problems.add(mark, message, hint)
        elif len(used) > 1 and is_loopback(address.host):
            other = next(each for each in used if each != host)
            message = f"the address {text} leads the tasks on {other} to their own machine"
            problems.add(mark, message, f"write the address by which other hosts reach {host}")


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
