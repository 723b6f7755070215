"""The keys of `restart`, `timeouts`, `ports`, `logs` and `tensorboard`."""

from __future__ import annotations

from distrun.spec.addresses import LAST_PORT
from distrun.spec.keys.common import PATH, count
from distrun.spec.scalars import Choice, Duration, Integer, Size, Text
from distrun.spec.schema import Key, ListOf, MappingSchema, OneOf

RESTART = MappingSchema(
    expected="a mapping such as {max: 3}",
    keys=(
        Key(
            name="max",
            schema=count(0),
            examples=(3,),
            default="`3`",
            help="The most restarts; 0 for none. Restarts after a preemption do not count.",
        ),
        Key(
            name="backoff",
            schema=Duration(zero=True),
            examples=("1s",),
            default="`1s`",
            help="The wait before the first restart, randomly shortened by up to a quarter. It "
            "doubles with each restart.",
        ),
        Key(
            name="backoff_max",
            schema=Duration(zero=True),
            examples=("30s",),
            default="`30s`",
            help="The longest wait before a restart.",
        ),
        Key(
            name="reset_after",
            schema=Duration(off=True),
            examples=("10m",),
            default="`10m`",
            help="After this long without a failure, restarts are counted from 0 again.",
        ),
        Key(
            name="never_on",
            examples=([2],),
            default="`[]`",
            schema=ListOf(
                item=Integer(least=1, most=255),
                noun="exit code",
                expected="a list of exit codes such as [2]",
            ),
            help="Exit codes after which nothing is restarted; for a signal, 128 + its number.",
        ),
    ),
)

TIMEOUTS = MappingSchema(
    expected="a mapping such as {grace: 10s}",
    keys=(
        Key(
            name="start",
            schema=Duration(off=True),
            examples=("5m",),
            default="`5m`",
            help="How long the job may take until all tasks have started.",
        ),
        Key(
            name="run",
            schema=Duration(off=True),
            examples=("2h",),
            default="`off`",
            help="How long the job may run.",
        ),
        Key(
            name="grace",
            schema=Duration(zero=True),
            examples=("10s",),
            default="`10s`",
            help="How long tasks may take to exit after SIGTERM. Then distrun sends SIGKILL.",
        ),
        Key(
            name="stall",
            schema=Duration(off=True),
            examples=("10m",),
            default="`off`",
            help="How long the tasks may report no new step or, if they report no steps, print "
            "nothing. Then they are restarted, as `restart` allows, or the job fails.",
        ),
        Key(
            name="link",
            schema=Duration(off=True),
            examples=("60s",),
            default="`60s`",
            help="How long a host may be unreachable before its tasks are stopped.",
        ),
    ),
)

_PORT_RANGE = Text(expected="a range such as 20000-21000", pattern=r"[0-9]{1,5}-[0-9]{1,5}")
PORTS = OneOf(
    text=Choice(values=("auto",), all_forms="auto or a mapping such as {range: 20000-21000}"),
    mapping=MappingSchema(
        expected="a mapping such as {range: 20000-21000}",
        keys=(
            Key(
                name="range",
                schema=_PORT_RANGE,
                required=True,
                examples=("20000-21000",),
                help="The first and the last port to choose from.",
            ),
        ),
    ),
)

LOGS = MappingSchema(
    expected="a mapping such as {max_size: 100MB}",
    keys=(
        Key(
            name="max_size",
            schema=Size(),
            examples=("off", "100MB", "1GiB"),
            default="`off`",
            help="The largest size of a task's log.",
        ),
    ),
)

TENSORBOARD = MappingSchema(
    expected="a mapping such as {logdir: logs}",
    keys=(
        Key(
            name="logdir",
            schema=PATH,
            required=True,
            examples=("logs",),
            help="The folder with the event files, relative to the tasks' working directory.",
        ),
        Key(
            name="port",
            examples=("auto", 6006),
            default="`auto`",
            schema=OneOf(
                text=Choice(values=("auto",), all_forms="a port or auto"),
                number=Integer(least=1, most=LAST_PORT),
            ),
            help="The port on which TensorBoard listens.",
        ),
    ),
)
