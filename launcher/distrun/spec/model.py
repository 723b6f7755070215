"""The validated spec: the meaning of a YAML file, with every default filled in.

:func:`distrun.spec.loader.load` returns one. Everything after that works only with this frozen
object. Durations are in seconds; ``None`` means ``off``.

Fields that are keys of the file say so with :func:`~distrun.spec.schema.key`: how a value is read,
its limits, its default and what it is for. The JSON Schema, the reference and `explain` come from
them. A key that means no field of its own is a ClassVar. The formatter is off there, because it
would give each argument a line.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, ClassVar

from distrun.frozen import Frozen, field
from distrun.spec.addresses import ADDRESS_PATTERN, LAST_PORT, address_problem
from distrun.spec.common_values import (
    ARGS,
    ARGS_HELP,
    ENV,
    ENV_HELP,
    MAX_TASKS,
    PATH,
    PYTHON,
    VERBATIM,
    count,
    env_name_problem,
    list_hint,
    words,
)
from distrun.spec.host_spec import HOSTS, KUBERNETES, OF_SSH, SLURM, HostSpec, SshSpec
from distrun.spec.nodes import Mapping, Node, flow_style
from distrun.spec.problems import nearest, quoted
from distrun.spec.restart_spec import NO_RESTARTS, RESTART, ROLE_RESTART, RestartSpec
from distrun.spec.scalars import Boolean, Choice, Duration, Integer, Size, Text, one_of
from distrun.spec.schedulers import (
    KUBERNETES_HINTS,
    SLURM_HINTS,
    KubernetesSpec,
    Overlay,
    SlurmSpec,
)
from distrun.spec.schema import (
    Key,
    ListOf,
    Made,
    MappingSchema,
    OneOf,
    OtherKeys,
    Section,
    alternatives,
    key,
    key_only,
    keys_in,
    keys_of,
)
from distrun.strategies import (  # at run time too: distrun.codec reads the hints
    CUSTOM_ROLE_PATTERN,
    STRATEGIES,
    USUAL,
    Role,
    Strategy,
    Success,
    Workers,
)


class ProgramKind(str, Enum):
    SCRIPT = "script"
    MODULE = "module"
    COMMAND = "command"


class Placement(str, Enum):
    SPREAD = "spread"
    PACK = "pack"


class Sync(str, Enum):
    """The files to send to other hosts: the script's folder, listed paths, or none."""

    SCRIPT = "script"
    PATHS = "paths"
    OFF = "off"


class Ready(str, Enum):
    """When a task is ready for those that start after it: what has to happen once it runs."""

    PORT = "port"
    LINE = "line"
    OFF = "off"


class Memory(str, Enum):
    """What the C library does with freed memory: keeps it, or what it does on that system."""

    KEEP = "keep"
    SYSTEM = "system"


class EnvStyle(str, Enum):
    """The variables by which tasks find each other: TensorFlow's, or torchrun's as well."""

    TF = "tf"
    TORCHRUN = "torchrun"


TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables of EnvStyle.TORCHRUN."""


class Interpreter(Frozen):
    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}, {self.why}"


OWN_PORT = (
    "the program uses DISTRUN_ADDRESS, and distrun keeps that port bound for TensorFlow's server",
    "write program.binds_port: true if the program listens there by itself, else false",
)
"""The warning, and its hint, if a spec does not say who listens there."""
OF_SHELLS = r"[|&;<>`$*]|^(?:source|export|cd) |\n"


def command_hint(text: str) -> str:
    """The list to write instead of a command line, or of a line for a shell."""
    if not re.search(OF_SHELLS, text):
        return list_hint(text)
    is_short = len(text) <= 200 and text.isprintable()
    line = text.replace("'", "''") if is_short else "..."
    return f"write [bash, -c, '{line}']"


def _result_problem(text: str) -> str | None:
    is_outside = text.startswith("/") or ".." in text.split("/")
    return "leads out of the working folder; write a path below it" if is_outside else None


_MODULE_NAME = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"


def _module_problem(name: str) -> str | None:
    if re.fullmatch(_MODULE_NAME, name):
        return None
    dotted = name.removesuffix(".py").strip("./").replace("/", ".")
    hint = f"; write {dotted}" if re.fullmatch(_MODULE_NAME, dotted) else ""
    return f"must be a module's name such as trainer.main, not {quoted(name)}{hint}"


_MODULE = Text(
    expected="a module's name such as trainer.main", pattern=_MODULE_NAME, check=_module_problem
)
_COMMAND = ListOf(
    item=VERBATIM, expected="a list of texts", least=1, noun="word", text_hint=command_hint
)
_VARIABLE = Text(expected="a variable's name", check=env_name_problem)
_PASS_ENV = words(_VARIABLE, "a list of names such as [WANDB_API_KEY]", "name")
_RESULT = Text(
    expected="a path or a pattern below the working folder, such as checkpoints",
    check=_result_problem,
)
_RESULTS = words(_RESULT, "a list of paths such as [checkpoints, logs]", "path", least=1)
_FOLDER = Text(
    expected="a path on the hosts such as /mnt/run1", least=1, pattern=r"(?!\w+://)[^$]+"
)
_SHARED = words(_FOLDER, "a list of paths such as [checkpoints]", "path")
_SYNC = OneOf(
    text=Choice(values=("script", "off"), all_forms="script, off or a list of paths"),
    list=ListOf(item=PATH, expected="a list of paths", least=1, noun="path"),
)
PROGRAM_KINDS = tuple(each.value for each in ProgramKind)
"""The keys that name a program; one of them is required."""


# fmt: off
class ProgramSpec(Frozen, kw_only=True):
    """What each task runs. A custom role has one of its own, with the same files and folder.

    `target` is an absolute path (script), a module's name, or empty (command: see `argv`).
    `workdir` is absolute. `python` is None for the default interpreter. `sync_paths` are the paths
    to send; if there are none, all of `sync_base` is sent. `sync_base` is the folder to which the
    sent paths are relative; it is empty if nothing is sent.
    """

    script: ClassVar[Key] = key_only(PATH, words="one of script, module and command is required",
        examples=("mnist", "train.py"),
        help="A Python script: a path relative to this file, or a bundled job's name.")
    module: ClassVar[Key] = key_only(_MODULE, words="see script", examples=("trainer.main",),
        help="A Python module, run as `python -m` does.")
    command: ClassVar[Key] = key_only(_COMMAND, words="see script",
        examples=(["./train.sh", "--fast"],),
        help="A program and its first arguments. No shell is involved. A relative path such as "
        "./train.sh is relative to this file, or to workdir if only that has it.")
    kind: ProgramKind
    target: str
    argv: tuple[str, ...] = ()
    python: str | None = key(PYTHON, None,
        "on this machine, that of the active environment (VIRTUAL_ENV, CONDA_PREFIX), else of "
        "an executable script's first line (without options), else the one that runs distrun",
        examples=("python3", ".venv/bin/python"),
        help="The interpreter for script and module: a name, or a path relative to this file.")
    interpreter: Interpreter | None = None
    """What runs it on this machine where `python` is None; None: what runs distrun."""
    args: tuple[str, ...] = key(ARGS, (), examples=(["--epochs", 3],),
        help=f"The program's arguments. {ARGS_HELP}")
    workdir: str = key(PATH, words="the folder where launch was called", examples=(".",),
        help="The working directory of the tasks, relative to this file.")
    env: dict[str, str] = key(ENV, {}, examples=({"TF_CPP_MIN_LOG_LEVEL": 2},),
        help=f"Environment variables of the tasks. {ENV_HELP}")
    pass_env: tuple[str, ...] = key(_PASS_ENV, (), examples=(["WANDB_API_KEY"],),
        help="Variables to take from the launching shell. Their values are never recorded, "
        "printed, or put on a command line.")
    env_style: EnvStyle = key(one_of(EnvStyle), "tf", examples=("torchrun",),
        help="`torchrun`: the tasks also get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
        "MASTER_ADDR and MASTER_PORT, as torchrun sets them. On several hosts, `placement: pack` "
        "gives the tasks of a host successive ranks, as torchrun does.")
    keras: int | None = key(Integer(least=2, most=3, description="2 or 3"), None,
        "TF_USE_LEGACY_KERAS is not changed", examples=(2, 3),
        help="What `tf.keras` is: 2 sets TF_USE_LEGACY_KERAS=1 and needs the package tf_keras, "
        "which is looked for before anything starts; 3 sets TF_USE_LEGACY_KERAS=0.")
    memory: Memory | None = key(one_of(Memory), None, "`keep` in a cluster of several tasks",
        examples=("system",),
        help="`keep`: the C library keeps the memory that a task frees, so that its next step "
        "need not get it from the kernel again (docs/spec.md, Freed memory). `system`: "
        "freed memory goes back to the kernel.")
    binds_port: bool | None = key(Boolean(), None, "`false`", examples=(True,),
        help="`true`: each task has a port, and the program listens on it by itself, at "
        "DISTRUN_ADDRESS: distrun leaves it free. `false`: distrun keeps it bound for "
        "TensorFlow's server. The port is also free with `{port}` in args or env, and with "
        "`env_style: torchrun`.")
    tf_config: ClassVar[Key] = key_only(Choice(values=("mine",)), words="distrun's",
        examples=("mine",),
        help="`mine`: the program or `env` sets TF_CONFIG, and distrun sets none. Without it, "
        "TF_CONFIG in `env` or pass_env is an error.")
    owns_tf_config: bool = False
    """Whether the program or `env` sets TF_CONFIG, and distrun does not."""
    sync: Sync = key(_SYNC, Sync.SCRIPT, "`script`",
        examples=("script", "off", ["data", "train.py"]),
        help="The files to send to other hosts: the script's folder, nothing, or a list of "
        "paths relative to this file (docs/ssh.md).")
    sync_paths: tuple[str, ...] = ()
    sync_base: str = ""
    results: tuple[str, ...] = key(_RESULTS, (), "nothing", examples=(["checkpoints", "logs"],),
        help="What to copy from other hosts to this machine when the tasks have ended, also if "
        "the job has failed: paths or patterns below the tasks' working folder. The paths stay "
        "the same (docs/ssh.md).")
    """What is copied from other hosts at the end: paths and patterns below `workdir`."""
    shared: tuple[str, ...] = key(_SHARED, (), "nothing", examples=(["checkpoints"],),
        help="Folders that all hosts must share, such as that of the checkpoints: paths on the "
        "hosts, relative to the tasks' working folder. With several hosts, the preflight checks "
        "each with a file that the hosts write there, read and remove (docs/ssh.md).")
    is_workdir_chosen: bool = False
    """Whether the spec names `workdir`. Otherwise it is where launch was called."""

    def interpreter_on(self, host: HostSpec) -> Interpreter | None:
        """What runs it on this machine; None on another, and where it was named."""
        is_named = host.python or self.python or self.kind is ProgramKind.COMMAND
        return self.interpreter if host.is_local and not (is_named or host.slurm) else None
# fmt: on


_PROGRAM = MappingSchema(
    expected="a mapping such as {script: mnist}", one_of=PROGRAM_KINDS, keys=keys_of(ProgramSpec)
)


def _addresses_hint(text: str) -> str:
    """The list to write instead of addresses in one text; empty if unclear."""
    addresses = re.split(r"[,;\s]+", text.strip(",; \t"))
    return "" if any(map(address_problem, addresses)) else f"write {flow_style(addresses)}"


_ADDRESSES = ListOf(
    item=Text(expected="host:port", check=address_problem, pattern=ADDRESS_PATTERN),
    expected="a list of addresses such as [localhost:12345]",
    least=1,
    most=MAX_TASKS,
    noun="address",
    text_hint=_addresses_hint,
)


def _line_problem(text: str) -> str | None:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    return None


_READY_FORMS = "port, line, off or a mapping such as {line: ready}"
_READY_LINE = key_only(
    Text(expected="a regular expression", least=1, check=_line_problem),
    examples=("listening on",),
    help="A regular expression of Python. distrun searches for it in the first 4,096 characters "
    "of each line.",
)
_READY = OneOf(
    text=one_of(Ready, all_forms=_READY_FORMS),
    mapping=MappingSchema(expected=_READY_FORMS, keys={"line": _READY_LINE}),
)
_AFTER = words(Text(expected="a role"), "a list of roles such as [dispatcher]", "role")


# fmt: off
class RoleSpec(Frozen, kw_only=True):
    """The tasks of one role. `addresses` is empty if distrun chooses the ports."""

    role: Role
    program: ProgramSpec | None = None
    """The program of a custom role; None: the spec's."""
    count: int = key(count(0), 1, "as many as addresses", examples=(1,),
        help="The number of tasks. distrun places them on the hosts and chooses their ports.")
    addresses: tuple[str, ...] = key(_ADDRESSES, (), "ports are chosen",
        examples=(["localhost:12345"],),
        help="Each task's host:port, used verbatim in TF_CONFIG, instead of a count.")
    gpus: int | None = key(Integer(least=0, most=1024), None, "the host's GPUs are divided",
        examples=(1, 0),
        help="How many GPUs each task of this role gets; 0 hides all GPUs from it.")
    cpus: int | None = key(Integer(least=1, most=65536), None, "the host's cores are divided",
        examples=(4,),
        help="How many compute threads each task of this role uses.")
    args: tuple[str, ...] = key(ARGS, (), examples=(["--batch-size", 32],),
        help=f"Arguments for this role, added after program.args. {ARGS_HELP}")
    env: dict[str, str] = key(ENV, {}, examples=({"TF_CPP_MIN_LOG_LEVEL": 2},),
        help=f"Environment variables for this role, added to program.env. {ENV_HELP}")
    pod: str = key(Overlay(), "", "that of `kubernetes.pod`",
        examples=({"spec": {"nodeSelector": {"pool": "big"}}},),
        help="With `hosts: kubernetes`: each task of this role has a pod of its own, and this is "
        "merged into its template, after `kubernetes.pod`.")
    """JSON."""
    ready: Ready | None = key(_READY, None, "`port`, or `off` for tasks without a port",
        examples=("port", {"line": "listening on"}, "off"),
        help="When a task of this role is ready, for the roles that start `after` it. `port`: its "
        "port accepts connections. `line`: it has printed a line, or one that matches a regular "
        "expression. `off`: its program runs.")
    ready_line: str = ""
    """The regular expression of a line that says that a task is ready."""
    restart: RestartSpec | None = key(ROLE_RESTART, None, "as `restart`",
        examples=({"max": 10, "on": "always"}, "never"),
        help="How tasks of this role restart: the keys of `restart` that differ, or one of never, "
        "failure, preemption, always. Its restarts do not count against the job's `restart.max`. "
        "Where a group restarts together, the role of the task that failed first decides.")
    after: tuple[Role, ...] = key(_AFTER, (), examples=(["dispatcher"],),
        help="The roles whose tasks must all be ready before a task of this role starts.")
    in_tf_config: bool = key(Boolean(), True, "`false`", examples=(True,),
        help="Whether TF_CONFIG's cluster has this role. Its tasks restart with the cluster "
        "then; otherwise each restarts alone.")
    """Only a custom role has the key; all others are in the cluster."""
    expects_free_port: bool = False
    """Whether its program gets its port in another way than by TF_CONFIG, and listens itself."""

    def is_in_cluster(self, strategy: Strategy) -> bool:
        """Whether TF_CONFIG has its addresses. An evaluator is in nobody's cluster."""
        return strategy.tf_config and self.in_tf_config and self.role is not Role.EVALUATOR

    def has_ports(self, strategy: Strategy) -> bool:
        return self.expects_free_port or self.is_in_cluster(strategy)
