"""The keys of `cluster`: roles, in the three forms each can take."""

from __future__ import annotations

from distrun.spec.addresses import ADDRESS_PATTERN, address_problem
from distrun.spec.keys.common import ARGS, ARGS_SAY, ENV, ENV_SAY, MAX_TASKS, count
from distrun.spec.records import Key, Record
from distrun.spec.scalars import Integer, Text
from distrun.spec.shapes import Forms, ListOf, Shape

_ADDRESSES = ListOf(
    item=Text(words="host:port", check=address_problem, pattern=ADDRESS_PATTERN),
    words="a list of addresses such as [localhost:12345]",
    least=1,
    most=MAX_TASKS,
    noun="address",
)
_ROLE_OPTIONS = (
    Key(
        name="gpus",
        shape=Integer(least=0, most=1024),
        examples=(1, 0),
        default="the host's GPUs are divided",
        says="How many GPUs each task of this role gets; 0 hides all GPUs from it.",
    ),
    Key(
        name="cpus",
        shape=Integer(least=1, most=65536),
        examples=(4,),
        default="the host's cores are divided",
        says="How many cores' worth of threads each task of this role uses.",
    ),
    Key(
        name="args",
        shape=ARGS,
        examples=(["--shards", 2],),
        default="`[]`",
        says=f"Added after program.args for this role. {ARGS_SAY}",
    ),
    Key(
        name="env",
        shape=ENV,
        examples=({"TF_CPP_MIN_LOG_LEVEL": 2},),
        default="`{}`",
        says=f"Added to program.env for this role. {ENV_SAY}",
    ),
)
_COUNT = Key(
    name="count",
    shape=count(0),
    examples=(2,),
    default="as many as addresses",
    says="How many tasks; placed on the hosts, ports chosen.",
)
ROLE = Record(
    words="a mapping such as {count: 2, gpus: 1}",
    one_of=("count", "addresses"),
    keys=(
        _COUNT,
        Key(
            name="addresses",
            shape=_ADDRESSES,
            examples=(["localhost:12345"],),
            default="ports are chosen",
            says="Each task's host:port, used verbatim in TF_CONFIG, in place of a count.",
        ),
        *_ROLE_OPTIONS,
    ),
)
_ROLE = Forms(number=count(0), list=_ADDRESSES, mapping=ROLE)
# An evaluator is in nobody's cluster: it has no address.
_EVALUATOR = Forms(
    number=count(0),
    mapping=Record(
        words="a mapping such as {count: 1}", one_of=("count",), keys=(_COUNT, *_ROLE_OPTIONS)
    ),
)


def _role(name: str, shape: Shape, says: str, *examples: object) -> Key:
    return Key(name=name, shape=shape, says=says, examples=examples, default="`0`")


CLUSTER = Record(
    noun="role",
    words="a mapping of roles such as {worker: 2}",
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
