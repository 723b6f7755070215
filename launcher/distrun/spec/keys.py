"""Every key of the spec: its shape, its default, and what people are told about it.

This one table is read by the loader, the JSON Schema and the reference.
"""

from __future__ import annotations

import re

from distrun.spec.addresses import ADDRESS_PATTERN, LAST_PORT, address_problem
from distrun.spec.hostnames import SET_PATTERN, host_set_problem
from distrun.spec.names import (
    ENV_NAME_PATTERN,
    MODULE_PATTERN,
    OPTION_PATTERN,
    env_name_problem,
    option_name_problem,
)
from distrun.spec.shapes import (
    Choice,
    Duration,
    Forms,
    Integer,
    Key,
    ListOf,
    MapOf,
    Record,
    Shape,
    Size,
    Text,
)
from distrun.strategies import STRATEGIES

MAX_TASKS = 100_000
LONGEST_NAME = 100

VERBATIM = Text(words="text, a number, true or false", verbatim=True)
PATH = Text(words="a path", least=1)

ENV = MapOf(
    value=VERBATIM,
    words="a mapping such as {NAME: value}",
    noun="variable",
    name_pattern=ENV_NAME_PATTERN,
    check_name=env_name_problem,
)


def _list_hint(text: str) -> str:
    """The list that a command line's text should have been."""
    import shlex

    try:
        words = shlex.split(text[:200])
    except ValueError:
        words = text[:200].split()
    plain = re.compile(r"[A-Za-z0-9_./=+-]+")
    shown = ", ".join(word if plain.fullmatch(word) else repr(word) for word in words)
    return f"write [{shown}]"


ARGS = ListOf(
    item=VERBATIM, words="a list such as [--epochs, 3]", noun="argument", text_hint=_list_hint
)
ARGS_SAY = "Arguments, each one taken exactly as it is written (`0.10` stays `0.10`)."
ENV_SAY = "Environment variables, values taken as they are written; they are recorded."
_PYTHON = Text(words="a Python interpreter", least=1)


def _count(least: int) -> Integer:
    return Integer(least=least, most=MAX_TASKS, says=f"a whole number of {least} or more")


_ADDRESSES = ListOf(
    item=Text(words="host:port", check=address_problem, pattern=ADDRESS_PATTERN),
    words="a list of addresses such as [localhost:12345]",
    least=1,
    noun="address",
)
_ROLE_OPTIONS = (
    Key(name="gpus", shape=Integer(least=0, most=1024), examples=(1, 0),
        default="the host's GPUs are divided",
        says="How many GPUs each task of this role gets; 0 hides all GPUs from it."),
    Key(name="cpus", shape=Integer(least=1, most=65536), examples=(4,),
        default="the host's cores are divided",
        says="How many cores' worth of threads each task of this role uses."),
    Key(name="args", shape=ARGS, examples=(["--shards", 2],), default="`[]`",
        says=f"Added after program.args for this role. {ARGS_SAY}"),
    Key(name="env", shape=ENV, examples=({"TF_CPP_MIN_LOG_LEVEL": 2},), default="`{}`",
        says=f"Added to program.env for this role. {ENV_SAY}"),
)
_COUNT = Key(name="count", shape=_count(0), examples=(2,),
             says="How many tasks; placed on the hosts, ports chosen.")
_ROLE = Forms(
    number=_count(0),
    list=_ADDRESSES,
    mapping=Record(
        words="a mapping such as {count: 2, gpus: 1}",
        one_of=("count", "addresses"),
        keys=(
            _COUNT,
            Key(name="addresses", shape=_ADDRESSES, examples=(["localhost:12345"],),
                says="Each task's host:port, used verbatim in TF_CONFIG, in place of a count."),
            *_ROLE_OPTIONS,
        ),
    ),
)
# An evaluator is in nobody's cluster: it has no address.
_EVALUATOR = Forms(
    number=_count(0),
    mapping=Record(words="a mapping such as {count: 1}", one_of=("count",),
                   keys=(_COUNT, *_ROLE_OPTIONS)),
)


