"""Reads `hosts` and `hostfile`: the machines of a job, each once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from distrun.frozen import Frozen, field, replace
from distrun.spec.addresses import is_loopback
from distrun.spec.host_spec import (
    MAX_HOSTS,
    HostSetError,
    HostSpec,
    SshSpec,
    host_set,
    machine_name,
)
from distrun.spec.machine import is_this_machine, ssh_options
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.schema import Section

HOST_WITH_SLOTS = re.compile(r"([^:]+):([0-9]{1,6})")
"""A host as Horovod and MPICH write it: `gpu1:4`."""
_SLOTS = re.compile(r"(?:slots|max[-_]slots)=([0-9]{1,6})")


class _Hosts(Frozen):
    problems: Problems
    found: dict[str, HostSpec] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether more hosts would add nothing: there are too many hosts or problems already."""
        return len(self.found) > MAX_HOSTS or self.problems.full

    def add(self, where: Mark | str, host: HostSpec, *, repeats: bool = False) -> None:
        """Add a host. `repeats`: whether one that is named again has that many more slots."""
        machine = "localhost" if host.is_local else machine_name(host.name)
        known = self.found.setdefault(machine, host)
        if known is not host and repeats and known.name == host.name:
            self.found[machine] = replace(known, slots=(known.slots or 1) + (host.slots or 1))
        elif known is not host:
            same = "" if known.name == host.name else f": it is {quoted(known.name)} again"
            message = f"the host {quoted(host.name)} is given twice{same}"
            self.problems.add(where, message, "keep one, and set its slots")
        elif len(self.found) > MAX_HOSTS:
            self.problems.add(where, f"more than {MAX_HOSTS} hosts", "name fewer")

    def tuple(self) -> tuple[HostSpec, ...]:
        return tuple(self.found.values())


def make_host(name: str, **settings: Any) -> HostSpec:
    """A host by its name for ssh. Another user's account on this machine is reached by ssh."""
    is_local = "@" not in name and is_this_machine(name)
    for each in ("python", "workdir") if is_local else ():
        if settings.get(each):
            settings[each] = os.path.expanduser(settings[each])
    return HostSpec(name=name, local=is_local, **settings)


def listed_hosts(items: Iterable[Section], problems: Problems) -> tuple[HostSpec, ...]:
    hosts = _Hosts(problems)
    for index, item in enumerate(items):
        for one in _of_item(item, problems):
            if hosts.full:
                return hosts.tuple()
            hosts.add(f"hosts[{index}]", one)
    return hosts.tuple()


def allocated_hosts(environ: Mapping[str, str], problems: Problems) -> tuple[HostSpec, ...]:
    """The nodes of the Slurm allocation that a process with `environ` is in."""
    from distrun.slurm.allocation import current

    nodes = current(environ)
    if not nodes:
        message = "hosts is slurm, and this is not a Slurm allocation"
        hint = "queue the job with `distrun submit` (`distrun run -n N --print-spec SCRIPT` writes "
        hint += "a script's YAML file), or call distrun inside salloc or sbatch"
        problems.add("hosts", message, hint)
    return nodes


def check_host_addresses(items: Sequence[Section], problems: Problems) -> None:
    """Add a problem for each `address` of a host by which other tasks would not reach it.

    Call this only if distrun places the tasks: explicit addresses in `cluster` do not use the
    hosts' addresses.
    """
    owners: dict[str, str] = {}
    for item in items:
        if not {"name", "address"} <= item.keys():
            continue
        name, address = item["name"], item["address"]
        owner = owners.setdefault(address.lower(), name)
        if is_loopback(address) and len(items) > 1:
            message = f"{quoted(address)} leads tasks on other hosts to their own machine"
            hint = f"write the address by which other hosts reach {quoted(name)}"
            problems.add(item.path_of("address"), message, hint)
        elif machine_name(owner) != machine_name(name):
            message = f"the address {quoted(address)} is that of {quoted(owner)}, too"
            hint = "give each host an address of its own; keep one of two names for one machine"
            problems.add(item.path_of("address"), message, hint)


