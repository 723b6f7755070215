"""The top-level keys of the spec."""

from __future__ import annotations

import re

from distrun.spec.keys.cluster import CLUSTER
from distrun.spec.keys.common import PATH, count
from distrun.spec.keys.hosts import HOSTS, SSH
from distrun.spec.keys.kubernetes import KUBERNETES_JOB
from distrun.spec.keys.program import PROGRAM
from distrun.spec.keys.runtime import LOGS, PORTS, RESTART, TENSORBOARD, TIMEOUTS
from distrun.spec.keys.slurm import SLURM_JOB
from distrun.spec.problems import nearest
from distrun.spec.scalars import Boolean, Choice, Text
from distrun.spec.schema import Key, MappingSchema, OneOf
from distrun.strategies import STRATEGIES, USUAL

LONGEST_NAME = 100
_CONTROLS = r"\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, ends of lines, characters that reverse text, halves of surrogate pairs."""


def job_name_problem(name: str) -> str | None:
    """Return what is wrong with a job's name, or None."""
    if re.search(f"[{_CONTROLS}]", name):
        return "has a line break or a control character; use letters, digits, blanks and signs"
    return None


def strategy_name(text: str) -> str:
    """TensorFlow's name of a strategy (MultiWorkerMirroredStrategy) in the spelling of the spec."""
    name = text[:100].rpartition(".")[2]
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("-", "_")).lower()
    return name.removesuffix("_strategy").removesuffix("_v2")


def _section_hint(name: str) -> str:
    """A hint for a key that belongs in a section, or ''."""
    if name in ("gpus", "cpus"):
        host = ", or for a host: hosts: [{name: localhost, gpus: 2}]" if name == "gpus" else ""
        return f"write it for a role: cluster: {{worker: {{count: 2, {name}: 1}}}}{host}"
    sections = {"cluster": CLUSTER, "program": PROGRAM, "timeouts": TIMEOUTS, "restart": RESTART}
    for section, schema in sections.items():
        if any(key.name == name for key in schema.keys):
            return f"did you mean {section}.{name}?"
    if nearest(name, (key.name for key in SPEC.keys)):
        return ""
    paths = {key.name: f"{section}.{key.name}" for section, schema in sections.items()
             for key in schema.keys}  # fmt: skip
    near = nearest(name, paths)
    return f"did you mean {paths[near]}?" if near else ""


_TASKS = Choice(values=("strategy", "chief", "worker0", "all"))
_SUCCESS = MappingSchema(
    expected="a mapping such as {tasks: all, strict: true}",
    keys=(
        Key("tasks", _TASKS, ("all", "strategy"), "`strategy`",
            help="Which tasks must exit 0 for success. `strategy`: depends on the strategy."),
        Key("strict", Boolean(), (True, False), "`false`",
            help="Makes a success that is told with a warning a failure (exit code 75), as "
            "`--strict` does. Such warnings are, for example: a log ends in an exception "
            "although its task exited 0; a task left processes at work."),
    ),
)  # fmt: skip

SPEC = MappingSchema(
    expected="a mapping that has at least strategy and program",
    unknown_hint=_section_hint,
    keys=(
        Key("name", Text(expected="a name", verbatim=True, least=1, most=LONGEST_NAME,
                         pattern=rf"[^{_CONTROLS}]*(?![\s\S])", check=job_name_problem),
            ("mnist",), "the file's name without its extension",
            help="The job's name. It is never used as a path or a command."),
        Key("strategy", Choice(values=tuple(STRATEGIES), unknown=strategy_name),
            (USUAL, *(name for name in STRATEGIES if name != USUAL)), required=True,
            help="The tf.distribute strategy that the program uses."),
        Key("cluster", CLUSTER, ({"worker": 2},), "one task if the strategy runs in one process",
            help="The tasks, by role. Each role is a count, a list of addresses, or a mapping."),
        Key("workers", Choice(values=("coordinated", "independent")),
            ("independent", "coordinated"),
            "`coordinated`; `independent` without a chief, and with `success: worker0`",
            help="What the workers of parameter_server do. `coordinated`: they are servers that "
            "run what the chief sends (ParameterServerStrategy). `independent`: each trains by "
            "itself and exits 0 when it has finished (TensorFlow 1, Estimators)."),
        Key("program", PROGRAM, ({"script": "mnist", "args": ["--epochs", 3]},), required=True,
            help="The program that each task runs: a script, a module or a command."),
        Key("hosts", HOSTS, (["localhost"], ["gpu-[01-16]"], "slurm", "kubernetes"),
            "this machine",
            help="The machines that run tasks: names, ranges of names, or mappings. `slurm`: the "
            "nodes of the Slurm allocation in which distrun runs. `kubernetes`: pods, which the "
            "job creates as the section `kubernetes` says."),
        Key("hostfile", PATH, ("hosts.txt",), "none",
            help="A file with one host a line, instead of `hosts`: `host slots=N` as in Open MPI "
            "and DeepSpeed, or `host:N`. The path is relative to this file."),
        Key("spares", count(0), (1,), "`0`",
            help="How many hosts at the end of `hosts` or of the hostfile are spares, as with "
            "`spare: true`. They take over the tasks of hosts that are lost (restart.max > 0)."),
        Key("placement", Choice(values=("spread", "pack")), ("spread", "pack"), "`spread`",
            help="How tasks are placed on hosts: round robin, or filling one host after another."),
        Key("ssh", SSH, ({"user": "u", "port": 22},), "your ssh configuration",
            help="How distrun calls ssh to reach other hosts."),
        Key("slurm", SLURM_JOB, ({"partition": "gpu", "time": "12h"},), "the cluster's defaults",
            help="What `distrun submit` asks Slurm for. Other commands ignore it."),
        Key("kubernetes", KUBERNETES_JOB, ({"image": "tensorflow/tensorflow:2.19.0"},),
            "no pods", help="The pods of a job with `hosts: kubernetes`."),
        Key("success", OneOf(text=_TASKS, mapping=_SUCCESS),
            ("strategy", "worker0", {"tasks": "all", "strict": True}), "`strategy`",
            help="Which tasks must exit 0 for success, and whether anything may speak against "
            "it. `strategy`: depends on the strategy."),
        Key("restart", RESTART, ({"max": 3},), "nothing is restarted",
            help="Restarts failed tasks, together with other tasks if the strategy requires it."),
        Key("timeouts", TIMEOUTS, ({"grace": "10s"},), "as below",
            help="Time limits, such as 500ms, 10s, 5m, 1h, or off."),
        Key("ports", PORTS, ("auto", {"range": "20000-21000"}), "`auto`",
            help="The ports for tasks without an explicit address."),
        Key("logs", LOGS, ({"max_size": "100MB"},), "as below",
            help="How the tasks' logs are kept."),
        Key("vars", Choice(values=("env", "off")), ("env", "off"), "`env`",
            help="Whether `${NAME}` in a value stands for that variable of the launching "
            "environment. `$${NAME}` stands for the text `${NAME}`."),
        Key("tensorboard", TENSORBOARD, ({"logdir": "logs"},), "none",
            help="Starts TensorBoard together with the job."),
    ),
)  # fmt: skip
