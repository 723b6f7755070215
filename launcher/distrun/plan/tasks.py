"""Plans each task: its address, command and variables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code  # at run time too: distrun.codec reads the hints
from distrun.errors import InvalidSpecError
from distrun.frozen import Frozen
from distrun.plan import paths
from distrun.plan.placement import Placed, needs_port, split_address
from distrun.plan.proxies import proxy_use
from distrun.plan.shares import divide_cores, divide_gpus, sharers
from distrun.spec.addresses import is_loopback
from distrun.spec.model import HostSpec, ProgramKind, Spec
from distrun.strategies import STRATEGIES, Role, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distrun.plan.facts import HostFacts

LARGEST_VARIABLE = 128 * 1024
"""The most bytes of one environment string in Linux (MAX_ARG_STRLEN), its name included."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
_ALLOW_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"


class TaskPlan(Frozen, kw_only=True):
    """One task, ready to run. `env` is set in addition to the host's environment."""

    name: str
    role: Role
    index: int
    host: str
    address: str | None
    port_is_provisional: bool
    argv: tuple[str, ...]
    workdir: str
    or_home: bool = False
    """Whether to use the host's home folder if `workdir` does not exist."""
    env: dict[str, str]
    unset: tuple[str, ...] = ()
    log: str
    proxied: Cause | None = None
    """Set if its environment sends gRPC to a proxy instead of its peers."""

    @property
    def tf_config(self) -> str | None:
        return self.env.get("TF_CONFIG")


class Plan(Frozen, kw_only=True):
    """A job, ready to run."""

    name: str
    strategy: str
    tasks: tuple[TaskPlan, ...]
    pass_env: tuple[str, ...] = ()
    hosts: tuple[str, ...]


def make(
    spec: Spec,
    placement: Sequence[Placed],
    facts: Mapping[str, HostFacts],
    free_ports: Mapping[str, Sequence[int]],
) -> Plan:
    """Make the plan. `free_ports` are the ports held on each host, as many as were needed.

    Raises:
        InvalidSpecError: GPUs or threads cannot be divided as asked, TF_CONFIG is too large, or
            a task's address is that of another task.
    """
    strategy = STRATEGIES[spec.strategy]
    addresses = _addresses(placement, strategy, facts, free_ports)
    _check_addresses(placement, addresses)
    cluster = _cluster(placement, addresses)
    # Encoded once: every task gets the whole cluster.
    cluster_text = json.dumps(cluster)
    machines = _machines(cluster, placement)
    hosts = {placed.host.name: placed.host for placed in placement}
    shares: dict[str, dict[str, str]] = {}
    for host in hosts.values():
        here = [placed for placed in placement if placed.host.name == host.name]
        shares.update(_shares(here, host, facts[host.name], strategy))
    tasks = tuple(
        _plan_task(spec, placed, facts[placed.host.name], addresses, cluster_text, machines,
                   shares[placed.name])
        for placed in placement
    )  # fmt: skip
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
    """The addresses by task, for tasks that have one."""
    free = {host: iter(ports) for host, ports in free_ports.items()}
    addresses = {}
    for placed in placement:
        if not needs_port(placed, strategy):
            continue
        if placed.address is not None:
            addresses[placed.name] = placed.address
        else:
            host = placed.host
            machine = host.address or facts[host.name].address or host.machine
            machine = f"[{machine}]" if ":" in machine else machine
            addresses[placed.name] = f"{machine}:{next(free[placed.host.name])}"
    return addresses


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


def _cluster(placement: Sequence[Placed], addresses: Mapping[str, str]) -> dict[str, list[str]]:
    cluster: dict[str, list[str]] = {}
    for placed in placement:
        if placed.name in addresses:
            cluster.setdefault(placed.role.role.value, []).append(addresses[placed.name])
    return cluster


