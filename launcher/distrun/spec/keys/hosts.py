"""The keys of `hosts` and `ssh`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distrun.spec.addresses import LAST_PORT
from distrun.spec.hostnames import (
    HOST_ADDRESS_PATTERN,
    MAX_HOSTS,
    SET_PATTERN,
    host_address_problem,
    host_set_problem,
)
from distrun.spec.keys.common import (
    ENV,
    ENV_HELP,
    NOT_EXPANDED,
    PATH,
    PYTHON,
    VERBATIM,
    count,
    list_hint,
)
from distrun.spec.problems import quoted
from distrun.spec.scalars import Boolean, Duration, Integer, Text
from distrun.spec.schema import Key, ListOf, MapOf, MappingSchema, OneOf
from distrun.spec.yamlnodes import Node, Scalar

if TYPE_CHECKING:
    from distrun.spec.problems import Problems
    from distrun.spec.schema import JsonSchema

_INTERPRETER_PATTERN = r"[^/~$][^/$]*|/[^$]*"
_OPTION_PATTERN = r"[A-Za-z][A-Za-z0-9]*"


def _interpreter_problem(python: str) -> str | None:
    """Return what is wrong with a host's Python interpreter, or None."""
    if re.fullmatch(_INTERPRETER_PATTERN, python):
        return None
    wanted = "must be a name that is in PATH there, or an absolute path"
    if python.startswith("~") or "$" in python:
        return f"{wanted}, not {quoted(python)}; '~' and {NOT_EXPANDED}"
    return f"{wanted}, not {quoted(python)}"


def _option_name_problem(name: str) -> str | None:
    """Return what is wrong with the name of an ssh option, or None."""
    if re.fullmatch(_OPTION_PATTERN, name):
        return None
    return "is no option of ssh_config(5); write one such as ServerAliveInterval"


_SET = Text(expected="a host's name", least=1, check=host_set_problem, pattern=SET_PATTERN)
_ADDRESS = Text(
    expected="a host's name or IP address",
    least=1,
    check=host_address_problem,
    pattern=HOST_ADDRESS_PATTERN,
)
_GPUS = OneOf(
    number=Integer(least=0, most=1024, description="a number of GPUs"),
    list=ListOf(
        item=Integer(least=0, most=1023), noun="index", expected="a list of indices such as [0, 2]"
    ),
)
_INTERPRETER = replace(PYTHON, check=_interpreter_problem, pattern=_INTERPRETER_PATTERN)
_HOST = MappingSchema(
    expected="a mapping such as {name: gpu1, slots: 4}",
    keys=(
        Key("name", _SET, ("gpu1", "user@gpu1", "gpu-[01-16]"), required=True,
            help="The host's name for ssh: a name, user@name, or a range of names. localhost is "
            "this machine."),
        Key("address", _ADDRESS, ("10.0.0.5",), "the name",
            help="The address by which other tasks reach this host, if it is not the name."),
        Key("slots", count(1), (4,), "as many as needed",
            help="How many tasks may run on this host."),
        Key("gpus", _GPUS, (4, [0, 2]), "those that nvidia-smi finds",
            help="How many GPUs to use on this host, or their indices."),
        Key("python", _INTERPRETER, ("/opt/tf/bin/python",), "`program.python`",
            help="The interpreter on this host: a name in its PATH, or an absolute path."),
        Key("workdir", Text(expected="an absolute path", pattern=r"/.*", least=1), ("/data",),
            "`program.workdir`", help="The working directory of the tasks on this host."),
        Key("env", ENV, ({"NCCL_SOCKET_IFNAME": "eth1"},), "`{}`",
            help=f"Environment variables for the tasks on this host. {ENV_HELP}"),
        Key("spare", Boolean(), (True,), "`false`",
            help="Whether this host is a spare: it runs no task until it takes over those of a "
            "host that was lost."),
        Key("spares", count(1), (2,), "none",
            help="How many hosts at the end of a range of names are spares."),
    ),
)  # fmt: skip
SLURM = "slurm"
"""In place of the list of hosts: the nodes of the Slurm allocation that distrun runs in."""
KUBERNETES = "kubernetes"
"""In place of the list of hosts: pods that the job creates."""
CLUSTERS = (SLURM, KUBERNETES)


class HostList(ListOf):
    """A list of hosts, or a word for those of a cluster."""

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.text in CLUSTERS:
            return node.text
        return super().read(node, path, problems)

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [{"enum": list(CLUSTERS)}, super().json_schema()]}


HOSTS = HostList(
    item=OneOf(text=_SET, mapping=_HOST),
    expected="a list such as [localhost, 'gpu-[01-16]']",
    least=1,
    most=MAX_HOSTS,
    noun="host",
    text_hint=lambda text: list_hint(re.sub(r",(?![^\[]*\])", " ", text)),
)

_OPTIONS = MapOf(
    value=VERBATIM,
    expected="a mapping such as {ServerAliveInterval: 15}",
    noun="option",
    name_pattern=f"^{_OPTION_PATTERN}$",
    check_name=_option_name_problem,
)
SSH = MappingSchema(
    expected="a mapping such as {user: u, port: 22}",
    keys=(
        Key("user", Text(expected="a user's name", least=1, pattern=r"[^-\s][^\s@]*"), ("u",),
            "your ssh configuration", help="The user to log in as."),
        Key("port", Integer(least=1, most=LAST_PORT), (22,), "your ssh configuration",
            help="The port of sshd."),
        Key("identity_file", PATH, ("~/.ssh/id_ed25519",), "your ssh configuration",
            help="The private key to log in with, relative to this file."),
        Key("config_file", PATH, ("~/.ssh/config",), "your ssh configuration",
            help="A configuration file for ssh, relative to this file."),
        Key("options", _OPTIONS, ({"ServerAliveInterval": 15},), "`{}`",
            help="More options, as in ssh_config(5)."),
        Key("connect_timeout", Duration(), ("10s",), "`10s`",
            help="How long to wait for a connection."),
    ),
)  # fmt: skip