# fmt: on


_ROLE_KEYS = keys_of(RoleSpec)
ROLE = MappingSchema(
    expected="a mapping such as {count: 2, gpus: 1}",
    one_of=("count", "addresses"),
    keys={name: each for name, each in _ROLE_KEYS.items() if name != "in_tf_config"},
)
CUSTOM_ROLE = MappingSchema(
    expected="a mapping such as {count: 1, script: dispatcher.py}",
    one_of=PROGRAM_KINDS,
    keys={**{each: keys_of(ProgramSpec)[each] for each in PROGRAM_KINDS}, **_ROLE_KEYS},
)
"""A role that has its own program, beside the cluster or in it."""


def _is_custom(node: Node) -> bool:
    """Whether a value under an unknown name is a custom role: it names a program."""
    return isinstance(node, Mapping) and any(
        entry.key.text in PROGRAM_KINDS for entry in node.entries
    )


_ROLE_HINTS = {
    **dict.fromkeys(("master", "coordinator"), "write chief"),
    **{
        each: f"remove it; it is a key of a role: {{worker: {{count: 2, {each}: 1}}}}"
        for each in ("gpus", "cpus")
    },
    "cluster": "write its roles here, without this key",
    "task": "remove it: distrun gives each task its own",
}


def _role_hint(name: str) -> str:
    if name.startswith("param"):
        return "write ps"
    own = "a role of your own needs a program: {count: 1, script: serve.py}"
    own = f"did you mean program.{name}?" if name in keys_of(ProgramSpec) else own
    return _ROLE_HINTS.get(name, "" if nearest(name, list(Role)) else own)


