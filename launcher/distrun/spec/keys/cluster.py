"""The keys of `cluster`: the roles, each in three forms."""

from __future__ import annotations

from distrun.spec.addresses import ADDRESS_PATTERN, address_problem
from distrun.spec.keys.common import ARGS, ARGS_HELP, ENV, ENV_HELP, MAX_TASKS, count
from distrun.spec.scalars import Integer, Text
from distrun.spec.schema import Key, ListOf, MappingSchema, OneOf

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
_ROLE_OPTIONS = (
    Key("gpus", Integer(least=0, most=1024), (1, 0), "the host's GPUs are divided",
        help="How many GPUs each task of this role gets; 0 hides all GPUs from it."),
    Key("cpus", Integer(least=1, most=65536), (4,), "the host's cores are divided",
        help="How many compute threads each task of this role uses."),
    Key("args", ARGS, (["--batch-size", 32],), "`[]`",
        help=f"Arguments for this role, added after program.args. {ARGS_HELP}"),
    Key("env", ENV, ({"TF_CPP_MIN_LOG_LEVEL": 2},), "`{}`",
        help=f"Environment variables for this role, added to program.env. {ENV_HELP}"),
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
