"""The keys of `restart`, `timeouts`, `ports`, `logs` and `tensorboard`."""

from __future__ import annotations

from distrun.spec.addresses import LAST_PORT
from distrun.spec.keys.common import PATH, count
from distrun.spec.records import Key, Record
from distrun.spec.scalars import Choice, Duration, Integer, Size, Text
from distrun.spec.shapes import Forms, ListOf

RESTART = Record(
    words="a mapping such as {max: 3}",
    keys=(
        Key(
            name="max",
            shape=count(0),
            examples=(3,),
            default="`3`",
            says="How many restarts the job may have, those after a preemption not counted; 0 for "
            "none.",
        ),
        Key(
            name="backoff",
            shape=Duration(zero=True),
            examples=("1s",),
            default="`1s`",
            says="How long to wait before the first restart, less up to a quarter; it doubles with "
            "each one.",
        ),
        Key(
            name="backoff_max",
            shape=Duration(zero=True),
            examples=("30s",),
            default="`30s`",
            says="The longest wait before a restart.",
        ),
        Key(
            name="reset_after",
            shape=Duration(off=True),
            examples=("10m",),
            default="`10m`",
            says="After this long without a failure, restarts are counted from 0 again.",
        ),
        Key(
            name="never_on",
            examples=([2],),
            default="`[]`",
            shape=ListOf(
                item=Integer(least=1, most=255),
                noun="exit code",
                words="a list of exit codes such as [2]",
            ),
            says="Exit codes after which nothing is restarted; 128 + its number for a signal.",
        ),
    ),
)

TIMEOUTS = Record(
    words="a mapping such as {grace: 10s}",
    keys=(
        Key(
            name="start",
            shape=Duration(off=True),
            examples=("5m",),
            default="`5m`",
            says="How long the job may take to start.",
        ),
        Key(
            name="run",
            shape=Duration(off=True),
            examples=("2h",),
            default="`off`",
            says="How long the job may run.",
        ),
        Key(
            name="grace",
            shape=Duration(zero=True),
            examples=("10s",),
            default="`10s`",
            says="How long tasks have to end after SIGTERM before they are killed.",
        ),
        Key(
            name="stall",
            shape=Duration(off=True),
            examples=("10m",),
            default="`off`",
            says="How long the tasks may neither tell of a further step nor, where they tell of "
            "none, print anything; then they start again, as `restart` allows, or the job fails.",
        ),
        Key(
            name="link",
            shape=Duration(off=True),
            examples=("60s",),
            default="`60s`",
            says="How long a host may be out of reach before its tasks end.",
        ),
    ),
)

_PORT_RANGE = Text(words="a range such as 20000-21000", pattern=r"[0-9]{1,5}-[0-9]{1,5}")
PORTS = Forms(
    text=Choice(values=("auto",), instead="auto or a mapping such as {range: 20000-21000}"),
    mapping=Record(
        words="a mapping such as {range: 20000-21000}",
        keys=(
            Key(
                name="range",
                shape=_PORT_RANGE,
                required=True,
                examples=("20000-21000",),
                says="The first and the last port to choose from.",
            ),
        ),
    ),
)

LOGS = Record(
    words="a mapping such as {max_size: 100MB}",
    keys=(
        Key(
            name="max_size",
            shape=Size(),
            examples=("off", "100MB", "1GiB"),
            default="`off`",
            says="How large one task's log may grow.",
        ),
    ),
)

TENSORBOARD = Record(
    words="a mapping such as {logdir: logs}",
    keys=(
        Key(
            name="logdir",
            shape=PATH,
            required=True,
            examples=("logs",),
            says="The folder with the event files, relative to the tasks' working folder.",
        ),
        Key(
            name="port",
            examples=("auto", 6006),
            default="`auto`",
            shape=Forms(
                text=Choice(values=("auto",), instead="a port or auto"),
                number=Integer(least=1, most=LAST_PORT),
            ),
            says="The port TensorBoard listens on.",
        ),
    ),
)
