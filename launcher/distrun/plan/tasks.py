"""Plans each task: its address, command and variables."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from distrun.agent.protocol import Cause, Code
from distrun.codec import to_json
from distrun.errors import InvalidSpecError
from distrun.frozen import Frozen, replace
from distrun.job.events import TaskRecord
from distrun.plan import freed_memory
from distrun.plan.facts import HostFacts
from distrun.plan.placement import Placed, split_address
from distrun.plan.ranks import Rank, rank_variables, ranks, torchrun_variables
from distrun.plan.shares import divide_cores, divide_gpus, sharers
from distrun.spec import packages, placeholders
from distrun.spec.addresses import is_loopback
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import EnvStyle, Memory, ProgramKind, ProgramSpec, Ready, Spec, Sync
from distrun.strategies import STRATEGIES, Role, Strategy

LARGEST_VARIABLE = 128 * 1024
"""The most bytes of one environment string in Linux (MAX_ARG_STRLEN), its name included."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
ADDRESSES, GPUS = "DISTRUN_ADDRESSES", "CUDA_VISIBLE_DEVICES"
_ALLOW_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"


class Cluster(Frozen):
    """Addresses of each role, which all tasks of a job share, as in TF_CONFIG's `cluster`."""

    addresses: dict[str, list[str]]

    @functools.cached_property
    def text(self) -> str:
        """The addresses as JSON: encoded once, because every task gets the whole cluster."""
        return json.dumps(self.addresses)


class TaskPlan(TaskRecord, kw_only=True):
    """One task, ready to run. `env` is set in addition to the host's environment.

    In a job of n tasks, TF_CONFIG and DISTRUN_ADDRESSES are as long as n addresses. So they are in
    no field: :attr:`tf_config` and :attr:`environment` make them, and DISTRUN_ADDRESS.
    """

    port_is_provisional: bool
    argv: tuple[str, ...]
    workdir: str
    or_home: bool = False
    env: dict[str, str]
    """The variables, without a TF_CONFIG made from `cluster`."""
    cluster: Cluster | None = None
    """The cluster for its TF_CONFIG; None: it has no cluster, or distrun does not set TF_CONFIG."""
    all_addresses: Cluster | None = None
    """Those of all tasks, also beside the cluster; None: the job has none."""
    is_awaited: bool = False
    binds_port: bool = False
    """Whether the program expects to find its port free, as one that is not TensorFlow's does."""
    unset: tuple[str, ...] = ()
    log: str

    @property
    def port(self) -> int:
        """The port of its address; 0 if it has none."""
        return 0 if self.address is None else split_address(self.address)[1]

    @property
    def tf_config(self) -> str | None:
        """TF_CONFIG, as tf.distribute.cluster_resolver.TFConfigClusterResolver reads it."""
        return "".join(self.tf_config_parts) or self.env.get("TF_CONFIG")

    @property
    def tf_config_parts(self) -> tuple[str, ...]:
        """The TF_CONFIG that is made from `cluster`, whose text all tasks share; empty: none is."""
        if self.cluster is None:
            return ()
        own = json.dumps({"type": self.role.value, "index": self.index})
        return '{"cluster": ', self.cluster.text, f', "task": {own}}}'

    def fields(self) -> dict[str, Any]:
        """Return the task as JSON, without the addresses of others."""
        fields: dict[str, Any] = to_json(replace(self, cluster=None, all_addresses=None))
        del fields["cluster"], fields["all_addresses"], fields["log_start"]
        return fields

    @property
    def environment(self) -> dict[str, str]:
        """The variables with TF_CONFIG and those of addresses."""
        parts = self.tf_config_parts
        return {**self.own_environment, **({"TF_CONFIG": "".join(parts)} if parts else {})}

    @property
    def own_environment(self) -> dict[str, str]:
        """The variables without a TF_CONFIG that is made from `cluster`."""
        env = dict(self.env)
        if self.address is not None:
            env["DISTRUN_ADDRESS"] = self.address
        if self.all_addresses is not None:
            env[ADDRESSES] = self.all_addresses.text
        return env


