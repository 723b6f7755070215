"""The validated spec: the meaning of a YAML file, with every default filled in.

:func:`distrun.spec.loader.load` returns one. Everything after that works only with this frozen
object. Durations are in seconds; ``None`` means ``off``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from distrun.frozen import Frozen, field
from distrun.strategies import (  # at run time too: distrun.codec reads the hints
    Role,
    Strategy,
    Success,
    Workers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class ProgramKind(str, Enum):
    """How a task's program is named in the spec."""

    SCRIPT = "script"
    MODULE = "module"
    COMMAND = "command"


class Placement(str, Enum):
    """How tasks are placed on hosts: round robin, or filling one host after another."""

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


class RoleSpec(Frozen, kw_only=True):
    """The tasks of one role. `addresses` is empty if distrun chooses the ports."""

    role: Role
    program: ProgramSpec | None = None
    """The program of a custom role; None: the spec's."""
    restart: RestartSpec | None = None
    """None: as the spec's `restart` says."""
    in_tf_config: bool = True
    """Whether the cluster in TF_CONFIG has a custom role."""
    ready: Ready | None = None
    """What shows that its tasks are ready; None: PORT for those that have one, else OFF."""
    ready_line: str = ""
    """The regular expression of a line that says that a task is ready."""
    after: tuple[Role, ...] = ()
    """The roles whose tasks must be ready first."""
    count: int
    addresses: tuple[str, ...] = ()
    gpus: int | None = None
    cpus: int | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    expects_free_port: bool = False
    """Whether its program is told its port otherwise than by TF_CONFIG, and listens itself."""

    def is_in_cluster(self, strategy: Strategy) -> bool:
        """Whether TF_CONFIG has its addresses. An evaluator is in nobody's cluster."""
        return strategy.tf_config and self.in_tf_config and self.role is not Role.EVALUATOR

    def has_ports(self, strategy: Strategy) -> bool:
        """Whether each of its tasks has a port."""
        return self.expects_free_port or self.is_in_cluster(strategy)


class SlurmNode(Frozen, kw_only=True):
    """What Slurm gave to a job on one node."""

    job: str
    """The id of the job."""
    cores: int
    memory: int | None = None
    """Bytes; None: all of the node."""
    gpus: int | None = None
    """How many GPUs; None: the cluster does not count GPUs, and all that are there may be used."""


class HostSpec(Frozen, kw_only=True):
    """A machine that runs tasks. `name` is its name for ssh; this machine is `localhost`."""

    name: str = "localhost"
    address: str | None = None
    slots: int | None = None
    gpus: tuple[int, ...] | None = None
    """Indices of the GPUs to use; None: all of the host."""
    python: str | None = None
    workdir: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    local: bool = False
    """Whether `name` is one of this machine's own; `localhost` always is."""
    spare: bool = False
    """Whether it runs tasks only in place of another host."""
    slurm: SlurmNode | None = None
    """What Slurm gave of it, if it is a node of an allocation."""
    pod: bool = False
    """Whether it is a pod that the job creates in Kubernetes."""

    @property
    def machine(self) -> str:
        """Its name without the user's."""
        return self.name.rpartition("@")[2]

    @property
    def is_local(self) -> bool:
        return self.local or self.name in ("localhost", "127.0.0.1", "::1")

    @property
    def kind(self) -> str:
        """A label for people: the way to reach it."""
        return self.reach

    @property
    def reach(self) -> str:
        """The module of :mod:`distrun.supervisor.hosts` that reaches it."""
        if self.slurm is not None:
            return "srun"
        if self.pod:
            return "kubernetes"
        return "local" if self.is_local else "ssh"


class SshSpec(Frozen, kw_only=True):
    """Settings of the OpenSSH client, in addition to the user's own configuration."""

    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    config_file: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    connect_timeout: float = 10.0


class Interpreter(Frozen):
    """An interpreter's path, and why it is that one, in words."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}, {self.why}"


class ProgramSpec(Frozen, kw_only=True):
    """What each task runs. A custom role has one of its own, with the same files and folder.

    `target` is an absolute path (script), a module's name, or empty (command: see `argv`).
    `workdir` is absolute. `python` is None for the default interpreter. `sync_paths` are the paths
    to send; if there are none, all of `sync_base` is sent. `sync_base` is the folder to which the
    sent paths are relative; it is empty if nothing is sent.
    """

    kind: ProgramKind
    target: str
    argv: tuple[str, ...] = ()
    python: str | None = None
    interpreter: Interpreter | None = None
    """What runs it on this machine where `python` is None; None: what runs distrun."""
    args: tuple[str, ...] = ()
    workdir: str
    env: dict[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    env_style: EnvStyle = EnvStyle.TF
    keras: int | None = None
    """The version of tf.keras, 2 or 3; None: TF_USE_LEGACY_KERAS is left alone."""
    memory: Memory | None = None
    """None: KEEP for the tasks of a cluster with several."""
    owns_tf_config: bool = False
    """Whether the program or `env` sets TF_CONFIG, and distrun does not."""
    binds_port: bool | None = None
    """Whether it listens on its task's port by itself; None: the spec does not say, so no."""
    sync: Sync = Sync.SCRIPT
    sync_paths: tuple[str, ...] = ()
    sync_base: str = ""
    results: tuple[str, ...] = ()
    """What is brought back from other hosts at the end: paths and patterns below `workdir`."""
    is_workdir_chosen: bool = False
    """Whether the spec names `workdir`. Otherwise it is where launch was called."""

    def interpreter_on(self, host: HostSpec) -> Interpreter | None:
        """What runs it on this machine; None on another, and where it was named."""
        is_named = host.python or self.python or self.kind is ProgramKind.COMMAND
        return self.interpreter if host.is_local and not (is_named or host.slurm) else None


