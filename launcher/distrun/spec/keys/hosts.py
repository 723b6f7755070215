"""The keys of `hosts` and `ssh`."""

from __future__ import annotations

from distrun.spec.addresses import LAST_PORT
from distrun.spec.hostnames import (
    HOST_ADDRESS_PATTERN,
    MAX_HOSTS,
    SET_PATTERN,
    host_address_problem,
    host_set_problem,
)
from distrun.spec.keys.common import ENV, ENV_SAY, PATH, VERBATIM, count
from distrun.spec.names import (
    INTERPRETER_PATTERN,
    OPTION_PATTERN,
    interpreter_problem,
    option_name_problem,
)
from distrun.spec.problems import printable
from distrun.spec.records import Key, Record
from distrun.spec.scalars import Duration, Integer, Text
from distrun.spec.shapes import Forms, ListOf, MapOf

_HOST = Record(
    words="a mapping such as {name: gpu1, slots: 4}",
    keys=(
        Key(
            name="name",
            required=True,
            examples=("gpu1", "user@gpu1", "gpu-[01-16]"),
            shape=Text(words="a host's name", least=1, check=host_set_problem, pattern=SET_PATTERN),
            says="What ssh is given: a name, user@name, or a range of names. localhost is this "
            "machine.",
        ),
        Key(
            name="address",
            examples=("10.0.0.5",),
            default="the name",
            shape=Text(
                words="a host's name or IP address",
                least=1,
                check=host_address_problem,
                pattern=HOST_ADDRESS_PATTERN,
            ),
            says="What the other tasks reach this host by, where that is not its name.",
        ),
        Key(
            name="slots",
            shape=count(1),
            examples=(4,),
            default="as many as needed",
            says="How many tasks this host takes.",
        ),
        Key(
            name="gpus",
            examples=(4, [0, 2]),
            default="those nvidia-smi finds",
            shape=Forms(
                number=Integer(least=0, most=1024, says="a number of GPUs"),
                list=ListOf(
                    item=Integer(least=0, most=1023),
                    noun="index",
                    words="a list of indices such as [0, 2]",
                ),
            ),
            says="How many GPUs to use there, or the indices of those to use.",
        ),
        Key(
            name="python",
            shape=Text(
                words="a Python interpreter",
                least=1,
                check=interpreter_problem,
                pattern=INTERPRETER_PATTERN,
            ),
            examples=("/opt/tf/bin/python",),
            default="`program.python`",
            says="The interpreter on this host: a name that is in PATH there, or an absolute path.",
        ),
        Key(
            name="workdir",
            examples=("/data",),
            default="`program.workdir`",
            shape=Text(words="an absolute path", pattern=r"/.*", least=1),
            says="The folder on this host in which tasks run.",
        ),
        Key(
            name="env",
            shape=ENV,
            examples=({"NCCL_SOCKET_IFNAME": "eth1"},),
            default="`{}`",
            says=f"Added for the tasks on this host. {ENV_SAY}",
        ),
    ),
)

HOSTS = ListOf(
    item=Forms(
        text=Text(words="a host's name", least=1, check=host_set_problem, pattern=SET_PATTERN),
        mapping=_HOST,
    ),
    words="a list such as [localhost, 'gpu-[01-16]']",
    least=1,
    most=MAX_HOSTS,
    noun="host",
    text_hint=lambda text: f'write ["{printable(text[:60])}"]',
)

SSH = Record(
    words="a mapping such as {user: u, port: 22}",
    keys=(
        Key(
            name="user",
            shape=Text(words="a user's name", least=1, pattern=r"[^-\s][^\s@]*"),
            examples=("u",),
            default="as ssh is configured",
            says="Whom to log in as.",
        ),
        Key(
            name="port",
            shape=Integer(least=1, most=LAST_PORT),
            examples=(22,),
            default="as ssh is configured",
            says="The port of sshd.",
        ),
        Key(
            name="identity_file",
            shape=PATH,
            examples=("~/.ssh/id_ed25519",),
            default="as ssh is configured",
            says="The private key to log in with, relative to this file.",
        ),
        Key(
            name="config_file",
            shape=PATH,
            examples=("~/.ssh/config",),
            default="as ssh is configured",
            says="A configuration for ssh, relative to this file.",
        ),
        Key(
            name="options",
            examples=({"ServerAliveInterval": 15},),
            default="`{}`",
            shape=MapOf(
                value=VERBATIM,
                words="a mapping such as {ServerAliveInterval: 15}",
                noun="option",
                name_pattern=f"^{OPTION_PATTERN}$",
                check_name=option_name_problem,
            ),
            says="Further options, as in ssh_config(5).",
        ),
        Key(
            name="connect_timeout",
            shape=Duration(),
            examples=("10s",),
            default="`10s`",
            says="How long to wait for a connection.",
        ),
    ),
)
