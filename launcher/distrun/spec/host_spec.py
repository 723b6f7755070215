"""Hosts: their names, and what a spec says of each, and of ssh.

Names and sets of them are such as `gpu1`, `user@gpu1`, `gpu-[01-16]`, `rack[1-2]-n[1,3-4]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, ClassVar

from distrun.frozen import Frozen, replace
from distrun.spec.addresses import LAST_PORT, ipv6
from distrun.spec.common_values import ENV, ENV_HELP, NOT_EXPANDED, PATH, PYTHON, VERBATIM, count
from distrun.spec.nodes import Node, Scalar, flow_style
from distrun.spec.problems import Problems, nearest, quoted
from distrun.spec.scalars import Boolean, Choice, Duration, Integer, Text
from distrun.spec.schema import (
    JsonSchema,
    Key,
    ListOf,
    Made,
    MapOf,
    MappingSchema,
    OneOf,
    Section,
    key,
    key_only,
    keys_of,
)

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
        forms = "a host's name, user@name, or a range such as gpu-[01-16]"
        raise HostSetError(f"must be {forms}, not {quoted(text)}")
    machine = "0".join(literals).rpartition("@")[2]
    if ":" in machine and ipv6(machine) is None:
        name, _, slots = text.rpartition(":")
        raise HostSetError(
            f"has a ':' in {quoted(text)}, which is not an IPv6 address; the port of sshd belongs "
            f"in ssh.port or ~/.ssh/config, slots in {{name: {name}, slots: {slots}}}"
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


class SlurmNode(Frozen, kw_only=True):
    """What Slurm gave to a job on one node."""

    job: str
    """The id of the job."""
    cores: int
    memory: int | None = None
    """Bytes; None: all of the node."""
    gpus: int | None = None
    """How many GPUs; None: the cluster does not count GPUs, and all that are there may be used."""


_INTERPRETER_PATTERN = r"[^/~$][^/$]*|(?:~?/)[^$]*"


def _interpreter_problem(python: str) -> str | None:
    if re.fullmatch(_INTERPRETER_PATTERN, python):
        return None
    text = f"must be a name that is in PATH there, or an absolute path, not {quoted(python)}"
    return f"{text}; {NOT_EXPANDED}" if "$" in python else text


def _listed_name_problem(text: str) -> str | None:
    word = text.lower()
    if word in CLUSTERS:
        return (
            f"is {quoted(text)}: write 'hosts: {word}', not a list; a host of that name is "
            f"{{name: {text}}}"
        )
    return host_set_problem(text)


_HOST_SET = Text(expected="a host's name", least=1, check=host_set_problem, pattern=SET_PATTERN)
_LISTED_NAME = replace(_HOST_SET, check=_listed_name_problem)
_HOST_ADDRESS = Text(
    expected="a host's name or IP address",
    least=1,
    check=host_address_problem,
    pattern=HOST_ADDRESS_PATTERN,
)
_HOST_GPUS = OneOf(
    number=Integer(least=0, most=1024, description="a number of GPUs"),
    list=ListOf(
        item=Integer(least=0, most=1023), noun="index", expected="a list of indices such as [0, 2]"
    ),
)
_INTERPRETER = Text(
    expected=PYTHON.expected, least=1, check=_interpreter_problem, pattern=_INTERPRETER_PATTERN
)


# fmt: off
class HostSpec(Frozen, kw_only=True):
    """A machine that runs tasks. `name` is its name for ssh; this machine is `localhost`."""

    name: str = key(_HOST_SET, "localhost", is_required=True,
        examples=("gpu1", "user@gpu1", "gpu-[01-16]"),
        help="The host's name for ssh: a name, user@name, or a range of names. localhost is "
        "this machine.")
    address: str | None = key(_HOST_ADDRESS, None, "the name", examples=("10.0.0.5",),
        help="The address by which other tasks reach this host, if it is not the name.")
    slots: int | None = key(count(1), None, "as many as needed", examples=(4,),
        help="How many tasks may run on this host.")
    gpus: tuple[int, ...] | None = key(_HOST_GPUS, None, "those that nvidia-smi finds",
        examples=(4, [0, 2]),
        help="How many GPUs to use on this host, or their indices.")
    """Indices of the GPUs to use; None: all of the host."""
    python: str | None = key(_INTERPRETER, None, "`program.python`",
        examples=("/opt/tf/bin/python",),
        help="The interpreter on this host: a name in its PATH, or an absolute path; `~` is the "
        "home folder there.")
    workdir: str | None = key(
        Text(expected="an absolute path", pattern=r"/.*|~(?:/.*)?", least=1), None,
        "`program.workdir`", examples=("/data",),
        help="The working directory of the tasks on this host; `~` is the home folder there.")
    env: dict[str, str] = key(ENV, {}, examples=({"NCCL_SOCKET_IFNAME": "eth1"},),
        help=f"Environment variables for the tasks on this host. {ENV_HELP}")
    spare: bool = key(Boolean(), False, examples=(True,),
        help="Whether this host is a spare: it runs no task until it takes over those of a "
        "host that was lost.")
    spares: ClassVar[Key] = key_only(count(1), words="none", examples=(2,),
        help="How many hosts at the end of a range of names are spares.")
    role: str = key(Made(Text(expected="a role such as ps", least=1), str), "",
        "all roles that have no hosts of their own", examples=("ps", "evaluator"),
        help="The role whose tasks run on this host. They run on no other one, unless `cluster` "
        "has their addresses, and no other role's tasks run here.")
    """Empty: all roles that have no hosts of their own."""
    local: bool = False
    """Whether `name` is one of this machine's own; `localhost` always is."""
    slurm: SlurmNode | None = None
    """What Slurm gave of it, if it is a node of an allocation."""
    pod: bool = False
    """Whether it is a pod that the job creates in Kubernetes."""

    @property
    def machine(self) -> str:
        return self.name.rpartition("@")[2]

    @property
    def is_local(self) -> bool:
        return self.local or self.name in ("localhost", "127.0.0.1", "::1")

    @property
    def reach(self) -> str:
        """The module of :mod:`distrun.supervisor.hosts` that reaches it."""
        if self.slurm is not None:
            return "srun"
        if self.pod:
            return "kubernetes"
        return "local" if self.is_local else "ssh"