_ROLE_NAME = Text(
    pattern=CUSTOM_ROLE_PATTERN,
    wrong="must be 1 to 32 lower-case letters, digits and underscores, a letter first",
)
_ROLE_COUNT = Made(count(0), lambda number: Section(count=number))
_ROLE = OneOf(
    number=_ROLE_COUNT,
    list=Made(_ADDRESSES, lambda addresses: Section(addresses=addresses)),
    mapping=ROLE,
)
# An evaluator is not in the cluster: it has no address.
_EVALUATOR = OneOf(
    number=_ROLE_COUNT,
    mapping=MappingSchema(
        expected="a mapping such as {count: 1}",
        one_of=("count",),
        keys={name: each for name, each in ROLE.keys.items() if name != "addresses"},
    ),
)


# fmt: off
_ROLES = {
    "chief": key_only(_ROLE, 0, examples=(1, ["localhost:12345"]),
        help="The task that also saves and, with parameter_server, directs the others. A "
        "count, a list of addresses, or a mapping."),
    "worker": key_only(_ROLE, 0,
        examples=(2, ["localhost:12345", "localhost:23456"], {"count": 2, "gpus": 1}),
        help="The tasks that train. A count, a list of addresses (host:port, used verbatim in "
        "TF_CONFIG), or a mapping."),
    "ps": key_only(_ROLE, 0, examples=(1, {"count": 2, "gpus": 0, "cpus": 1}),
        help="The parameter servers, which hold the variables. A count, a list of addresses, "
        "or a mapping."),
    "evaluator": key_only(_EVALUATOR, 0, examples=(1,),
        help="A task beside the cluster that evaluates checkpoints. A count or a mapping; it "
        "has no address."),
}
# fmt: on


