"""Names of hosts and sets of them: `gpu1`, `user@gpu1`, `gpu-[01-16]`, `rack[1-2]-n[1,3-4]`."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.spec.addresses import ipv6
from distrun.spec.problems import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HOSTS = 4096
LONGEST_SET = 1000

# A name never begins with '-': ssh would take it for an option.
_NAME = r"([A-Za-z0-9_][A-Za-z0-9_.\-\\+]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%\-]*"
_BRACKETS = r"\[([^\[\]]*)\]"
_RANGE = r"([0-9]{1,9})(?:-([0-9]{1,9}))?"

SET_PATTERN = r"[A-Za-z0-9_:\[][A-Za-z0-9_.:%@+\-\[\], \\]*"
HOST_ADDRESS_PATTERN = r"[A-Za-z0-9_:][A-Za-z0-9_.:%\-]*"


class HostSetError(ValueError):
    """A set of hosts is invalid. The message completes "hosts ..."."""


class HostSet(Frozen):
    """A set of hosts, not expanded: a file may name millions of them."""

    literals: tuple[str, ...]
    brackets: tuple[tuple[tuple[range, int], ...], ...]
    """The numbers in each, and with how many digits they are written at least."""

    @property
    def count(self) -> int:
        return prod(sum(len(numbers) for numbers, _ in ranges) for ranges in self.brackets)

    def names(self) -> Iterator[str]:
        choices = [
            [str(number).zfill(width) for numbers, width in ranges for number in numbers]
            for ranges in self.brackets
        ]
        for numbers in product(*choices):
            pairs = zip(self.literals, (*numbers, ""), strict=True)
            yield "".join(literal + number for literal, number in pairs)


def machine_name(name: str) -> str:
    """The machine in `user@machine`, in lower case: the case of a machine's name has no meaning."""
    return name.rpartition("@")[2].lower()


def host_set(text: str) -> HostSet:
    if len(text) > LONGEST_SET:
        raise HostSetError(f"is longer than {LONGEST_SET} characters")
    parts = re.split(_BRACKETS, text)
    literals, brackets = parts[::2], parts[1::2]
    if any(char in literal for literal in literals for char in "[]"):
        raise HostSetError(f"has a bracket without its partner in {quoted(text)}")
    if any(":" in bracket for bracket in brackets):
        raise HostSetError(f"takes an IPv6 address without brackets, not {quoted(text)}")
    found = HostSet(tuple(literals), tuple(_ranges(bracket, text) for bracket in brackets))
    if not re.fullmatch(_NAME, "0".join(literals)):
        raise HostSetError(
            f"must be a host's name, user@name, or a range such as gpu-[01-16], not {quoted(text)}"
        )
    machine = "0".join(literals).rpartition("@")[2]
    if ":" in machine and ipv6(machine) is None:
        raise HostSetError(
            f"has a ':' in {quoted(text)}, which is not an IPv6 address; the port of sshd belongs "
            "in ssh.port or ~/.ssh/config, slots in `slots:`"
        )
    if found.count > MAX_HOSTS:
        raise HostSetError(f"names more than {MAX_HOSTS} hosts in {quoted(text)}")
    return found


def host_set_problem(text: str) -> str | None:
    try:
        host_set(text)
    except HostSetError as error:
        return str(error)
    return None


def host_address_problem(text: str) -> str | None:
    if not re.fullmatch(HOST_ADDRESS_PATTERN, text):
        return f"must be a host's name or IP address, not {quoted(text)}"
    if ":" in text and ipv6(text) is None:
        return (
            f"has a ':' in {quoted(text)}, which is not an IPv6 address; tasks have ports of their "
            "own, and that of sshd belongs in ssh.port or ~/.ssh/config"
        )
    return None


def _ranges(bracket: str, whole: str) -> tuple[tuple[range, int], ...]:
    ranges = []
    for part in bracket.split(","):
        match = re.fullmatch(_RANGE, part.strip())
        if not match:
            raise HostSetError(f"has {quoted(part)} in {quoted(whole)}; write [1-4] or [1,3]")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise HostSetError(f"counts down in {quoted(whole)}; write [{last}-{first}]")
        ranges.append((range(int(first), int(last) + 1), len(first)))
    return tuple(ranges)