def _of_item(item: Section, problems: Problems) -> Iterator[HostSpec]:
    if "name" not in item:
        return
    names = host_set(item["name"])
    if "address" in item and names.count > 1:
        message = f"one address cannot be that of {names.count} hosts"
        problems.add(item.path_of("address"), message, "remove it, or write each host by itself")
        return
    settings = {name: value for name, value in item.items() if not name.startswith("spare")}
    settings["gpus"] = _gpus(item, problems)
    first_spare = 0 if item.get("spare") else names.count - item.get("spares", 0)
    if first_spare < 0:
        message = f"{names.count} hosts cannot have {item['spares']} spares"
        problems.add(item.path_of("spares"), message, "write a smaller number")
        first_spare = names.count
    for number, name in enumerate(names.names()):
        yield make_host(**{**settings, "name": name}, spare=number >= first_spare)


def with_spares(
    hosts: tuple[HostSpec, ...], document: Section, problems: Problems
) -> tuple[HostSpec, ...]:
    """The hosts, with those at the end made spares as `spares` says. One must be no spare."""
    count = document.get("spares", 0)
    first = max(0, len(hosts) - count)
    hosts = tuple(
        replace(host, spare=host.spare or number >= first) for number, host in enumerate(hosts)
    )
    if hosts and all(host.spare for host in hosts):
        key = "spares" if document.has("spares") else "hosts"
        which = "the only host is a spare" if len(hosts) == 1 else "all hosts are spares"
        message = f"{which}, and none is left to run the tasks"
        problems.add(problems.keys[key], message, "leave at least one host that is not a spare")
    return hosts


def _gpus(item: Section, problems: Problems) -> tuple[int, ...] | None:
    gpus: int | tuple[int, ...] | None = item.get("gpus")
    if isinstance(gpus, int):
        return tuple(range(gpus))
    for position, gpu in enumerate(gpus or ()):
        if gpus and gpus.index(gpu) < position:
            where = f"{item.path_of('gpus')}[{position}]"
            problems.add(where, f"the GPU {gpu} is given twice", "keep one")
    return gpus


def hostfile_hosts(text: str, shown: str, problems: Problems) -> tuple[HostSpec, ...]:
    """The hosts of a hostfile in the format of Open MPI, Horovod and DeepSpeed.

    `host`, `host slots=4`, `host slots=4 max_slots=4` or `host:4`; '#' begins a comment.
    """
    hosts = _Hosts(problems)
    for number, line in enumerate(text.split("\n"), start=1):
        words = list(re.finditer(r"\S+", line.partition("#")[0]))
        if words:
            _line(words, shown, number, hosts)
        if hosts.full:
            break
    if not hosts.found and not problems:
        hint = "write one per line, such as 'gpu1 slots=4'"
        problems.add(Mark(shown, 1, 1), "no host is named here", hint)
    return hosts.tuple()


def _line(words: list[re.Match[str]], shown: str, number: int, hosts: _Hosts) -> None:
    first = words[0]
    mark = Mark(shown, number, first.start() + 1)
    name, slots = first[0], None
    with_slots = HOST_WITH_SLOTS.fullmatch(name)
    if with_slots:
        name, slots = with_slots[1], int(with_slots[2])
    for word in words[1:]:
        match = _SLOTS.fullmatch(word[0])
        if not match:
            message = f"unknown word {quoted(word[0])}"
            hint = "write 'host slots=4'"
            hosts.problems.add(Mark(shown, number, word.start() + 1), message, hint)
            return
        if word[0].startswith("slots"):
            slots = int(match[1])
    if slots == 0:
        hosts.problems.add(mark, f"the host {quoted(name)} has 0 slots", "remove the line")
        return
    try:
        names = host_set(name).names()
    except HostSetError as error:
        hosts.problems.add(mark, f"the host {error}")
        return
    for one in names:
        if hosts.full:
            return
        hosts.add(mark, make_host(one, slots=slots), repeats=True)


def with_addresses_of_aliases(
    hosts: tuple[HostSpec, ...], wanted: Iterable[str], ssh: SshSpec
) -> tuple[HostSpec, ...]:
    """The hosts, each with its address if ssh resolves its name to one of the `wanted` machines.

    ssh is asked only about machines that are not the name or address of a host.
    """
    known = {machine_name(host.name) for host in hosts} | {
        (host.address or "").lower() for host in hosts
    }
    unknown = set(wanted) - known
    config = [] if ssh.config_file is None else ["-F", ssh.config_file]
    found = []
    for host in hosts:
        may_be_meant = unknown and not host.is_local and host.address is None
        options = ssh_options(host.name, config) if may_be_meant else {}
        address = options.get("hostname", "").lower()
        is_meant = address in unknown
        unknown.discard(address)
        found.append(replace(host, address=address) if is_meant else host)
    return tuple(found)