CLUSTER = MappingSchema(
    noun="role",
    expected="a mapping of roles such as {worker: 2}",
    unknown_hint=_role_hint,
    others=OtherKeys(CUSTOM_ROLE, _is_custom, _ROLE_NAME),
    keys=_ROLES,
)
SHORTEST_LINK = 2.0
"""Seconds of the shortest `timeouts.link`: a link counts as lost after 0.3 of it without a
heartbeat, and half of it is left for the end of the tasks. On a machine with three times as many
busy processes as cores, a turn of the supervisor's loop took up to 0.12 s, and an agent's as long.
"""
_WHY_NOT_SHORTER = (
    "on a busy machine, a host that works would count as lost, and its tasks might not have ended"
)


# fmt: off
class Timeouts(Frozen, kw_only=True):
    start: float | None = key(Duration(off=True), "5m",
        help="How long the job may take until all tasks have started.")
    run: float | None = key(Duration(off=True), "off", examples=("2h",),
        help="How long the job may run.")
    grace: float = key(Duration(zero=True), "10s",
        help="How long tasks may take to exit after SIGTERM if the job is stopped or preempted. "
        "Then comes SIGKILL. After a failure: 1s. After a success: 1s, except for evaluators.")
    stall: float | None = key(Duration(off=True), "off", examples=("10m",),
        help="How long the tasks may report no new step or, if they report no steps, print "
        "nothing. Then they are restarted, as `restart` allows, or the job fails.")
    link: float | None = key(Duration(off=True, shortest=SHORTEST_LINK, why=_WHY_NOT_SHORTER),
        "60s",
        help="How long a host may be unreachable until it is lost. Its tasks are stopped before, "
        f"with 60s after 46 to 54 seconds. At least {SHORTEST_LINK:g}s.")