def _role(name: str, shape: Shape, says: str, *examples: object) -> Key:
    return Key(name=name, shape=shape, says=says, examples=examples, default="`0`")


CLUSTER = Record(
    noun="role",
    words="a mapping of roles such as {worker: 2}",
    keys=(
        _role("chief", _ROLE, "The task that also saves and, with parameter_server, directs the "
              "others. A count, a list of addresses, or a mapping.", 1, ["localhost:12345"]),
        _role("worker", _ROLE, "The tasks that train. A count, a list of addresses (host:port, "
              "used verbatim in TF_CONFIG), or a mapping.",
              2, ["localhost:12345", "localhost:23456"], {"count": 2, "gpus": 1}),
        _role("ps", _ROLE, "The parameter servers, which hold the variables. A count, a list of "
              "addresses, or a mapping.", 1, {"count": 2, "gpus": 0, "cpus": 1}),
        _role("evaluator", _EVALUATOR, "A task beside the cluster that evaluates checkpoints. "
              "A count or a mapping; it has no address.", 1),
    ),
)

_HOST = Record(
    words="a mapping such as {name: gpu1, slots: 4}",
    keys=(
        Key(name="name", required=True, examples=("gpu1", "user@gpu1", "gpu-[01-16]"),
            shape=Text(words="a host's name", least=1, check=host_set_problem,
                       pattern=SET_PATTERN),
            says="What ssh is given: a name, user@name, or a range of names. localhost is this "
            "machine."),
        Key(name="address", examples=("10.0.0.5",), default="the name",
            shape=Text(words="a host's name or IP address", least=1,
                       pattern=r"[A-Za-z0-9_:][A-Za-z0-9_.:%\-]*"),
            says="What the other tasks reach this host by, where that is not its name."),
        Key(name="slots", shape=_count(1), examples=(4,), default="as many as needed",
            says="How many tasks this host takes."),
        Key(name="gpus", examples=(4, [0, 2]), default="those nvidia-smi finds",
            shape=Forms(
                number=Integer(least=0, most=1024, says="a number of GPUs"),
                list=ListOf(item=Integer(least=0, most=1023), noun="index",
                            words="a list of indices such as [0, 2]"),
            ),
            says="How many GPUs to use there, or the indices of those to use."),
        Key(name="python", shape=_PYTHON, examples=("/opt/tf/bin/python",),
            default="`program.python`", says="The interpreter on this host."),
        Key(name="workdir", examples=("/data",), default="`program.workdir`",
            shape=Text(words="an absolute path", pattern=r"/.*", least=1),
            says="The folder on this host in which tasks run."),
        Key(name="env", shape=ENV, examples=({"NCCL_SOCKET_IFNAME": "eth1"},), default="`{}`",
            says=f"Added for the tasks on this host. {ENV_SAY}"),
    ),
)

HOSTS = ListOf(
    item=Forms(
        text=Text(words="a host's name", least=1, check=host_set_problem, pattern=SET_PATTERN),
        mapping=_HOST,
    ),
    words="a list such as [localhost, 'gpu-[01-16]']",
    least=1,
    noun="host",
    text_hint=lambda text: f'write ["{text[:60]}"]',
)

SSH = Record(
    words="a mapping such as {user: u, port: 22}",
    keys=(
        Key(name="user", shape=Text(words="a user's name", least=1, pattern=r"[^-\s][^\s@]*"),
            examples=("u",), default="as ssh is configured", says="Whom to log in as."),
        Key(name="port", shape=Integer(least=1, most=LAST_PORT), examples=(22,),
            default="as ssh is configured", says="The port of sshd."),
        Key(name="identity_file", shape=PATH, examples=("~/.ssh/id_ed25519",),
            default="as ssh is configured",
            says="The private key to log in with, relative to this file."),
        Key(name="config_file", shape=PATH, examples=("~/.ssh/config",),
            default="as ssh is configured",
            says="A configuration for ssh, relative to this file."),
        Key(name="options", examples=({"ServerAliveInterval": 15},), default="`{}`",
            shape=MapOf(value=VERBATIM, words="a mapping such as {ServerAliveInterval: 15}",
                        noun="option", name_pattern=f"^{OPTION_PATTERN}$",
                        check_name=option_name_problem),
            says="Further options, as in ssh_config(5)."),
        Key(name="connect_timeout", shape=Duration(), examples=("10s",), default="`10s`",
            says="How long to wait for a connection."),
    ),
)

