"""Names of hosts and sets of them: `gpu1`, `user@gpu1`, `gpu-[01-16]`, `rack[1-2]-n[1,3-4]`."""

from __future__ import annotations

import re
from itertools import product

from distrun.spec.problems import quoted

MAX_HOSTS = 4096

# A name never begins with '-': ssh would take it for an option.
_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-\\+]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%\-]*")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")

SET_PATTERN = r"[A-Za-z0-9_:\[][A-Za-z0-9_.:%@+\-\[\], \\]*"


class HostSetError(ValueError):
    """A set of hosts cannot be read; the message completes "hosts ..."."""


def bare(name: str) -> str:
    """The machine in `user@machine`, in lower case: names of machines have no case."""
    return name.rpartition("@")[2].lower()


def expand(text: str) -> list[str]:
    """All names in a set of hosts, in order. Raises HostSetError."""
    parts = _BRACKETS.split(text)
    literals, brackets = parts[::2], parts[1::2]
    if any(char in literal for literal in literals for char in "[]"):
        raise HostSetError(f"has a bracket without its partner in {quoted(text)}")
    if any(":" in bracket for bracket in brackets):
        raise HostSetError(f"takes an IPv6 address without brackets, not {quoted(text)}")
    choices = [_numbers(bracket, text) for bracket in brackets]
    count = 1
    for choice in choices:
        count *= len(choice)
        if count > MAX_HOSTS:
            raise HostSetError(f"names more than {MAX_HOSTS} hosts in {quoted(text)}")
    names = [_join(literals, combination) for combination in product(*choices)]
    if not _NAME.fullmatch(names[0]):
        raise HostSetError(
            f"must be a host's name, user@name, or a range such as gpu-[01-16], not {quoted(text)}"
        )
    return names


def host_set_problem(text: str) -> str | None:
    """What is wrong with a set of hosts, or None."""
    try:
        expand(text)
    except HostSetError as error:
        return str(error)
    return None


def _join(literals: list[str], numbers: tuple[str, ...]) -> str:
    pairs = zip(literals, [*numbers, ""], strict=True)
    return "".join(literal + number for literal, number in pairs)


def _numbers(bracket: str, whole: str) -> list[str]:
    numbers: list[str] = []
    for part in bracket.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise HostSetError(f"has {quoted(part)} in {quoted(whole)}; write 1-4 or 1,3")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise HostSetError(f"counts down in {quoted(whole)}; write {last}-{first}")
        if int(last) - int(first) >= MAX_HOSTS or len(numbers) >= MAX_HOSTS:
            raise HostSetError(f"names more than {MAX_HOSTS} hosts in {quoted(whole)}")
        width = len(first)
        numbers += [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
    return numbers