_PORT = OneOf(
    text=Choice(values=("auto",), make=lambda _: 0, all_forms="a port or auto"),
    number=Integer(least=1, most=LAST_PORT),
)


class TensorBoardSpec(Frozen, kw_only=True):
    """TensorBoard for the job. If `port` is 0, a free port is chosen."""

    logdir: str = key(PATH, examples=("logs",),
        help="The folder with the event files, relative to the tasks' working directory.")
    port: int = key(_PORT, 0, "`auto`", examples=("auto", 6006),
        help="The port on which TensorBoard listens.")
# fmt: on


def _section(kind: Any, expected: str, hints: dict[str, str] | None = None) -> MappingSchema:
    keys = keys_of(kind)
    return MappingSchema(expected=expected, kind=kind, keys=keys, unknown_hint=(hints or {}).get)


BY_RUN = "distrun run"
"""In place of a file, of a spec that a command line has made."""


class SpecOrigin(Frozen, kw_only=True):
    """How a spec was read, so that its text can be read again: see :func:`.loader.load`.

    `folder` is the one that relative paths in the text begin from.
    """

    file: str
    folder: str
    cwd: str
    name: str | None = None
    extra_args: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


LONGEST_NAME = 100
_CONTROLS = r"\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, ends of lines, characters that reverse text, halves of surrogate pairs."""


def job_name_problem(name: str) -> str | None:
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
    if name == "TF_CONFIG":
        return "remove it, and write cluster: distrun sets TF_CONFIG for its tasks"
    paths: dict[str, tuple[str, ...]] = {}
    for section, of_section in SPEC.keys.items():
        for each in keys_in(of_section.schema):
            paths[each] = (*paths.get(each, ()), f"{section}.{each}")
    near = name if name in paths else None if nearest(name, SPEC.keys) else nearest(name, paths)
    return f"did you mean {alternatives(paths[near])}?" if near else ""


_TASKS = Choice(values=("strategy", "chief", "worker0", "all"))
_PORT_RANGE = key_only(
    Text(expected="a range such as 20000-21000", pattern=r"[0-9]{1,5}-[0-9]{1,5}"),
    examples=("20000-21000",),
    help="The first and the last port to choose from.",
)
_PORTS = OneOf(
    text=Choice(values=("auto",), all_forms="auto or a mapping such as {range: 20000-21000}"),
    mapping=MappingSchema(
        expected="a mapping such as {range: 20000-21000}", keys={"range": _PORT_RANGE}
    ),
)


# fmt: off
_SUCCESS_KEYS = {
    "tasks": key_only(_TASKS, "strategy", examples=("all", "strategy"),
        help="Which tasks must exit 0 for success. `strategy`: depends on the strategy."),
    "strict": key_only(Boolean(), False, examples=(True, False),
        help="Whether a success with a warning is a failure (exit code 75), as with "
        "`--strict`. Such warnings are, for example: a log ends in an exception although its "
        "task exited 0; processes still ran when their task exited."),
}