PROGRAM = Record(
    words="a mapping such as {script: mnist}",
    one_of=("script", "module", "command"),
    keys=(
        Key(name="script", shape=PATH, examples=("mnist", "train.py"),
            says="A Python script: a path relative to this file, or a bundled job's name."),
        Key(name="module", examples=("trainer.main",),
            shape=Text(words="a module's name such as trainer.main", pattern=MODULE_PATTERN),
            says="A Python module, run as `python -m` does."),
        Key(name="command", examples=(["./train.sh", "--fast"],),
            shape=ListOf(item=VERBATIM, words="a list of texts", least=1, noun="word",
                         text_hint=_list_hint),
            says="A program and its first arguments, run without a shell."),
        Key(name="python", shape=_PYTHON, examples=("python3", ".venv/bin/python"),
            default="on this machine, the interpreter that runs distrun",
            says="The interpreter for script and module: a name, or a path relative to this file."),
        Key(name="args", shape=ARGS, examples=(["--epochs", 3],), default="`[]`", says=ARGS_SAY),
        Key(name="workdir", shape=PATH, examples=(".",),
            default="the folder where launch was called",
            says="The folder in which tasks run, relative to this file."),
        Key(name="env", shape=ENV, examples=({"TF_CPP_MIN_LOG_LEVEL": 2},), default="`{}`",
            says=ENV_SAY),
        Key(name="pass_env", examples=(["WANDB_API_KEY"],), default="`[]`",
            shape=ListOf(item=Text(words="a variable's name", check=env_name_problem),
                         words="a list of names such as [WANDB_API_KEY]", noun="name",
                         text_hint=_list_hint),
            says="Variables taken from the launching shell; their values are never recorded, "
            "printed, or on a command line."),
        Key(name="sync", examples=("script", "off", ["data", "train.py"]), default="`script`",
            shape=Forms(
                text=Choice(values=("script", "off")),
                list=ListOf(item=PATH, words="a list of paths", least=1, noun="path"),
            ),
            says="What other hosts are sent: the script's folder, nothing, or a list of paths "
            "relative to this file."),
    ),
)

RESTART = Record(
    words="a mapping such as {max: 3}",
    keys=(
        Key(name="max", shape=_count(0), examples=(3,), default="`0`",
            says="How many restarts the job may have."),
        Key(name="backoff", shape=Duration(zero=True), examples=("1s",), default="`1s`",
            says="How long to wait before the first restart; it doubles with each one."),
        Key(name="backoff_max", shape=Duration(zero=True), examples=("30s",), default="`30s`",
            says="The longest wait before a restart."),
        Key(name="reset_after", shape=Duration(off=True), examples=("10m",), default="`10m`",
            says="After this long without a failure, restarts are counted from 0 again."),
        Key(name="never_on", examples=([2],), default="`[]`",
            shape=ListOf(item=Integer(least=1, most=255), noun="exit code",
                         words="a list of exit codes such as [2]"),
            says="Exit codes after which nothing is restarted."),
    ),
)

TIMEOUTS = Record(
    words="a mapping such as {grace: 10s}",
    keys=(
        Key(name="start", shape=Duration(off=True), examples=("5m",), default="`5m`",
            says="How long the job may take to start."),
        Key(name="run", shape=Duration(off=True), examples=("2h",), default="`off`",
            says="How long the job may run."),
        Key(name="grace", shape=Duration(zero=True), examples=("10s",), default="`10s`",
            says="How long tasks have to end after SIGTERM before they are killed."),
        Key(name="stall", shape=Duration(off=True), examples=("10m",), default="`off`",
            says="How long a task may make no progress."),
        Key(name="link", shape=Duration(off=True), examples=("60s",), default="`60s`",
            says="How long a host may be out of reach before its tasks end."),
    ),
)