# fmt: on


SLURM = "slurm"
"""In place of the list of hosts: the nodes of the Slurm allocation that distrun runs in."""
KUBERNETES = "kubernetes"
"""In place of the list of hosts: pods that the job creates."""
CLUSTERS = (SLURM, KUBERNETES)


class _HostList(ListOf):
    """A list of hosts, or a word for those of a cluster."""

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.text in CLUSTERS:
            return node.text
        return super().read(node, path, problems)

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [Choice(values=CLUSTERS).json_schema(), super().json_schema()]}


_LEAST_PORT = 1024
"""No host has so many slots: such a number is a port."""


def _hosts_hint(text: str) -> str:
    """The list to write instead of names in one text, perhaps with slots; empty if unclear."""
    hosts: list[Any] = []
    for each in re.split(r"[,;\s]+(?![^\[]*\])", text.strip(",; \t")):
        name, colon, slots = each.strip("'\"").partition(":")
        is_count = slots.isdecimal() and 0 < int(slots) < _LEAST_PORT
        if host_set_problem(name) or (colon and not is_count):
            return ""
        hosts.append({"name": name, "slots": int(slots)} if colon else name)
    near = KUBERNETES if text == "k8s" else nearest(text, CLUSTERS)
    return f"did you mean {quoted(near)}?" if near else f"write {flow_style(hosts)}"


HOSTS = _HostList(
    item=OneOf(
        text=Made(_LISTED_NAME, lambda name: Section(name=name)),
        mapping=MappingSchema(
            expected="a mapping such as {name: gpu1, slots: 4}", keys=keys_of(HostSpec)
        ),
    ),
    expected="a list such as [localhost, 'gpu-[01-16]']",
    least=1,
    most=MAX_HOSTS,
    noun="host",
    text_hint=_hosts_hint,
)
_SSH_OPTIONS = MapOf(
    value=VERBATIM,
    expected="a mapping such as {ServerAliveInterval: 15}",
    noun="option",
    name=Text(
        pattern=r"[A-Za-z][A-Za-z0-9]*",
        wrong="is not an option of ssh_config(5); write one such as ServerAliveInterval",
    ),
)
OF_SSH = "your ssh configuration"


# fmt: off
class SshSpec(Frozen, kw_only=True):
    user: str | None = key(Text(expected="a user's name", least=1, pattern=r"[^-\s][^\s@]*"), None,
        OF_SSH, examples=("u",), help="The user to log in as.")
    port: int | None = key(Integer(least=1, most=LAST_PORT), None, OF_SSH, examples=(22,),
        help="The port of sshd.")
    identity_file: str | None = key(PATH, None, OF_SSH, examples=("~/.ssh/id_ed25519",),
        help="The private key to log in with, relative to this file.")
    config_file: str | None = key(PATH, None, OF_SSH, examples=("~/.ssh/config",),
        help="A configuration file for ssh, relative to this file.")
    options: dict[str, str] = key(_SSH_OPTIONS, {}, examples=({"ServerAliveInterval": 15},),
        help="More options, as in ssh_config(5).")
    connect_timeout: float = key(Duration(), "10s", help="How long to wait for a connection.")
# fmt: on
