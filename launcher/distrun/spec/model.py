"""The validated spec: what a YAML file means, with every default filled in and units decided.

:func:`distrun.spec.load` makes one; it is frozen, and everything after it works on this only.
Durations are seconds; ``None`` stands for ``off``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from distrun.strategies import Role, Success  # at run time too: distrun.codec reads the hints


class ProgramKind(str, Enum):
    """How a task's program is named in the spec."""

    SCRIPT = "script"
    MODULE = "module"
    COMMAND = "command"


class Placement(str, Enum):
    """How tasks are laid on hosts: round robin, or one host's slots after another's."""

    SPREAD = "spread"
    PACK = "pack"


class Sync(str, Enum):
    """What other hosts are sent: the script's folder, listed paths, or nothing."""

    SCRIPT = "script"
    PATHS = "paths"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class RoleSpec:
    """One role's tasks. `addresses` is empty where ports are chosen by distrun."""

    role: Role
    count: int
    addresses: tuple[str, ...] = ()
    gpus: int | None = None
    cpus: int | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """A machine that runs tasks. `name` is what ssh is given; this machine is `localhost`."""

    name: str = "localhost"
    address: str | None = None
    slots: int | None = None
    gpus: tuple[int, ...] | None = None
    """Indices of the GPUs to use; None: what the host has."""
    python: str | None = None
    workdir: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    local: bool = False
    """Whether `name` is one of this machine's own; `localhost` always is."""

    @property
    def machine(self) -> str:
        """Its name without the user's."""
        return self.name.rpartition("@")[2]

    @property
    def is_local(self) -> bool:
        return self.local or self.name in ("localhost", "127.0.0.1", "::1")

    @property
    def reach(self) -> str:
        """The module of :mod:`distrun.supervisor.hosts` that reaches it."""
        return "local" if self.is_local else "ssh"


@dataclass(frozen=True, kw_only=True)
class SshSpec:
    """How the OpenSSH client is called, beyond the user's own configuration."""

    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    config_file: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    connect_timeout: float = 10.0


@dataclass(frozen=True, kw_only=True)
class ProgramSpec:
    """What each task runs.

    `target` is an absolute path (script), a module's name, or empty where `argv` is a command.
    `workdir` is absolute. `python` is None where the interpreter is the default.
    `sync_paths` are what is sent; where there are none, all of `sync_base`.
    `sync_base` is the folder to which the paths that are sent are relative; empty: none are.
    """

    kind: ProgramKind
    target: str
    argv: tuple[str, ...] = ()
    python: str | None = None
    args: tuple[str, ...] = ()
    workdir: str
    env: dict[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    sync: Sync = Sync.SCRIPT
    sync_paths: tuple[str, ...] = ()
    sync_base: str = ""
    is_workdir_chosen: bool = False
    """Whether the spec names it; else it is where launch was called."""


@dataclass(frozen=True, kw_only=True)
class RestartSpec:
    """How often and how soon failed tasks are started again. Times in seconds."""

    max: int = 3
    backoff: float = 1.0
    backoff_max: float = 30.0
    reset_after: float | None = 600.0
    never_on: tuple[int, ...] = ()


NO_RESTARTS = RestartSpec(max=0)
"""What a spec without the section `restart` means."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Bounds in seconds; None is off."""

    start: float | None = 300.0
    run: float | None = None
    grace: float = 10.0
    stall: float | None = None
    link: float | None = 60.0


@dataclass(frozen=True, kw_only=True)
class TensorBoardSpec:
    """TensorBoard beside the job. `port` 0 is chosen."""

    logdir: str
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A whole job, as meant. `roles` are in the order of :class:`~distrun.strategies.Role`."""

    name: str
    strategy: str
    roles: tuple[RoleSpec, ...]
    program: ProgramSpec
    hosts: tuple[HostSpec, ...] = (HostSpec(),)
    placement: Placement = Placement.SPREAD
    ssh: SshSpec = field(default_factory=SshSpec)
    success: Success
    restart: RestartSpec = NO_RESTARTS
    timeouts: Timeouts = field(default_factory=Timeouts)
    port_range: tuple[int, int] | None = None
    """First and last port to choose from, both included; None: any free one."""
    log_max_size: int | None = None
    tensorboard: TensorBoardSpec | None = None
    source: str = field(default="", compare=False)
    """The file as it was written, for the record; two ways to write it mean the same job."""

    @property
    def default_host(self) -> HostSpec:
        """The host of tasks whose address names no host: this machine, if it is one of them."""
        return next((host for host in self.hosts if host.is_local), self.hosts[0])

    @property
    def sends_files(self) -> bool:
        """Whether other hosts are sent any: there are some, and something to send."""
        return bool(self.program.sync_base) and not all(host.is_local for host in self.hosts)