class RestartSpec(Frozen, kw_only=True):
    """How often and how soon failed tasks are restarted. Times are in seconds."""

    max: int = 3
    backoff: float = 1.0
    backoff_max: float = 30.0
    reset_after: float | None = 600.0
    on: tuple[str, ...] = ("failure",)
    """Exit codes and ranges (`130-255`), preemption, failure, always: one of them is enough."""
    never_on: tuple[int, ...] = ()
    min_workers: int | None = None
    """The fewest workers to continue with if there is no host for the others; None: all."""
    host_failures: int = 3
    """After so many failures in a row of tasks on one host, that host is left out."""

    def includes(self, status: int | None, *, is_preempted: bool) -> bool:
        """Whether `on` includes a failure with this exit status; None: it has none."""
        if "failure" in self.on or "always" in self.on:
            return True
        if is_preempted and "preemption" in self.on:
            return True
        return status in exit_codes(each for each in self.on if each[0].isdigit())


def exit_codes(ranges: Iterable[str]) -> set[int]:
    """Return the exit codes of texts such as `3` and `130-255`."""
    bounds = (each.partition("-") for each in ranges)
    return {code for first, _, last in bounds for code in range(int(first), int(last or first) + 1)}


NO_RESTARTS = RestartSpec(max=0)
"""The meaning of a spec without the section `restart`."""


class Timeouts(Frozen, kw_only=True):
    """Limits in seconds; None means off."""

    start: float | None = 300.0
    run: float | None = None
    grace: float = 10.0
    stall: float | None = None
    link: float | None = 60.0


class TensorBoardSpec(Frozen, kw_only=True):
    """TensorBoard for the job. If `port` is 0, a free port is chosen."""

    logdir: str
    port: int = 0


class SlurmSpec(Frozen, kw_only=True):
    """What the job asks Slurm for. None: what Slurm gives by default."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: int | None = None
    """None: it follows from the cluster, see :mod:`distrun.slurm.settings`."""
    time: float | None = None
    gpus_per_node: str | None = None
    """A number, or a type and a number such as `a100:4`."""
    cpus_per_task: int | None = None
    mem_per_node: int | None = None
    """In bytes."""
    exclusive: bool = False
    constraint: str | None = None
    requeue: bool = False
    signal_before_end: float = 120.0
    options: dict[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()


class KubernetesSpec(Frozen, kw_only=True):
    """The pods that the job creates. None: what the cluster's defaults are."""

    image: str
    namespace: str | None = None
    context: str | None = None
    pods: int | None = None
    """None: one for each chief and worker; other tasks run beside them."""
    cpus: str | None = None
    memory: str | None = None
    """As Kubernetes writes quantities: `500m`, `8Gi`."""
    gpus: int | None = None
    queue: str | None = None
    priority_class: str | None = None
    pod: str = "{}"
    """JSON: what is merged into the template of the pods."""


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


class Spec(Frozen, kw_only=True):
    """A whole job. `roles`: in the order of :class:`~distrun.strategies.Role`, custom ones last."""

    name: str
    strategy: str
    roles: tuple[RoleSpec, ...]
    program: ProgramSpec
    hosts: tuple[HostSpec, ...] = (HostSpec(),)
    placement: Placement = Placement.SPREAD
    ssh: SshSpec = field(default_factory=SshSpec)
    workers: Workers | None = None
    """What workers of parameter servers do; None: the spec does not say, and it is COORDINATED."""
    success: Success
    strict: bool = False
    """Whether a success that anything speaks against is a failure."""
    restart: RestartSpec = NO_RESTARTS
    timeouts: Timeouts = field(default_factory=Timeouts)
    port_range: tuple[int, int] | None = None
    """The first and the last port to choose from, both included; None: any free port."""
    log_max_size: int | None = None
    tensorboard: TensorBoardSpec | None = None
    slurm: SlurmSpec = field(default_factory=SlurmSpec)
    kubernetes: KubernetesSpec | None = None
    source: str = field(default="", compare=False)
    """The text of the file, for the record. Not compared: different texts may mean the same."""
    origin: SpecOrigin | None = field(default=None, compare=False)
    """Where the text comes from, and what else the command line says."""

    @property
    def spares(self) -> tuple[HostSpec, ...]:
        """The hosts that run tasks only in place of other hosts."""
        return tuple(host for host in self.hosts if host.spare)

    def program_of(self, role: RoleSpec) -> ProgramSpec:
        return role.program or self.program

    @property
    def scripts(self) -> tuple[str, ...]:
        """The paths of the programs that are scripts."""
        programs = (self.program, *(self.program_of(role) for role in self.roles))
        scripts = (each.target for each in programs if each.kind is ProgramKind.SCRIPT)
        return tuple(dict.fromkeys(scripts))

    @property
    def default_host(self) -> HostSpec:
        """The host of tasks whose address names no host: this machine, if it is one of them."""
        return self.local_host or next(host for host in self.hosts if not host.spare)

    @property
    def local_host(self) -> HostSpec | None:
        """This machine, if it is one of the hosts."""
        return next((host for host in self.hosts if host.is_local and not host.spare), None)

    @property
    def sends_files(self) -> bool:
        """Whether other hosts are sent any: there are some, and something to send."""
        return bool(self.program.sync_base) and not all(host.is_local for host in self.hosts)