class Plan(Frozen, kw_only=True):
    """A job, ready to run."""

    name: str
    strategy: str
    tasks: tuple[TaskPlan, ...]
    pass_env: tuple[str, ...] = ()
    hosts: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return the plan as `plan.json` has it: addresses and what all tasks share once.

        A task has the shared variables, its own, and, unless these contain it, a TF_CONFIG of the
        cluster and its own role and index. DISTRUN_ADDRESSES is the cluster if there are no other
        `addresses`.
        """
        common = common_env(self.tasks)
        cluster = next((task.cluster for task in self.tasks if task.cluster is not None), None)
        addresses = self.tasks[0].all_addresses
        tasks = [
            {**task.fields(), "env": {n: v for n, v in task.env.items() if n not in common}}
            for task in self.tasks
        ]
        return {
            **to_json(replace(self, tasks=())),
            "cluster": None if cluster is None else cluster.addresses,
            "addresses": None if addresses in (None, cluster) else addresses.addresses,
            "env": common,
            "tasks": tasks,
        }


def common_env(tasks: Sequence[TaskPlan]) -> dict[str, str]:
    """Return the variables that have the same value in all tasks, without TF_CONFIG."""
    first, *others = (task.env for task in tasks)
    return {n: v for n, v in first.items() if all(env.get(n) == v for env in others)}


def make(
    spec: Spec,
    placement: Sequence[Placed],
    facts: Mapping[str, HostFacts],
    free_ports: Mapping[str, Sequence[int]],
    running: Mapping[str, str] | None = None,
) -> Plan:
    """Make the plan. `free_ports` are those held on each host. Raises InvalidSpecError.

    `running`: the GPUs of tasks that go on.
    """
    strategy = STRATEGIES[spec.strategy]
    addresses = _addresses(placement, strategy, facts, free_ports)
    _check_addresses(placement, addresses)
    members = [placed for placed in placement if placed.role.is_in_cluster(strategy)]
    job = _Job(
        spec=spec,
        addresses=addresses,
        cluster=_cluster(members, addresses) if members else None,
        all_addresses=_cluster(placement, addresses) if addresses else None,
        machines=_machines(addresses.values(), placement) if addresses else (),
        ranks=ranks(placement),
        awaited=frozenset(role for placed in placement for role in placed.role.after),
    )
    if job.all_addresses is not None:
        _check_length(ADDRESSES, len(job.all_addresses.text))
    hosts: dict[str, list[Placed]] = {}
    for placed in placement:
        hosts.setdefault(placed.host.name, []).append(placed)
    shares: dict[str, dict[str, str]] = {}
    for name, here in hosts.items():
        shares.update(_shares(here, here[0].host, facts[name], strategy, running or {}))
    tasks = tuple(
        _plan_task(job, placed, facts[placed.host.name], shares[placed.name])
        for placed in placement
    )
    return Plan(
        name=spec.name,
        strategy=spec.strategy,
        tasks=tasks,
        pass_env=spec.program.pass_env,
        hosts=tuple(hosts),
    )


def _addresses(
    placement: Sequence[Placed],
    strategy: Strategy,
    facts: Mapping[str, HostFacts],
    free_ports: Mapping[str, Sequence[int]],
) -> dict[str, str]:
    free = {host: iter(ports) for host, ports in free_ports.items()}
    addresses = {}
    for placed in placement:
        if not placed.role.has_ports(strategy):
            continue
        if placed.address is not None:
            addresses[placed.name] = placed.address
        else:
            machine = _machine(placed.host, facts[placed.host.name])
            machine = f"[{machine}]" if ":" in machine else machine
            addresses[placed.name] = f"{machine}:{next(free[placed.host.name])}"
    return addresses


def _machine(host: HostSpec, facts: HostFacts) -> str:
    """The name or address by which other hosts reach a host."""
    return host.address or facts.address or host.machine


def _check_addresses(placement: Sequence[Placed], addresses: Mapping[str, str]) -> None:
    """Reject a cluster in which a call to one task would reach another task, or none."""
    members = [placed for placed in placement if placed.name in addresses]
    spans_hosts = len({placed.host.name for placed in members}) > 1
    owners: dict[tuple[str, int], Placed] = {}
    for placed in members:
        address = addresses[placed.name]
        machine, port = split_address(address)
        owner = owners.setdefault((machine.lower(), port), placed)
        if owner is not placed:
            raise _address_error(Code.ADDRESS_SHARED, address, owner, placed)
        if spans_hosts and is_loopback(machine):
            is_chosen = placed.address is None
            code = Code.LOOPBACK_OF_HOST if is_chosen else Code.LOOPBACK_IN_CLUSTER
            raise _address_error(code, address, placed)


def _address_error(code: Code, address: str, *members: Placed) -> InvalidSpecError:
    tasks, hosts = zip(*((each.name, each.host.name) for each in members), strict=True)
    return InvalidSpecError(cause=Cause(code, tasks=tasks, hosts=hosts, addresses=(address,)))


def _cluster(placement: Sequence[Placed], addresses: Mapping[str, str]) -> Cluster:
    cluster: dict[str, list[str]] = {}
    for placed in placement:
        if placed.name in addresses:
            cluster.setdefault(placed.role.role.value, []).append(addresses[placed.name])
    return Cluster(cluster)


def _shares(
    here: Sequence[Placed],
    host: HostSpec,
    facts: HostFacts,
    strategy: Strategy,
    running: Mapping[str, str],
) -> dict[str, dict[str, str]]:
    gpus = divide_gpus(here, host, facts, strategy, running)
    sharing = sharers(gpus)
    shares = {}
    for name, threads in divide_cores(here, facts.cores).items():
        env = {}
        if name in gpus:
            env[GPUS] = gpus[name]
        # By default TensorFlow takes the whole memory of a GPU and leaves none for other tasks.
        if name in sharing and _ALLOW_GROWTH not in facts.environ:
            env[_ALLOW_GROWTH] = "true"
        env.update((each, str(threads)) for each in _THREAD_VARIABLES if each not in facts.environ)
        shares[name] = env
    return shares


class _Job(Frozen, kw_only=True):
    """What the plans of all tasks have in common. `addresses` and `ranks` are by task."""

    spec: Spec
    addresses: Mapping[str, str]
    cluster: Cluster | None
    all_addresses: Cluster | None
    machines: tuple[str, ...]
    ranks: Mapping[str, Rank]
    awaited: frozenset[Role]


def _plan_task(job: _Job, placed: Placed, facts: HostFacts, share: Mapping[str, str]) -> TaskPlan:
    spec, machines, rank = job.spec, job.machines, job.ranks[placed.name]
    strategy = STRATEGIES[spec.strategy]
    address = job.addresses.get(placed.name)
    owns_tf_config = spec.program.owns_tf_config
    cluster = job.cluster if placed.role.in_tf_config else None
    env = {
        "DISTRUN_TASK": placed.name,
        "DISTRUN_STRATEGY": spec.strategy,
        **rank_variables(rank),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "TF_GRPC_REUSE_PORT": "true",
        **dict(strategy.env),
        **packages.VARIABLES[spec.program.keras],
    }
    names = {*facts.environ, *spec.program.pass_env}
    if _is_in_group(job, placed) and "PYTHONHASHSEED" not in names:
        # Else sets have another order in each worker, and so have collectives in a loop over one.
        env["PYTHONHASHSEED"] = "0"
    if machines:
        old = facts.environ.get("no_proxy") or facts.environ.get("NO_PROXY") or ""
        env["no_proxy"] = _no_proxy(old, machines)
    env.update(share)
    if spec.program.env_style is EnvStyle.TORCHRUN:
        env.update(torchrun_variables(rank, job.addresses))

    def value_of(placeholder: str) -> str:
        task = placeholders.split_task(placeholder)
        if task is not None:
            return job.addresses[f"{task[0]}:{task[1]}"]
        return {
            "rank": str(rank.rank),
            "index": str(placed.index),
            "role": placed.role.role.value,
            "host": split_address(address)[0] if address else _machine(placed.host, facts),
            "port": str(split_address(address)[1]) if address else "",
        }[placeholder]

    program = spec.program_of(placed.role)
    words = (*program.argv[1:], *program.args, *placed.role.args)
    written = {**placed.host.env, **spec.program.env, **placed.role.env}
    env.update((name, placeholders.fill(value, value_of)) for name, value in written.items())
    if machines and "no_grpc_proxy" not in written:
        # gRPC reads it before no_proxy: whatever that is, no proxy comes between the tasks.
        old = facts.environ.get("no_grpc_proxy") or env["no_proxy"]
        env["no_grpc_proxy"] = _no_proxy(old, machines)
    if _keeps_memory(job, placed):
        env.update(freed_memory.variables(facts.libc, facts.cores, (*names, *env)))
    task = TaskPlan(
        name=placed.name,
        role=placed.role.role,
        index=placed.index,
        host=placed.host.name,
        address=address,
        port_is_provisional=placed.address is None and address is not None,
        argv=_program_words(spec, placed, facts)
        + tuple(placeholders.fill(word, value_of) for word in words),
        workdir=_workdir(spec.program, placed, facts),
        or_home=_may_be_home(spec.program, placed, facts),
        env=env,
        cluster=None if owns_tf_config or "TF_CONFIG" in env else cluster,
        all_addresses=job.all_addresses,
        after=placed.role.after,
        ready=placed.role.ready or (Ready.OFF if address is None else Ready.PORT),
        ready_line=placed.role.ready_line,
        is_awaited=placed.role.role in job.awaited,
        joins_cluster=placed.role.role.is_custom and placed.role.in_tf_config,
        binds_port=address is not None and placed.role.expects_free_port,
        # Another framework may never listen at the task's port.
        owns_tf_config=owns_tf_config
        or (cluster is not None and spec.program.env_style is EnvStyle.TORCHRUN),
        # A task without a cluster must not join that of the launching shell.
        unset=() if cluster is not None or owns_tf_config else ("TF_CONFIG",),
        log=f"{placed.role.role.value}-{placed.index}.log",
    )
    _check_length("TF_CONFIG", sum(map(len, task.tf_config_parts)))
    return task


def _keeps_memory(job: _Job, placed: Placed) -> bool:
    """Whether a task keeps the memory that it frees.

    Unless the spec says so, only those that exchange gradients or weights: a process by itself,
    such as an evaluator, gains nothing by it.
    """
    if job.spec.program.memory is not None:
        return job.spec.program.memory is Memory.KEEP
    return _is_in_group(job, placed)


def _is_in_group(job: _Job, placed: Placed) -> bool:
    """Whether a task is one of several that exchange gradients or weights."""
    cluster = {} if job.cluster is None else job.cluster.addresses
    is_member = placed.role.is_in_cluster(STRATEGIES[job.spec.strategy])
    return is_member and sum(map(len, cluster.values())) > 1


def _check_length(name: str, length: int) -> None:
    """Reject a variable that Linux cannot pass to a task."""
    if len(name) + 1 + length >= LARGEST_VARIABLE:
        raise InvalidSpecError(cause=Cause(Code.TF_CONFIG_TOO_LONG, name=name, count=length))


def _program_words(spec: Spec, placed: Placed, facts: HostFacts) -> tuple[str, ...]:
    """Return what is executed: paths, in which braces are only braces."""
    program = spec.program_of(placed.role)
    target = program.target
    if program.kind is ProgramKind.COMMAND:
        return (_relocated(program.argv[0], program, facts) or program.argv[0],)
    here = program.interpreter_on(placed.host)
    python = here.path if here else placed.host.python or program.python or facts.python
    python = _on_host(python, facts)
    if program.kind is ProgramKind.MODULE:
        return (python, "-m", target)
    return (python, _relocated(target, program, facts) or target)


def _relocated(path: str, program: ProgramSpec, facts: HostFacts) -> str | None:
    """The path in the host's copy for a path of the launching machine; None if it is not sent."""
    if facts.files is None:
        return None
    base = program.sync_base.rstrip("/")
    if path.rstrip("/") == base:
        return facts.files
    return facts.files + path[len(base) :] if path.startswith(base + "/") else None


