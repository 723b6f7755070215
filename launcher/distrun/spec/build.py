"""Builds the Spec from a document that fits the schema. Checks the rules that span several keys."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from distrun.frozen import replace
from distrun.spec import model, yamlnodes
from distrun.spec.addresses import LAST_PORT, parse_address
from distrun.spec.hosts import (
    allocated_hosts,
    check_host_addresses,
    hostfile_hosts,
    listed_hosts,
    with_addresses_of_aliases,
    with_spares,
)
from distrun.spec.input_files import STDIN_NAME, decode, read_file
from distrun.spec.machine import is_this_machine
from distrun.spec.model import CLUSTERS, KUBERNETES, LONGEST_NAME, SLURM, job_name_problem
from distrun.spec.problems import Mark, Problems, printable, quoted
from distrun.spec.program import build_programs, check_readable, quoted_path
from distrun.spec.roles import (
    check_addresses,
    check_order,
    check_roles,
    checked_restart,
    custom_roles,
    read_roles,
)
from distrun.spec.schedulers import KubernetesSpec, SlurmSpec
from distrun.spec.schema import Section, bad_character
from distrun.spec.variables import check_placeholders, check_variables
from distrun.strategies import STRATEGIES, Role, Strategy, Success, Workers

if TYPE_CHECKING:
    from distrun.spec.context import LoadContext

_LONGEST_WARNING = 18 * 3600.0
"""Slurm's option has 16 bits for the seconds."""
_SUCCESS = {"chief": Success.CHIEF, "worker0": Success.WORKER_0, "all": Success.ALL}
_AS_WRITTEN = ("placement", "timeouts", "kubernetes")
_NO_PROGRAM = Section("program")


def build(document: Section, context: LoadContext, problems: Problems) -> model.Spec:
    """Build the spec. Raises SpecProblemsError with every problem, also earlier ones."""
    cluster: Section = document.get("cluster", Section("cluster"))
    restart = document.get("restart")
    # Without the section, nothing is restarted: a faulty script should fail at once.
    policy = checked_restart(restart or model.NO_RESTARTS, "restart", problems)
    of_roles = policy if document.has("restart") else model.RestartSpec()
    roles = read_roles(document, of_roles, context, problems)
    _check_min_workers(document, roles, policy, problems)
    workers = _workers(document, roles, problems)
    strategy = STRATEGIES.get(document.get("strategy", ""))
    strategy = strategy and strategy.with_workers(workers)
    slurm = _slurm(document, problems)
    if context.is_submitted and document.get("hosts") != KUBERNETES:
        hosts = _nodes(document, roles, slurm, problems)
    else:
        hosts = _hosts(document, roles, context, problems)
    name = _name(document, context, problems)
    _check_extra_args(context, problems)
    if strategy and not document.is_wrong("cluster"):
        check_roles(document, roles, strategy, problems)
        check_order(cluster, roles, strategy, problems)
    ssh = _ssh(document, context, problems)
    if hosts:
        dialled = (parse_address(each).host for role in roles for each in role.addresses)
        elsewhere = (machine for machine in dialled if not is_this_machine(machine))
        hosts = with_addresses_of_aliases(hosts, elsewhere, ssh)
    check_addresses(roles, hosts, problems)
    with_ports = [one for one in roles if strategy and one.has_ports(strategy)]
    chosen_ports = sum(one.count for one in with_ports if not one.addresses)
    if chosen_ports > 1 and document.get("hosts") not in CLUSTERS:
        check_host_addresses(document.get("hosts", ()), problems)
    program, custom = build_programs(
        document.get("program", _NO_PROGRAM),
        custom_roles(cluster),
        context,
        problems,
        runs_here=any(host.is_local for host in hosts or (model.HostSpec(),)),
        runs_elsewhere=not all(host.is_local for host in hosts or ()),
    )
    check_variables(document, context, problems)
    specs = _with_programs(roles, custom, strategy) if strategy else ()
    if strategy and not document.is_wrong("cluster") and not context.is_draft:
        check_placeholders(document, specs, strategy, context, problems)
    ports = _port_range(document, chosen_ports, hosts, problems)
    success = _success(document, roles, strategy, problems)
    problems.raise_if_any()
    assert strategy is not None  # noqa: S101 - otherwise there was a problem
    tensorboard: model.TensorBoardSpec | None = document.get("tensorboard")
    if tensorboard is not None:
        logdir = os.path.normpath(os.path.join(program.workdir, tensorboard.logdir))
        tensorboard = replace(tensorboard, logdir=logdir)
    return model.Spec(
        name=name,
        strategy=strategy.name,
        roles=specs,
        program=program,
        hosts=hosts or (model.HostSpec(),),
        ssh=ssh,
        workers=workers,
        success=success,
        strict=document.get("success", {}).get("strict", False),
        restart=policy,
        port_range=ports,
        log_max_size=document.get("logs", {}).get("max_size"),
        tensorboard=tensorboard,
        slurm=slurm,
        **{key: document[key] for key in _AS_WRITTEN if key in document},
    )