def _shares(
    here: Sequence[Placed], host: HostSpec, facts: HostFacts, strategy: Strategy
) -> dict[str, dict[str, str]]:
    """The variables for the GPUs and threads of each task of a host."""
    gpus = divide_gpus(here, host, facts, strategy)
    sharing = sharers(gpus)
    shares = {}
    for name, threads in divide_cores(here, facts.cores).items():
        env = {}
        if name in gpus:
            env["CUDA_VISIBLE_DEVICES"] = gpus[name]
        # By default TensorFlow takes the whole memory of a GPU and leaves none for other tasks.
        if name in sharing and _ALLOW_GROWTH not in facts.environ:
            env[_ALLOW_GROWTH] = "true"
        env.update((each, str(threads)) for each in _THREAD_VARIABLES if each not in facts.environ)
        shares[name] = env
    return shares


def _plan_task(
    spec: Spec,
    placed: Placed,
    facts: HostFacts,
    addresses: Mapping[str, str],
    cluster_text: str,
    machines: Sequence[str],
    share: Mapping[str, str],
) -> TaskPlan:
    strategy = STRATEGIES[spec.strategy]
    env = {
        "DISTRUN_TASK": placed.name,
        "DISTRUN_STRATEGY": spec.strategy,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "TF_GRPC_REUSE_PORT": "true",
        **dict(strategy.env),
    }
    if strategy.tf_config:
        env["TF_CONFIG"] = _tf_config(cluster_text, placed)
        env["no_proxy"] = _no_proxy(facts.environ, machines)
    env.update(share)
    env.update({**placed.host.env, **spec.program.env, **placed.role.env})
    return TaskPlan(
        name=placed.name,
        role=placed.role.role,
        index=placed.index,
        host=placed.host.name,
        address=addresses.get(placed.name),
        port_is_provisional=placed.address is None and placed.name in addresses,
        argv=_argv(spec, placed, facts),
        workdir=paths.workdir(spec.program, placed, facts),
        or_home=paths.may_be_home(spec.program, placed, facts),
        env=env,
        # A job of one process must not join the cluster of the launching shell.
        unset=() if strategy.tf_config else ("TF_CONFIG",),
        log=f"{placed.role.role.value}-{placed.index}.log",
        proxied=_proxied({**facts.environ, **env}, machines) if strategy.tf_config else None,
    )


def _proxied(environ: Mapping[str, str], machines: Sequence[str]) -> Cause | None:
    use = proxy_use(environ, machines)
    if use is None or not use.machines:
        return None
    return Cause(Code.PEERS_BEHIND_PROXY, name=use.variable, host=use.machines[0])


def _argv(spec: Spec, placed: Placed, facts: HostFacts) -> tuple[str, ...]:
    program = spec.program
    args = (*program.args, *placed.role.args)
    if program.kind is ProgramKind.COMMAND:
        return (paths.relocated(program.argv[0], program, facts) or program.argv[0],
                *program.argv[1:], *args)  # fmt: skip
    python = placed.host.python or program.python or facts.python
    if program.kind is ProgramKind.MODULE:
        return (python, "-m", program.target, *args)
    script = paths.relocated(program.target, program, facts) or program.target
    return (python, script, *args)


def _tf_config(cluster_text: str, placed: Placed) -> str:
    """TF_CONFIG, as tf.distribute.cluster_resolver.TFConfigClusterResolver reads it."""
    task = json.dumps({"type": placed.role.role.value, "index": placed.index})
    text = f'{{"cluster": {cluster_text}, "task": {task}}}'
    if len(text) + len("TF_CONFIG=") >= LARGEST_VARIABLE:
        raise InvalidSpecError(cause=Cause(Code.TF_CONFIG_TOO_LONG, count=len(text)))
    return text


def _machines(cluster: Mapping[str, list[str]], placement: Sequence[Placed]) -> list[str]:
    """The hosts' names and addresses, from their tasks' addresses and from the spec."""
    names = [split_address(each)[0] for addresses in cluster.values() for each in addresses]
    machines = (placed.host.machine for placed in placement)
    names += [machine for machine in machines if not is_loopback(machine)]
    return list(dict.fromkeys(names))


def _no_proxy(environ: Mapping[str, str], machines: Sequence[str]) -> str:
    """no_proxy with the hosts that gRPC must reach directly appended."""
    old = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    names = [name.strip() for name in old.split(",") if name.strip()]
    return ",".join(dict.fromkeys([*names, *machines]))
