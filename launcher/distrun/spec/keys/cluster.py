"""The keys of `cluster`: the roles, each in three forms."""

from __future__ import annotations

import re

from distrun.spec.addresses import ADDRESS_PATTERN, address_problem
from distrun.spec.keys.common import (
    ARGS,
    ARGS_HELP,
    ENV,
    ENV_HELP,
    MAX_TASKS,
    count,
    list_hint,
)
from distrun.spec.keys.program import PROGRAM_KEYS, PROGRAM_KINDS
from distrun.spec.keys.runtime import ROLE_RESTART
from distrun.spec.problems import nearest
from distrun.spec.scalars import Boolean, Choice, Integer, Text
from distrun.spec.schema import Key, ListOf, MappingSchema, OneOf, OtherKeys
from distrun.spec.yamlnodes import Mapping, Node
from distrun.strategies import CUSTOM_ROLE_PATTERN, Role

_ADDRESSES = ListOf(
    item=Text(expected="host:port", check=address_problem, pattern=ADDRESS_PATTERN),
    expected="a list of addresses such as [localhost:12345]",
    least=1,
    most=MAX_TASKS,
    noun="address",
)
_COUNT = Key("count", count(0), (2,), "as many as addresses",
    help="The number of tasks. distrun places them on the hosts and chooses their ports."
)  # fmt: skip


def _line_problem(text: str) -> str | None:
    """Return what is wrong with a regular expression, or None."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    return None


_READY = OneOf(
    text=Choice(
        values=("port", "line", "off"),
        all_forms="port, line, off or a mapping such as {line: ready}",
    ),
    mapping=MappingSchema(
        expected="port, line, off or a mapping such as {line: ready}",
        keys=(
            Key("line", Text(expected="a regular expression", least=1, check=_line_problem),
                ("listening on",), required=True,
                help="A regular expression (Python's) that is searched in each line, in its first "
                "4,096 characters."),
        ),
    ),
)  # fmt: skip
_AFTER = ListOf(
    item=Text(expected="a role"),
    expected="a list of roles such as [dispatcher]",
    noun="role",
    text_hint=list_hint,
)
_ROLE_OPTIONS = (
    Key("gpus", Integer(least=0, most=1024), (1, 0), "the host's GPUs are divided",
        help="How many GPUs each task of this role gets; 0 hides all GPUs from it."),
    Key("cpus", Integer(least=1, most=65536), (4,), "the host's cores are divided",
        help="How many compute threads each task of this role uses."),
    Key("args", ARGS, (["--batch-size", 32],), "`[]`",
        help=f"Arguments for this role, added after program.args. {ARGS_HELP}"),
    Key("env", ENV, ({"TF_CPP_MIN_LOG_LEVEL": 2},), "`{}`",
        help=f"Environment variables for this role, added to program.env. {ENV_HELP}"),
    Key("ready", _READY, ("port", {"line": "listening on"}, "off"),
        "`port`, or `off` for tasks without a port",
        help="When tasks of this role are ready, for the roles that start `after` them: when their "
        "port accepts connections (`port`), when they have printed a line, or one in which a "
        "regular expression is found (`line`), or as soon as their program runs (`off`)."),
    Key("restart", ROLE_RESTART, ({"max": 10, "on": "always"}, "never"), "as `restart`",
        help="How tasks of this role restart: the keys of `restart` that differ, or one of never, "
        "failure, preemption, always. Its restarts do not count against the job's `restart.max`. "
        "Where a group restarts together, the role of the task that failed first decides."),
    Key("after", _AFTER, (["dispatcher"],), "`[]`",
        help="The roles whose tasks must all be ready before a task of this role starts."),
)  # fmt: skip
ROLE = MappingSchema(
    expected="a mapping such as {count: 2, gpus: 1}",
    one_of=("count", "addresses"),
    keys=(
        _COUNT,
        Key("addresses", _ADDRESSES, (["localhost:12345"],), "ports are chosen",
            help="Each task's host:port, used verbatim in TF_CONFIG, instead of a count."),
        *_ROLE_OPTIONS,
    ),
)  # fmt: skip
CUSTOM_ROLE = MappingSchema(
    expected="a mapping such as {count: 1, script: dispatcher.py}",
    one_of=PROGRAM_KINDS,
    keys=(
        *PROGRAM_KEYS,
        *(key for key in ROLE.keys if key.name not in PROGRAM_KINDS),
        Key("in_tf_config", Boolean(), (True,), "`false`",
            help="Whether TF_CONFIG's cluster has this role. Its tasks restart with the cluster "
            "then; otherwise each restarts alone."),
    ),
)  # fmt: skip
"""A role that has its own program, beside the cluster or in it."""


def _is_custom(node: Node) -> bool:
    """Whether a value under an unknown name is a custom role: it names a program."""
    return isinstance(node, Mapping) and any(
        entry.key.text in PROGRAM_KINDS for entry in node.entries
    )


def _role_hint(name: str) -> str:
    if name == "master":
        return "write chief"
    if nearest(name, list(Role)):
        return ""
    return "a role of your own needs a program: {count: 1, script: serve.py}"


def _role_name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a custom role, or None."""
    if re.fullmatch(CUSTOM_ROLE_PATTERN, name):
        return None
    return "must be 1 to 32 lower-case letters, digits and underscores, a letter first"


_ROLE = OneOf(number=count(0), list=_ADDRESSES, mapping=ROLE)
# An evaluator is not in the cluster: it has no address.
_EVALUATOR = OneOf(
    number=count(0),
    mapping=MappingSchema(
        expected="a mapping such as {count: 1}", one_of=("count",), keys=(_COUNT, *_ROLE_OPTIONS)
    ),
)
CLUSTER = MappingSchema(
    noun="role",
    expected="a mapping of roles such as {worker: 2}",
    unknown_hint=_role_hint,
    others=OtherKeys(CUSTOM_ROLE, _is_custom, CUSTOM_ROLE_PATTERN, _role_name_problem),
    keys=(
        Key("chief", _ROLE, (1, ["localhost:12345"]), "`0`",
            help="The task that also saves and, with parameter_server, directs the others. A "
            "count, a list of addresses, or a mapping."),
        Key("worker", _ROLE,
            (2, ["localhost:12345", "localhost:23456"], {"count": 2, "gpus": 1}), "`0`",
            help="The tasks that train. A count, a list of addresses (host:port, used verbatim in "
            "TF_CONFIG), or a mapping."),
        Key("ps", _ROLE, (1, {"count": 2, "gpus": 0, "cpus": 1}), "`0`",
            help="The parameter servers, which hold the variables. A count, a list of addresses, "
            "or a mapping."),
        Key("evaluator", _EVALUATOR, (1,), "`0`",
            help="A task beside the cluster that evaluates checkpoints. A count or a mapping; it "
            "has no address."),
    ),
)  # fmt: skip