def _with_programs(
    roles: tuple[model.RoleSpec, ...],
    custom: dict[Role, model.ProgramSpec],
    strategy: Strategy,
) -> tuple[model.RoleSpec, ...]:
    """The roles with their programs. A strategy that runs in one process needs no cluster."""
    specs = [replace(one, program=custom.get(one.role)) for one in roles]
    if not strategy.tf_config and all(spec.role.is_custom for spec in specs):
        specs.insert(0, model.RoleSpec(role=Role.WORKER, count=1))
    return tuple(specs)


def _name(document: Section, context: LoadContext, problems: Problems) -> str:
    if context.name is not None:
        length = len(context.name)
        if not 1 <= length <= LONGEST_NAME or job_name_problem(context.name):
            problems.add(
                Mark("--name"),
                f"{quoted(context.name)} is no name for a job",
                f"use 1 to {LONGEST_NAME} characters, without line breaks and control characters",
            )
        return context.name
    default = (
        "job" if context.file in (STDIN_NAME, yamlnodes.OF_PROGRAM) else default_name(context.file)
    )
    name: str = document.get("name", default)
    return name


def default_name(file: str) -> str:
    """The name of a job that is named after a file."""
    stem = os.path.splitext(os.path.basename(file))[0]
    # A file's name may be bytes that are not UTF-8.
    return printable(os.fsencode(stem).decode("utf-8", "replace"))[:LONGEST_NAME]


def _check_extra_args(context: LoadContext, problems: Problems) -> None:
    for arg in context.extra_args:
        bad = bad_character(arg)
        if bad:
            problems.add(Mark("after --"), f"the argument {quoted(arg)} holds {bad}", "remove it")


def _hosts(
    document: Section, roles: tuple[model.RoleSpec, ...], context: LoadContext, problems: Problems
) -> tuple[model.HostSpec, ...] | None:
    """The hosts; None if they could not be read."""
    if document.has("hosts") and document.has("hostfile"):
        problems.add(
            problems.keys["hostfile"], "hosts and hostfile are both given", "keep one of them"
        )
    if document.has("hosts"):
        if document.is_wrong("hosts"):
            return None
        written = document["hosts"]
        if written == SLURM:
            hosts = allocated_hosts(context.environ, problems)
            return with_spares(hosts, document, problems) or None
        if written == KUBERNETES:
            return with_spares(_pods(document, roles, problems), document, problems) or None
        return with_spares(listed_hosts(written, problems), document, problems)
    if not document.has("hostfile"):
        if document.get("spares"):
            message = "spares are among the hosts, and there are no hosts"
            problems.add(problems.keys["spares"], message, "add hosts or hostfile")
        return (model.HostSpec(),)
    return with_spares(_hostfile(document, context, problems), document, problems) or None


def _pods(
    document: Section, roles: tuple[model.RoleSpec, ...], problems: Problems
) -> tuple[model.HostSpec, ...]:
    """The pods that a job creates in Kubernetes."""
    settings: KubernetesSpec | None = document.get("kubernetes")
    if settings is None:
        if not document.has("kubernetes"):
            hint = "add 'kubernetes: {image: IMAGE}', or with `distrun run` --image IMAGE"
            problems.add("hosts", "hosts is kubernetes, and no image is given", hint)
        return ()
    own = [each.role.value for each in roles if each.pod for _ in range(each.count)]
    shared = [each for each in roles if not each.pod]
    alone = sum(each.count for each in shared if each.role in (Role.CHIEF, Role.WORKER))
    count = settings.pods or max(bool(shared), alone) + document.get("spares", 0)
    gpus = () if settings.gpus == 0 else None
    return tuple(
        model.HostSpec(name=f"pod{number}", pod=True, gpus=gpus, role=role)
        for number, role in enumerate([*own, *[""] * count], start=1)
    )


def _nodes(
    document: Section, roles: tuple[model.RoleSpec, ...], slurm: SlurmSpec, problems: Problems
) -> tuple[model.HostSpec, ...] | None:
    """The nodes that a job asks Slurm for; None if something is wrong with its hosts."""
    from distrun.slurm import settings

    for key in ("hosts", "hostfile"):
        if document.has(key) and document.get(key) != SLURM:
            problems.add(
                problems.keys[key],
                f"{key} names machines, and Slurm chooses those of a submitted job",
                "remove it, or write 'hosts: slurm'",
            )
            return None
    count = settings.nodes(roles, slurm, document.get("spares", 0))
    hosts = tuple(
        model.HostSpec(name=f"node{number}", slurm=model.SlurmNode(job="", cores=1))
        for number in range(1, count + 1)
    )
    return with_spares(hosts, document, problems) or None


def _hostfile(
    document: Section, context: LoadContext, problems: Problems
) -> tuple[model.HostSpec, ...]:
    written = document.get("hostfile")
    if written is None:
        return ()
    path = context.resolve(written)
    # Messages show it as the user would name it: relative to the spec, not as an absolute path.
    shown = os.path.join(os.path.dirname(context.file), written)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        # Reading a pipe could block forever.
        problems.add("hostfile", f"hostfile is no file: {quoted_path(path)}", "name a file")
        return ()
    try:
        content = read_file(path, shown, problems)
    except (FileNotFoundError, NotADirectoryError):
        check_readable(path, "hostfile", problems)
        return ()
    text = None if content is None else decode(content, shown, problems)
    return () if text is None else hostfile_hosts(text, shown, problems)