_LOGS_KEYS = {
    "max_size": key_only(Size(), "off", examples=("off", "100MB", "1GiB"),
        help="How much of a task's log stays on the disk, over all its attempts. The oldest "
        "output is dropped, on this machine and on the task's host. A log can be larger by "
        "64 KiB and by what is printed in 0.1 s. What is dropped before it was read is not shown "
        "either; the freed start of the file reads as zero bytes, which `distrun logs` skips. The "
        "file system must be able to free it, as ext4, XFS, Btrfs and tmpfs can."),
}


_SUCCESS = OneOf(
    text=Made(_TASKS, lambda tasks: {"tasks": tasks}),
    mapping=MappingSchema(
        expected="a mapping such as {tasks: all, strict: true}", keys=_SUCCESS_KEYS
    ),
)
_LOGS = MappingSchema(expected="a mapping such as {max_size: 100MB}", keys=_LOGS_KEYS)


class Spec(Frozen, kw_only=True):
    """A whole job. `roles`: in the order of :class:`~distrun.strategies.Role`, custom ones last."""

    name: str = key(
        Text(expected="a name", verbatim=True, least=1, most=LONGEST_NAME,
             pattern=rf"[^{_CONTROLS}]*(?![\s\S])", check=job_name_problem),
        words="the file's name without its extension", examples=("mnist",),
        help="The job's name. It is never used as a path or a command.")
    strategy: str = key(Choice(values=tuple(STRATEGIES), unknown=strategy_name),
        examples=(USUAL, *(each for each in STRATEGIES if each != USUAL)),
        help="The tf.distribute strategy that the program uses.")
    cluster: ClassVar[Key] = key_only(CLUSTER, words="one task if the strategy runs in one process",
        examples=({"worker": 2},),
        help="The tasks, by role. Each role is a count, a list of addresses, or a mapping.")
    roles: tuple[RoleSpec, ...]
    workers: Workers | None = key(one_of(Workers, other_hint="write it as cluster.worker"), None,
        "`coordinated`; `independent` without a chief, and with `success: worker0`",
        examples=("independent", "coordinated"),
        help="What the workers of parameter_server do. `coordinated`: they are servers that "
        "run what the chief sends (ParameterServerStrategy). `independent`: each trains by "
        "itself and exits 0 when it has finished (TensorFlow 1, Estimators).")
    """What workers of parameter servers do; None: the spec does not say, and it is COORDINATED."""
    program: ProgramSpec = key(_PROGRAM, examples=({"script": "mnist", "args": ["--epochs", 3]},),
        help="The program that each task runs: a script, a module or a command.")
    hosts: tuple[HostSpec, ...] = key(HOSTS, (HostSpec(),), "this machine",
        examples=(["localhost"], ["gpu-[01-16]"], SLURM, KUBERNETES),
        help="The machines that run tasks: names, ranges of names, or mappings. `slurm`: the "
        "nodes of the Slurm allocation in which distrun runs. `kubernetes`: pods, which the "
        "job creates as the section `kubernetes` says.")
    hostfile: ClassVar[Key] = key_only(PATH, words="none", examples=("hosts.txt",),
        help="A file with one host per line, instead of `hosts`: `host slots=N` as in Open MPI "
        "and DeepSpeed, or `host:N`. The path is relative to this file.")
    spare_hosts: ClassVar[Key] = key_only(count(0), 0, name="spares", examples=(1,),
        help="How many hosts at the end of `hosts` or of the hostfile are spares, as with "
        "`spare: true`. They take over the tasks of hosts that are lost (restart.max > 0).")
    placement: Placement = key(one_of(Placement), "spread", examples=("spread", "pack"),
        help="How tasks are placed on hosts: round robin, or filling one host after another.")
    ssh: SshSpec = key(_section(SshSpec, "a mapping such as {user: u, port: 22}"), SshSpec(),
        OF_SSH, examples=({"user": "u", "port": 22},),
        help="How distrun calls ssh to reach other hosts.")
    slurm: SlurmSpec = key(
        _section(SlurmSpec, "a mapping such as {partition: gpu, time: 12h}", SLURM_HINTS),
        SlurmSpec(), "the cluster's defaults", examples=({"partition": "gpu", "time": "12h"},),
        help="What `distrun submit` asks Slurm for. Other commands ignore it.")
    kubernetes: KubernetesSpec | None = key(
        _section(KubernetesSpec, "a mapping such as {image: IMAGE, cpus: 4}", KUBERNETES_HINTS),
        None, "no pods",
        examples=({"image": "tensorflow/tensorflow:2.19.0"},),
        help="The pods of a job with `hosts: kubernetes`.")
    success: Success = key(_SUCCESS, words="`strategy`",
        examples=("strategy", "worker0", {"tasks": "all", "strict": True}),
        help="Which tasks must exit 0 for success, and whether a success may have warnings. "
        "`strategy`: depends on the strategy.")
    strict: bool = False
    """Whether a success with a warning is a failure."""
    restart: RestartSpec = key(RESTART, NO_RESTARTS, "nothing is restarted",
        examples=({"max": 3},),
        help="Restarts failed tasks, together with other tasks if the strategy requires it.")
    timeouts: Timeouts = key(_section(Timeouts, "a mapping such as {grace: 10s}"), Timeouts(),
        "as below", examples=({"grace": "10s"},),
        help="Time limits, such as 500ms, 10s, 5m, 1h, or off.")
    ports: ClassVar[Key] = key_only(_PORTS, "auto", examples=("auto", {"range": "20000-21000"}),
        help="The ports for tasks without an explicit address.")
    port_range: tuple[int, int] | None = None
    """The first and the last port to choose from, both included; None: any free port."""
    logs: ClassVar[Key] = key_only(_LOGS, words="as below", examples=({"max_size": "100MB"},),
        help="How the tasks' logs are kept.")
    log_max_size: int | None = None
    vars: ClassVar[Key] = key_only(Choice(values=("env", "off")), "env", examples=("env", "off"),
        help="Whether `${NAME}` in a value stands for that variable of the launching "
        "environment. `$${NAME}` stands for the text `${NAME}`.")
    tensorboard: TensorBoardSpec | None = key(
        _section(TensorBoardSpec, "a mapping such as {logdir: logs}"), None, "none",
        examples=({"logdir": "logs"},), help="Starts TensorBoard together with the job.")
    source: str = field(default="", compare=False)
    """The text of the file, for the record. Not compared: different texts may mean the same."""
    origin: SpecOrigin | None = field(default=None, compare=False)
    """Where the text comes from, and what else the command line says."""
# fmt: on

    @property
    def spares(self) -> tuple[HostSpec, ...]:
        return tuple(host for host in self.hosts if host.spare)

    def program_of(self, role: RoleSpec) -> ProgramSpec:
        return role.program or self.program

    @property
    def scripts(self) -> tuple[str, ...]:
        programs = (self.program, *(self.program_of(role) for role in self.roles))
        scripts = (each.target for each in programs if each.kind is ProgramKind.SCRIPT)
        return tuple(dict.fromkeys(scripts))

    @property
    def local_host(self) -> HostSpec | None:
        return next((host for host in self.hosts if host.is_local and not host.spare), None)

    @property
    def says_port(self) -> bool:
        """Whether it says who listens on the tasks' ports, or there are none."""
        is_said = self.program.binds_port is not None or not STRATEGIES[self.strategy].tf_config
        return is_said or all(role.expects_free_port for role in self.roles)

    @property
    def sends_files(self) -> bool:
        """Whether other hosts are sent any: there are some, and something to send."""
        return bool(self.program.sync_base) and not all(host.is_local for host in self.hosts)


SPEC = MappingSchema(
    expected="a mapping that has at least strategy and program",
    unknown_hint=_section_hint,
    keys=keys_of(Spec),
)
