"""The keys of `hosts` and `ssh`."""

from __future__ import annotations

import re

from distrun.spec.addresses import LAST_PORT
from distrun.spec.hostnames import (
    HOST_ADDRESS_PATTERN,
    MAX_HOSTS,
    SET_PATTERN,
    host_address_problem,
    host_set_problem,
)
from distrun.spec.keys.common import ENV, ENV_HELP, NOT_EXPANDED, PATH, VERBATIM, count
from distrun.spec.problems import printable, quoted
from distrun.spec.scalars import Duration, Integer, Text
from distrun.spec.schema import Key, ListOf, MapOf, MappingSchema, OneOf

_INTERPRETER_PATTERN = r"[^/~$][^/$]*|/[^$]*"
_OPTION_PATTERN = r"[A-Za-z][A-Za-z0-9]*"


def _interpreter_problem(python: str) -> str | None:
    """What is wrong with a host's Python interpreter, or None."""
    if re.fullmatch(_INTERPRETER_PATTERN, python):
        return None
    wanted = "must be a name that is in PATH there, or an absolute path"
    if python.startswith("~") or "$" in python:
        return f"{wanted}, not {quoted(python)}; {NOT_EXPANDED}"
    return f"{wanted}, not {quoted(python)}"


def _option_name_problem(name: str) -> str | None:
    """What is wrong with the name of an ssh option, or None."""
    if re.fullmatch(_OPTION_PATTERN, name):
        return None
    return "is no option of ssh_config(5); write one such as ServerAliveInterval"


_HOST = MappingSchema(
    expected="a mapping such as {name: gpu1, slots: 4}",
    keys=(
        Key(
            name="name",
            required=True,
            examples=("gpu1", "user@gpu1", "gpu-[01-16]"),
            schema=Text(
                expected="a host's name", least=1, check=host_set_problem, pattern=SET_PATTERN
            ),
            help="The host's name for ssh: a name, user@name, or a range of names. localhost is "
            "this machine.",
        ),
        Key(
            name="address",
            examples=("10.0.0.5",),
            default="the name",
            schema=Text(
                expected="a host's name or IP address",
                least=1,
                check=host_address_problem,
                pattern=HOST_ADDRESS_PATTERN,
            ),
            help="The address by which other tasks reach this host, if it is not the name.",
        ),
        Key(
            name="slots",
            schema=count(1),
            examples=(4,),
            default="as many as needed",
            help="How many tasks may run on this host.",
        ),
        Key(
            name="gpus",
            examples=(4, [0, 2]),
            default="those that nvidia-smi finds",
            schema=OneOf(
                number=Integer(least=0, most=1024, in_words="a number of GPUs"),
                list=ListOf(
                    item=Integer(least=0, most=1023),
                    noun="index",
                    expected="a list of indices such as [0, 2]",
                ),
            ),
            help="How many GPUs to use on this host, or their indices.",
        ),
        Key(
            name="python",
            schema=Text(
                expected="a Python interpreter",
                least=1,
                check=_interpreter_problem,
                pattern=_INTERPRETER_PATTERN,
            ),
            examples=("/opt/tf/bin/python",),
            default="`program.python`",
            help="The interpreter on this host: a name in its PATH, or an absolute path.",
        ),
        Key(
            name="workdir",
            examples=("/data",),
            default="`program.workdir`",
            schema=Text(expected="an absolute path", pattern=r"/.*", least=1),
            help="The working directory of the tasks on this host.",
        ),
        Key(
            name="env",
            schema=ENV,
            examples=({"NCCL_SOCKET_IFNAME": "eth1"},),
            default="`{}`",
            help=f"Environment variables for the tasks on this host. {ENV_HELP}",
        ),
    ),
)

HOSTS = ListOf(
    item=OneOf(
        text=Text(expected="a host's name", least=1, check=host_set_problem, pattern=SET_PATTERN),
        mapping=_HOST,
    ),
    expected="a list such as [localhost, 'gpu-[01-16]']",
    least=1,
    most=MAX_HOSTS,
    noun="host",
    text_hint=lambda text: f'write ["{printable(text[:60])}"]',
)

SSH = MappingSchema(
    expected="a mapping such as {user: u, port: 22}",
    keys=(
        Key(
            name="user",
            schema=Text(expected="a user's name", least=1, pattern=r"[^-\s][^\s@]*"),
            examples=("u",),
            default="your ssh configuration",
            help="The user to log in as.",
        ),
        Key(
            name="port",
            schema=Integer(least=1, most=LAST_PORT),
            examples=(22,),
            default="your ssh configuration",
            help="The port of sshd.",
        ),
        Key(
            name="identity_file",
            schema=PATH,
            examples=("~/.ssh/id_ed25519",),
            default="your ssh configuration",
            help="The private key to log in with, relative to this file.",
        ),
        Key(
            name="config_file",
            schema=PATH,
            examples=("~/.ssh/config",),
            default="your ssh configuration",
            help="A configuration file for ssh, relative to this file.",
        ),
        Key(
            name="options",
            examples=({"ServerAliveInterval": 15},),
            default="`{}`",
            schema=MapOf(
                value=VERBATIM,
                expected="a mapping such as {ServerAliveInterval: 15}",
                noun="option",
                name_pattern=f"^{_OPTION_PATTERN}$",
                check_name=_option_name_problem,
            ),
            help="More options, as in ssh_config(5).",
        ),
        Key(
            name="connect_timeout",
            schema=Duration(),
            examples=("10s",),
            default="`10s`",
            help="How long to wait for a connection.",
        ),
    ),
)