_PORT_RANGE = Text(words="a range such as 20000-21000", pattern=r"[0-9]{1,5}-[0-9]{1,5}")
PORTS = Forms(
    text=Choice(values=("auto",)),
    mapping=Record(
        words="a mapping such as {range: 20000-21000}",
        keys=(
            Key(name="range", shape=_PORT_RANGE, required=True, examples=("20000-21000",),
                says="The first and the last port to choose from."),
        ),
    ),
)

LOGS = Record(
    words="a mapping such as {max_size: 100MB}",
    keys=(
        Key(name="max_size", shape=Size(), examples=("off", "100MB", "1GiB"), default="`off`",
            says="How large one task's log may grow."),
    ),
)

TENSORBOARD = Record(
    words="a mapping such as {logdir: logs}",
    keys=(
        Key(name="logdir", shape=PATH, required=True, examples=("logs",),
            says="The folder with the event files, relative to the tasks' working folder."),
        Key(name="port", examples=("auto", 6006), default="`auto`",
            shape=Forms(text=Choice(values=("auto",)), number=Integer(least=1, most=LAST_PORT)),
            says="The port TensorBoard listens on."),
    ),
)


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
        Key(name="name", examples=("mnist",), default="the file's name without its ending",
            shape=Text(words="a name", verbatim=True, least=1, most=LONGEST_NAME),
            says="The job's name; only ever a name, never a path or a command."),
        Key(name="strategy", required=True, examples=("multi_worker_mirrored",
                                                       "parameter_server", "mirrored"),
            shape=Choice(values=tuple(STRATEGIES), unknown=snake),
            says="The tf.distribute strategy that the program uses."),
        Key(name="cluster", shape=CLUSTER, examples=({"worker": 2},),
            default="one task, where the strategy runs in one process",
            says="The tasks, by role. Each role is a count, a list of addresses, or a mapping."),
        Key(name="program", shape=PROGRAM, required=True,
            examples=({"script": "mnist", "args": ["--epochs", 3]},),
            says="What each task runs: one of script, module and command."),
        Key(name="hosts", shape=HOSTS, examples=(["localhost"], ["gpu-[01-16]"]),
            default="this machine",
            says="The machines that run tasks: names, ranges of names, or mappings."),
        Key(name="hostfile", shape=PATH, examples=("hosts.txt",),
            says="A file of hosts in place of `hosts`, relative to this file: a line each, "
            "`host slots=N` as Open MPI and DeepSpeed write it, or `host:N`."),
        Key(name="placement", shape=Choice(values=("spread", "pack")), examples=("spread", "pack"),
            default="`spread`",
            says="How tasks are laid on hosts: round robin, or one host's slots after another's."),
        Key(name="ssh", shape=SSH, examples=({"user": "u", "port": 22},),
            default="ssh as you have configured it", says="How other hosts are reached."),
        Key(name="success", shape=Choice(values=("strategy", "chief", "worker0", "all")),
            examples=("strategy", "worker0"), default="`strategy`",
            says="Whose exit 0 makes the job a success, where not what the strategy implies."),
        Key(name="restart", shape=RESTART, examples=({"max": 3},), default="no restarts",
            says="How often and how soon failed tasks are started again."),
        Key(name="timeouts", shape=TIMEOUTS, examples=({"grace": "10s"},),
            says="How long things may take, such as 500ms, 10s, 5m, 1h, or off."),
        Key(name="ports", shape=PORTS, examples=("auto", {"range": "20000-21000"}),
            default="`auto`", says="The ports that tasks get where no address is written."),
        Key(name="logs", shape=LOGS, examples=({"max_size": "100MB"},),
            says="How the tasks' logs are kept."),
        Key(name="tensorboard", shape=TENSORBOARD, examples=({"logdir": "logs"},),
            default="none", says="Starts TensorBoard beside the job."),
    ),
)