def _port_range(
    document: Section,
    needed: int,
    hosts: tuple[model.HostSpec, ...] | None,
    problems: Problems,
) -> tuple[int, int] | None:
    ports = document.get("ports")
    text = ports.get("range") if isinstance(ports, Section) else None
    if text is None:
        return None
    first, last = (int(port) for port in text.split("-"))
    if not 1 <= first <= last <= LAST_PORT:
        problems.add(
            "ports.range",
            f"ports.range is {text}; ports are 1 to {LAST_PORT}, the lower one first",
            "write for example 20000-21000",
        )
        return None
    if hosts is not None and needed > (last - first + 1) * len(hosts):
        message = f"ports.range has {last - first + 1} ports for {needed} tasks"
        problems.add("ports.range", message, "widen it")
    return first, last


def _workers(
    document: Section, roles: tuple[model.RoleSpec, ...], problems: Problems
) -> Workers | None:
    """What the workers do; None if neither `workers` nor another key says it."""
    strategy = STRATEGIES.get(document.get("strategy", ""))
    written: Workers | None = document.get("workers")
    if strategy is None or strategy.independent is None:
        if strategy and written:
            others = [row.name for row in STRATEGIES.values() if row.independent is not None]
            problems.add(
                problems.keys["workers"],
                f"{strategy.name} has no coordinated and no independent workers",
                f"remove it, or use the strategy {' or '.join(others)}",
            )
        return None
    if document.is_wrong("workers"):
        return Workers.INDEPENDENT  # no other problem follows from it
    if written or not roles or "cluster" in problems.with_unknown:
        return written
    has_chief = any(one.role is Role.CHIEF for one in roles)
    if not has_chief or document.get("success", {}).get("tasks") == "worker0":
        # Nobody directs them, or worker 0 is no server.
        return None if document["cluster"].is_wrong("chief") else Workers.INDEPENDENT
    return None


def _success(
    document: Section,
    roles: tuple[model.RoleSpec, ...],
    strategy: Strategy | None,
    problems: Problems,
) -> Success:
    written = document.get("success", {}).get("tasks", "strategy")
    if written == "chief" and not any(one.role is Role.CHIEF for one in roles):
        problems.add(
            "success",
            "success waits for a chief, and there is none",
            "add 'chief: 1' to cluster, or write worker0",
        )
    if written == "worker0" and strategy and strategy.roles[Role.WORKER].serves:
        problems.add(
            "success",
            "success waits for worker 0, and coordinated workers are servers that never exit",
            "write chief, or 'workers: independent'",
        )
    if written in _SUCCESS or strategy is None:
        return _SUCCESS.get(written, Success.ALL)
    return strategy.success_of({one.role for one in roles})


def _check_min_workers(
    document: Section,
    roles: tuple[model.RoleSpec, ...],
    restart: model.RestartSpec,
    problems: Problems,
) -> None:
    least = restart.min_workers
    if least is None or document.is_wrong("cluster"):
        return
    workers = next((one for one in roles if one.role is Role.WORKER), None)
    count = workers.count if workers is not None else 0
    if workers is None or least > count:
        problems.add(
            "restart.min_workers",
            f"restart.min_workers is {least}, and cluster has "
            f"{f'{count} of the role worker' if count else 'no workers'}",
            f"write at most {count}" if count else "remove it",
        )
    elif workers.addresses:
        problems.add(
            "restart.min_workers",
            "restart.min_workers needs workers whose addresses distrun chooses",
            "write a count in cluster.worker instead of addresses, or remove it",
        )


def _ssh(document: Section, context: LoadContext, problems: Problems) -> model.SshSpec:
    ssh: model.SshSpec = document.get("ssh", model.SshSpec())
    files = {"identity_file": ssh.identity_file, "config_file": ssh.config_file}
    found: dict[str, Any] = {key: context.resolve(path) for key, path in files.items() if path}
    for key, path in found.items():
        check_readable(path, f"ssh.{key}", problems)
    return replace(ssh, **found)


def _slurm(document: Section, problems: Problems) -> SlurmSpec:
    slurm: SlurmSpec = document.get("slurm", SlurmSpec())
    written = ("slurm.signal_before_end", "slurm.time")
    where = next((each for each in written if each in problems.keys), None)
    before, time = slurm.signal_before_end, slurm.time
    if where is not None and before > _LONGEST_WARNING:
        problems.add(where, "slurm.signal_before_end is longer than 18h", "lower it")
    elif where is not None and time is not None and before >= time:
        problems.add(
            where,
            f"slurm.signal_before_end ({before:g}s) leaves nothing of slurm.time ({time:g}s)",
            "raise time, or lower signal_before_end",
        )
    return slurm
