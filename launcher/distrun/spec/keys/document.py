"""The top-level keys of the spec."""

from __future__ import annotations

import re

from distrun.spec.keys.cluster import CLUSTER
from distrun.spec.keys.common import PATH
from distrun.spec.keys.hosts import HOSTS, SSH
from distrun.spec.keys.program import PROGRAM
from distrun.spec.keys.runtime import LOGS, PORTS, RESTART, TENSORBOARD, TIMEOUTS
from distrun.spec.scalars import Choice, Text
from distrun.spec.schema import Key, MappingSchema
from distrun.strategies import STRATEGIES, USUAL

LONGEST_NAME = 100


def strategy_name(text: str) -> str:
    """TensorFlow's name of a strategy (MultiWorkerMirroredStrategy) in the spelling of the spec."""
    name = text[:100].rpartition(".")[2]
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("-", "_")).lower()
    return name.removesuffix("_strategy").removesuffix("_v2")


def _section_hint(name: str) -> str:
    """A hint for a key that belongs in a section, or ''."""
    sections = {"cluster": CLUSTER, "program": PROGRAM, "timeouts": TIMEOUTS, "restart": RESTART}
    for section, schema in sections.items():
        if any(key.name == name for key in schema.keys):
            return f"did you mean {section}.{name}?"
    return ""


SPEC = MappingSchema(
    expected="a mapping that has at least strategy and program",
    unknown_hint=_section_hint,
    keys=(
        Key(
            name="name",
            examples=("mnist",),
            default="the file's name without its extension",
            schema=Text(expected="a name", verbatim=True, least=1, most=LONGEST_NAME),
            help="The job's name. It is never used as a path or a command.",
        ),
        Key(
            name="strategy",
            required=True,
            examples=(USUAL, *(name for name in STRATEGIES if name != USUAL)),
            schema=Choice(values=tuple(STRATEGIES), unknown=strategy_name),
            help="The tf.distribute strategy that the program uses.",
        ),
        Key(
            name="cluster",
            schema=CLUSTER,
            examples=({"worker": 2},),
            default="one task if the strategy runs in one process",
            help="The tasks, by role. Each role is a count, a list of addresses, or a mapping.",
        ),
        Key(
            name="program",
            schema=PROGRAM,
            required=True,
            examples=({"script": "mnist", "args": ["--epochs", 3]},),
            help="The program that each task runs: a script, a module or a command.",
        ),
        Key(
            name="hosts",
            schema=HOSTS,
            examples=(["localhost"], ["gpu-[01-16]"]),
            default="this machine",
            help="The machines that run tasks: names, ranges of names, or mappings.",
        ),
        Key(
            name="hostfile",
            schema=PATH,
            examples=("hosts.txt",),
            default="none",
            help="A file with one host a line, instead of `hosts`: `host slots=N` as in Open MPI "
            "and DeepSpeed, or `host:N`. The path is relative to this file.",
        ),
        Key(
            name="placement",
            schema=Choice(values=("spread", "pack")),
            examples=("spread", "pack"),
            default="`spread`",
            help="How tasks are placed on hosts: round robin, or filling one host after another.",
        ),
        Key(
            name="ssh",
            schema=SSH,
            examples=({"user": "u", "port": 22},),
            default="your ssh configuration",
            help="How distrun calls ssh to reach other hosts.",
        ),
        Key(
            name="success",
            schema=Choice(values=("strategy", "chief", "worker0", "all")),
            examples=("strategy", "worker0"),
            default="`strategy`",
            help="Which tasks must exit 0 for success. `strategy`: depends on the strategy.",
        ),
        Key(
            name="restart",
            schema=RESTART,
            examples=({"max": 3},),
            default="nothing is restarted",
            help="Restarts failed tasks, together with other tasks if the strategy requires it.",
        ),
        Key(
            name="timeouts",
            schema=TIMEOUTS,
            examples=({"grace": "10s"},),
            default="as below",
            help="Time limits, such as 500ms, 10s, 5m, 1h, or off.",
        ),
        Key(
            name="ports",
            schema=PORTS,
            examples=("auto", {"range": "20000-21000"}),
            default="`auto`",
            help="The ports for tasks without an explicit address.",
        ),
        Key(
            name="logs",
            schema=LOGS,
            examples=({"max_size": "100MB"},),
            default="as below",
            help="How the tasks' logs are kept.",
        ),
        Key(
            name="tensorboard",
            schema=TENSORBOARD,
            examples=({"logdir": "logs"},),
            default="none",
            help="Starts TensorBoard together with the job.",
        ),
    ),
)