def _on_host(path: str, facts: HostFacts) -> str:
    """A path that the spec has for a host, with the home folder of the login there for `~`."""
    home = facts.environ.get("HOME", "")
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path


def _workdir(program: ProgramSpec, placed: Placed, facts: HostFacts) -> str:
    """The folder in which a task runs.

    If the spec names one for the host, it is that. Otherwise it is the same folder as on this
    machine, or its copy if it was sent. If the spec names no folder, the host need not have that of
    this machine, so the top of the copy is used instead.
    """
    if placed.host.workdir is not None:
        return _on_host(placed.host.workdir, facts)
    inside = _relocated(program.workdir, program, facts)
    if inside is not None:
        return inside
    if facts.files is None or program.is_workdir_chosen:
        return program.workdir
    return facts.files


def _may_be_home(program: ProgramSpec, placed: Placed, facts: HostFacts) -> bool:
    """Whether a task may run in its host's home folder if `workdir` does not exist there.

    This holds for a command that names no file: its folder is only where launch was called.
    """
    is_chosen = program.is_workdir_chosen or placed.host.workdir is not None
    needs_nothing = program.sync is Sync.SCRIPT and not program.sync_base
    return needs_nothing and not is_chosen and not facts.has_launch_folders


def _machines(addresses: Iterable[str], placement: Sequence[Placed]) -> tuple[str, ...]:
    """The hosts' names and addresses, from their tasks' addresses and from the spec."""
    names = [split_address(each)[0] for each in addresses]
    machines = (placed.host.machine for placed in placement)
    names += [machine for machine in machines if not is_loopback(machine)]
    return tuple(dict.fromkeys(names))


@functools.cache  # nearly all tasks of a job have the same, so it is in memory once
def _no_proxy(old: str, machines: tuple[str, ...]) -> str:
    """no_proxy with the hosts that gRPC must reach directly appended."""
    names = [name.strip() for name in old.split(",") if name.strip()]
    return ",".join(dict.fromkeys([*names, *machines]))
