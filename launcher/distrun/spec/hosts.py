"""`hosts` and `hostfile`: the machines of a job, each once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distrun.spec.hostnames import MAX_HOSTS, HostSetError, bare, host_set
from distrun.spec.machine import is_loopback, is_this_machine
from distrun.spec.model import HostSpec
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.records import Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distrun.spec.shapes import At

_SLOTS = re.compile(r"(?:slots|max[-_]slots)=([0-9]{1,6})")


@dataclass(frozen=True)
class _Hosts:
    """The hosts met so far, by the machine each one is."""

    problems: Problems
    found: dict[str, HostSpec] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether there is nothing more to be learned from further hosts."""
        return len(self.found) > MAX_HOSTS or self.problems.full

    def add(self, mark: Mark, host: HostSpec) -> None:
        machine = "localhost" if host.is_local else bare(host.name)
        known = self.found.setdefault(machine, host)
        if known is not host:
            same = "" if known.name == host.name else f": it is {quoted(known.name)} again"
            self.problems.add(
                mark,
                f"the host {quoted(host.name)} is given twice{same}",
                "keep one, and set its slots",
            )
        elif len(self.found) > MAX_HOSTS:
            self.problems.add(mark, f"more than {MAX_HOSTS} hosts", "name fewer")

    def tuple(self) -> tuple[HostSpec, ...]:
        return tuple(self.found.values())


def host(name: str, **settings: Any) -> HostSpec:
    """A host by the name that ssh is given; another user's account here is reached by ssh."""
    return HostSpec(name=name, local="@" not in name and is_this_machine(name), **settings)


def listed_hosts(items: Iterable[At[Any]], problems: Problems) -> tuple[HostSpec, ...]:
    """The hosts of the spec's own list."""
    hosts = _Hosts(problems)
    for item in items:
        for one in _of_item(item.value, problems):
            if hosts.full:
                return hosts.tuple()
            hosts.add(item.mark, one)
    return hosts.tuple()


def check_host_addresses(items: Iterable[At[Any]], problems: Problems) -> None:
    """Add a problem for each `address` of several hosts by which tasks would not find each other.

    Only for a cluster whose tasks are laid on the hosts: addresses that `cluster` gives itself
    take none from here.
    """
    items = list(items)
    owners: dict[str, str] = {}
    for section in (item.value for item in items if isinstance(item.value, Section)):
        name, address = section.get("name"), section.get("address")
        if name is None or address is None:
            continue
        owner = owners.setdefault(address.lower(), name)
        if is_loopback(address) and len(items) > 1:
            problems.add(
                section.marks["address"],
                f"{quoted(address)} leads tasks on other hosts to their own machine",
                f"write the address by which other hosts reach {quoted(name)}",
            )
        elif bare(owner) != bare(name):
            problems.add(
                section.marks["address"],
                f"the address {quoted(address)} is that of {quoted(owner)}, too",
                "give each host an address of its own; keep one of two names for one machine",
            )


def _of_item(item: str | Section, problems: Problems) -> Iterator[HostSpec]:
    if isinstance(item, str):
        yield from (host(name) for name in host_set(item).names())
        return
    if not item.get("name"):
        return
    names = host_set(item.get("name"))
    address = item.get("address")
    if address is not None and names.count > 1:
        problems.add(
            item.marks["address"],
            f"one address cannot be that of {names.count} hosts",
            "remove it, or write each host by itself",
        )
        return
    settings = {
        "address": address,
        "slots": item.get("slots"),
        "gpus": _gpus(item, problems),
        "python": item.get("python"),
        "workdir": item.get("workdir"),
        "env": {name: at.value for name, at in item.get("env", {}).items()},
    }
    yield from (host(name, **settings) for name in names.names())


def _gpus(item: Section, problems: Problems) -> tuple[int, ...] | None:
    gpus = item.get("gpus")
    if gpus is None or isinstance(gpus, int):
        return None if gpus is None else tuple(range(gpus))
    indices = tuple(at.value for at in gpus)
    for position, at in enumerate(gpus):
        if at.value in indices[:position]:
            problems.add(at.mark, f"the GPU {at.value} is given twice", "keep one")
    return indices


def hostfile_hosts(text: str, shown: str, problems: Problems) -> tuple[HostSpec, ...]:
    """The hosts of a file of lines as Open MPI, Horovod and DeepSpeed take them.

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
        problems.add(
            Mark(shown, 1, 1), "no host is named here", "write one a line, such as 'gpu1 slots=4'"
        )
    return hosts.tuple()


def _line(words: list[re.Match[str]], shown: str, number: int, hosts: _Hosts) -> None:
    first = words[0]
    mark = Mark(shown, number, first.start() + 1)
    name, slots = first[0], None
    horovod = re.fullmatch(r"([^:]+):([0-9]{1,6})", name)
    if horovod:
        name, slots = horovod[1], int(horovod[2])
    for word in words[1:]:
        match = _SLOTS.fullmatch(word[0])
        if not match:
            hosts.problems.add(
                Mark(shown, number, word.start() + 1),
                f"unknown word {quoted(word[0])}",
                "write 'host slots=4'",
            )
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
        hosts.add(mark, host(one, slots=slots))
