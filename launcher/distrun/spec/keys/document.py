"""The keys of the whole spec."""

from __future__ import annotations

import re

from distrun.spec.keys.cluster import CLUSTER
from distrun.spec.keys.common import PATH
from distrun.spec.keys.hosts import HOSTS, SSH
from distrun.spec.keys.program import PROGRAM
from distrun.spec.keys.running import LOGS, PORTS, RESTART, TENSORBOARD, TIMEOUTS
from distrun.spec.records import Key, Record
from distrun.spec.scalars import Choice, Text
from distrun.strategies import STRATEGIES, USUAL

LONGEST_NAME = 100


def snake(text: str) -> str:
    """The strategy probably meant by TensorFlow's own name for it (MultiWorkerMirroredStrategy)."""
    name = text[:100].rpartition(".")[2]
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("-", "_")).lower()
    return name.removesuffix("_strategy").removesuffix("_v2")


def _belongs(name: str) -> str:
    """Where a key unknown at the top belongs."""
    sections = {"cluster": CLUSTER, "program": PROGRAM, "timeouts": TIMEOUTS, "restart": RESTART}
    for section, record in sections.items():
        if any(key.name == name for key in record.keys):
            return f"did you mean {section}.{name}?"
    return ""


SPEC = Record(
    words="a mapping that has at least strategy and program",
    elsewhere=_belongs,
    keys=(
        Key(
            name="name",
            examples=("mnist",),
            default="the file's name without its ending",
            shape=Text(words="a name", verbatim=True, least=1, most=LONGEST_NAME),
            says="The job's name; only ever a name, never a path or a command.",
        ),
        Key(
            name="strategy",
            required=True,
            examples=(USUAL, *(name for name in STRATEGIES if name != USUAL)),
            shape=Choice(values=tuple(STRATEGIES), unknown=snake),
            says="The tf.distribute strategy that the program uses.",
        ),
        Key(
            name="cluster",
            shape=CLUSTER,
            examples=({"worker": 2},),
            default="one task, where the strategy runs in one process",
            says="The tasks, by role. Each role is a count, a list of addresses, or a mapping.",
        ),
        Key(
            name="program",
            shape=PROGRAM,
            required=True,
            examples=({"script": "mnist", "args": ["--epochs", 3]},),
            says="What each task runs: one of script, module and command.",
        ),
        Key(
            name="hosts",
            shape=HOSTS,
            examples=(["localhost"], ["gpu-[01-16]"]),
            default="this machine",
            says="The machines that run tasks: names, ranges of names, or mappings.",
        ),
        Key(
            name="hostfile",
            shape=PATH,
            examples=("hosts.txt",),
            default="none",
            says="A file of hosts in place of `hosts`, relative to this file: a line each, "
            "`host slots=N` as Open MPI and DeepSpeed write it, or `host:N`.",
        ),
        Key(
            name="placement",
            shape=Choice(values=("spread", "pack")),
            examples=("spread", "pack"),
            default="`spread`",
            says="How tasks are laid on hosts: round robin, or one host's slots after another's.",
        ),
        Key(
            name="ssh",
            shape=SSH,
            examples=({"user": "u", "port": 22},),
            default="ssh as you have configured it",
            says="How other hosts are reached.",
        ),
        Key(
            name="success",
            shape=Choice(values=("strategy", "chief", "worker0", "all")),
            examples=("strategy", "worker0"),
            default="`strategy`",
            says="Whose exit 0 makes the job a success, where not what the strategy implies.",
        ),
        Key(
            name="restart",
            shape=RESTART,
            examples=({"max": 3},),
            default="nothing is restarted",
            says="Starts failed tasks again, together with those that the strategy has start again "
            "with them.",
        ),
        Key(
            name="timeouts",
            shape=TIMEOUTS,
            examples=({"grace": "10s"},),
            default="as below",
            says="How long things may take, such as 500ms, 10s, 5m, 1h, or off.",
        ),
        Key(
            name="ports",
            shape=PORTS,
            examples=("auto", {"range": "20000-21000"}),
            default="`auto`",
            says="The ports that tasks get where no address is written.",
        ),
        Key(
            name="logs",
            shape=LOGS,
            examples=({"max_size": "100MB"},),
            default="as below",
            says="How the tasks' logs are kept.",
        ),
        Key(
            name="tensorboard",
            shape=TENSORBOARD,
            examples=({"logdir": "logs"},),
            default="none",
            says="Starts TensorBoard beside the job.",
        ),
    ),
)
