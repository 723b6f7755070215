"""The keys of `cluster`: the roles, each in three forms."""

from __future__ import annotations

from distrun.spec.addresses import ADDRESS_PATTERN, address_problem
from distrun.spec.keys.common import ARGS, ARGS_HELP, ENV, ENV_HELP, MAX_TASKS, count
from distrun.spec.scalars import Integer, Text
from distrun.spec.schema import Key, ListOf, MappingSchema, OneOf, Schema

_ADDRESSES = ListOf(
    item=Text(expected="host:port", check=address_problem, pattern=ADDRESS_PATTERN),
    expected="a list of addresses such as [localhost:12345]",
    least=1,
    most=MAX_TASKS,
    noun="address",
)
_ROLE_OPTIONS = (
    Key(
        name="gpus",
        schema=Integer(least=0, most=1024),
        examples=(1, 0),
        default="the host's GPUs are divided",
        help="How many GPUs each task of this role gets; 0 hides all GPUs from it.",
    ),
    Key(
        name="cpus",
        schema=Integer(least=1, most=65536),
        examples=(4,),
        default="the host's cores are divided",
        help="How many compute threads each task of this role uses.",
    ),
    Key(
        name="args",
        schema=ARGS,
        examples=(["--shards", 2],),
        default="`[]`",
        help=f"Arguments for this role, added after program.args. {ARGS_HELP}",
    ),
    Key(
        name="env",
        schema=ENV,
        examples=({"TF_CPP_MIN_LOG_LEVEL": 2},),
        default="`{}`",
        help=f"Environment variables for this role, added to program.env. {ENV_HELP}",
    ),
)
_COUNT = Key(
    name="count",
    schema=count(0),
    examples=(2,),
    default="as many as addresses",
    help="The number of tasks. distrun places them on the hosts and chooses their ports.",
)
ROLE = MappingSchema(
    expected="a mapping such as {count: 2, gpus: 1}",
    one_of=("count", "addresses"),
    keys=(
        _COUNT,
        Key(
            name="addresses",
            schema=_ADDRESSES,
            examples=(["localhost:12345"],),
            default="ports are chosen",
            help="Each task's host:port, used verbatim in TF_CONFIG, instead of a count.",
        ),
        *_ROLE_OPTIONS,
    ),
)
_ROLE = OneOf(number=count(0), list=_ADDRESSES, mapping=ROLE)
# An evaluator is not in the cluster: it has no address.
_EVALUATOR = OneOf(
    number=count(0),
    mapping=MappingSchema(
        expected="a mapping such as {count: 1}", one_of=("count",), keys=(_COUNT, *_ROLE_OPTIONS)
    ),
)


def _role(name: str, schema: Schema, help_text: str, *examples: object) -> Key:
    return Key(name=name, schema=schema, help=help_text, examples=examples, default="`0`")


CLUSTER = MappingSchema(
    noun="role",
    expected="a mapping of roles such as {worker: 2}",
    keys=(
        _role(
            "chief",
            _ROLE,
            "The task that also saves and, with parameter_server, directs the "
            "others. A count, a list of addresses, or a mapping.",
            1,
            ["localhost:12345"],
        ),
        _role(
            "worker",
            _ROLE,
            "The tasks that train. A count, a list of addresses (host:port, "
            "used verbatim in TF_CONFIG), or a mapping.",
            2,
            ["localhost:12345", "localhost:23456"],
            {"count": 2, "gpus": 1},
        ),
        _role(
            "ps",
            _ROLE,
            "The parameter servers, which hold the variables. A count, a list of "
            "addresses, or a mapping.",
            1,
            {"count": 2, "gpus": 0, "cpus": 1},
        ),
        _role(
            "evaluator",
            _EVALUATOR,
            "A task beside the cluster that evaluates checkpoints. "
            "A count or a mapping; it has no address.",
            1,
        ),
    ),
)
