"""Builds the Spec from a document that fits the schema. Checks the rules that span several keys."""

from __future__ import annotations

import json
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
from distrun.spec.keys.document import LONGEST_NAME, job_name_problem
from distrun.spec.keys.hosts import CLUSTERS, KUBERNETES, SLURM
from distrun.spec.machine import is_this_machine
from distrun.spec.problems import Mark, Problems, printable, quoted
from distrun.spec.program import (
    build_programs,
    check_readable,
    quoted_path,
)
from distrun.spec.roles import (
    EMPTY,
    WrittenRole,
    check_addresses,
    check_order,
    check_roles,
    custom_roles,
    read_roles,
)
from distrun.spec.schema import Section, bad_character
from distrun.spec.variables import check_placeholders, check_variables, ports_in_texts
from distrun.strategies import STRATEGIES, Role, Strategy, Success, Workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distrun.spec.context import LoadContext

_LONGEST_WARNING = 18 * 3600.0
"""Slurm's option has 16 bits for the seconds."""
_SUCCESS = {"chief": Success.CHIEF, "worker0": Success.WORKER_0, "all": Success.ALL}


def build(document: Section, context: LoadContext, problems: Problems) -> model.Spec:
    """Build the spec. Raises SpecProblemsError with every problem, also earlier ones."""
    cluster = document.get("cluster", EMPTY)
    roles = read_roles(cluster)
    told = ports_in_texts(document, [one.spec for one in roles], context)
    roles = tuple(
        replace(one, spec=replace(one.spec, expects_free_port=True))
        if one.spec.role in told
        else one
        for one in roles
    )
    workers = _workers(document, roles, problems)
    strategy = STRATEGIES.get(document.get("strategy", ""))
    strategy = strategy and strategy.with_workers(workers)
    slurm = _slurm(document.get("slurm", EMPTY), problems)
    if context.is_submitted:
        hosts = _nodes(document, [one.spec for one in roles], slurm, problems)
    else:
        hosts = _hosts(document, [one.spec for one in roles], context, problems)
    name = _name(document, context, problems)
    _check_extra_args(context, problems)
    if strategy and not document.is_wrong("cluster"):
        check_roles(document, roles, strategy, problems)
        check_order(cluster, roles, strategy, problems)
    ssh = _ssh(document.get("ssh", EMPTY), context, problems)
    if hosts:
        dialled = (parse_address(at.value).host for one in roles for at in one.addresses)
        elsewhere = (machine for machine in dialled if not is_this_machine(machine))
        hosts = with_addresses_of_aliases(hosts, elsewhere, ssh)
    check_addresses(roles, hosts, problems)
    chosen_ports = _count_chosen_ports(roles, strategy) if strategy else 0
    if (
        chosen_ports > 1
        and not document.is_wrong("hosts")
        and document.get("hosts") not in CLUSTERS
    ):
        check_host_addresses(document.get("hosts", ()), problems)
    runs_here = any(host.is_local for host in hosts or (model.HostSpec(),))
    program, custom = build_programs(
        document.get("program", EMPTY),
        custom_roles(cluster),
        context,
        problems,
        runs_here=runs_here,
        runs_elsewhere=not all(host.is_local for host in hosts or ()),
    )
    check_variables(document, context, problems)
    restart = _restart(document, problems)
    _check_min_workers(document, roles, restart, problems)
    roles = tuple(_with_restart(one, cluster, document, restart, problems) for one in roles)
    specs = _role_specs(roles, custom, strategy) if strategy else ()
    if strategy and not document.is_wrong("cluster") and not context.is_draft:
        check_placeholders(document, specs, strategy, context, problems)
    ports = _port_range(document, chosen_ports, hosts, problems)
    success = _success(document, roles, strategy, problems)
    logs: Section = document.get("logs", EMPTY)
    problems.raise_if_any()
    assert strategy is not None  # noqa: S101 - otherwise there was a problem
    return model.Spec(
        name=name,
        strategy=strategy.name,
        roles=specs,
        program=program,
        hosts=hosts or (model.HostSpec(),),
        placement=model.Placement(document.get("placement", "spread")),
        ssh=ssh,
        workers=workers,
        success=success,
        strict=bool(_success_section(document).get("strict", False)),
        restart=restart,
        timeouts=model.Timeouts(**document.get("timeouts", EMPTY).values),
        port_range=ports,
        log_max_size=logs.get("max_size"),
        tensorboard=_tensorboard(document, program.workdir),
        slurm=slurm,
        kubernetes=_kubernetes(document),
    )


def _role_specs(
    roles: tuple[WrittenRole, ...],
    custom: dict[Role, model.ProgramSpec],
    strategy: Strategy,
) -> tuple[model.RoleSpec, ...]:
    """The roles with their programs. A strategy that runs in one process needs no cluster."""
    specs = [replace(one.spec, program=custom.get(one.spec.role)) for one in roles]
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
    document: Section, roles: list[model.RoleSpec], context: LoadContext, problems: Problems
) -> tuple[model.HostSpec, ...] | None:
    """The hosts; None if they could not be read."""
    if document.has("hosts") and document.has("hostfile"):
        problems.add(
            document.keys["hostfile"], "hosts and hostfile are both given", "keep one of them"
        )
    if document.has("hosts"):
        if document.is_wrong("hosts"):
            return None
        written, mark = document.get("hosts"), document.marks["hosts"]
        if written == SLURM:
            hosts = allocated_hosts(mark, context.environ, problems)
            return with_spares(hosts, document, problems) or None
        if written == KUBERNETES:
            return with_spares(_pods(document, roles, mark, problems), document, problems) or None
        return with_spares(listed_hosts(written, problems), document, problems)
    if not document.has("hostfile"):
        if document.get("spares"):
            message = "spares are among the hosts, and there are no hosts"
            problems.add(document.keys["spares"], message, "add hosts or hostfile")
        return (model.HostSpec(),)
    return with_spares(_hostfile(document, context, problems), document, problems) or None


def _pods(
    document: Section, roles: list[model.RoleSpec], mark: Mark, problems: Problems
) -> tuple[model.HostSpec, ...]:
    """The pods that a job creates in Kubernetes."""
    settings = document.get("kubernetes")
    if settings is None:
        if not document.has("kubernetes"):
            hint = "add 'kubernetes: {image: IMAGE}', or with `distrun run` --image IMAGE"
            problems.add(mark, "hosts is kubernetes, and no image is given", hint)
        return ()
    alone = sum(each.count for each in roles if each.role in (Role.CHIEF, Role.WORKER))
    count = settings.get("pods", max(1, alone) + document.get("spares", 0))
    gpus = () if settings.get("gpus") == 0 else None
    return tuple(
        model.HostSpec(name=f"pod{number}", pod=True, gpus=gpus) for number in range(1, count + 1)
    )


def _nodes(
    document: Section, roles: list[model.RoleSpec], slurm: model.SlurmSpec, problems: Problems
) -> tuple[model.HostSpec, ...] | None:
    """The nodes that a job asks Slurm for; None if something is wrong with its hosts."""
    from distrun.slurm import settings

    for key in ("hosts", "hostfile"):
        if document.has(key) and document.get(key) != SLURM:
            problems.add(
                document.keys[key],
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
    mark = document.marks["hostfile"]
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        # Reading a pipe could block forever.
        problems.add(mark, f"hostfile is no file: {quoted_path(path)}", "name a file")
        return ()
    try:
        content = read_file(path, shown, problems)
    except (FileNotFoundError, NotADirectoryError):
        check_readable(path, mark, "hostfile", problems)
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
    if text is None or not isinstance(ports, Section):
        return None
    first, last = (int(port) for port in text.split("-"))
    mark = ports.marks["range"]
    if not 1 <= first <= last <= LAST_PORT:
        problems.add(
            mark,
            f"ports.range is {text}; ports are 1 to {LAST_PORT}, the lower one first",
            "write for example 20000-21000",
        )
        return None
    if hosts is not None and needed > (last - first + 1) * len(hosts):
        problems.add(
            mark, f"ports.range has {last - first + 1} ports for {needed} tasks", "widen it"
        )
    return first, last


def _count_chosen_ports(roles: tuple[WrittenRole, ...], strategy: Strategy) -> int:
    """How many tasks get a port that distrun chooses."""
    return sum(
        one.spec.count for one in roles if not one.addresses and one.spec.has_ports(strategy)
    )


def _workers(
    document: Section, roles: tuple[WrittenRole, ...], problems: Problems
) -> Workers | None:
    """What the workers do; None if neither `workers` nor another key says it."""
    strategy = STRATEGIES.get(document.get("strategy", ""))
    written = document.get("workers")
    if strategy is None or strategy.independent is None:
        if strategy and written:
            others = [row.name for row in STRATEGIES.values() if row.independent is not None]
            problems.add(
                document.keys["workers"],
                f"{strategy.name} has no coordinated and no independent workers",
                f"remove it, or use the strategy {' or '.join(others)}",
            )
        return None
    if document.is_wrong("workers"):
        return Workers.INDEPENDENT  # no other problem follows from it
    if written:
        return Workers(written)
    cluster: Section = document.get("cluster", EMPTY)
    if roles and not cluster.unknown and not cluster.is_wrong("chief"):
        has_chief = any(one.spec.role is Role.CHIEF for one in roles)
        if not has_chief or _success_section(document).get("tasks") == "worker0":
            return Workers.INDEPENDENT  # nobody directs them, or worker 0 is no server
    return None


def _success_section(document: Section) -> Mapping[str, Any]:
    """Return `success` as a mapping, however it is written."""
    written = document.get("success", EMPTY)
    return written.values if isinstance(written, Section) else {"tasks": written}


def _success(
    document: Section, roles: tuple[WrittenRole, ...], strategy: Strategy | None, problems: Problems
) -> Success:
    written = _success_section(document).get("tasks", "strategy")
    if written == "chief" and not any(one.spec.role is Role.CHIEF for one in roles):
        problems.add(
            document.marks["success"],
            "success waits for a chief, and there is none",
            "add 'chief: 1' to cluster, or write worker0",
        )
    if written == "worker0" and strategy and strategy.roles[Role.WORKER].serves:
        problems.add(
            document.marks["success"],
            "success waits for worker 0, and coordinated workers are servers that never exit",
            "write chief, or 'workers: independent'",
        )
    if written in _SUCCESS or strategy is None:
        return _SUCCESS.get(written, Success.ALL)
    return strategy.success_of({one.spec.role for one in roles})


def _restart(document: Section, problems: Problems) -> model.RestartSpec:
    """Without the section, nothing is restarted: a faulty script should fail at once."""
    section = document.get("restart")
    if not isinstance(section, Section):
        return model.NO_RESTARTS
    return _read_restart(section, model.RestartSpec(), "restart", problems)


def _check_min_workers(
    document: Section,
    roles: tuple[WrittenRole, ...],
    restart: model.RestartSpec,
    problems: Problems,
) -> None:
    least = restart.min_workers
    if least is None or document.is_wrong("cluster"):
        return
    mark = document.get("restart").marks["min_workers"]
    workers = next((one for one in roles if one.spec.role is Role.WORKER), None)
    count = workers.spec.count if workers is not None else 0
    if workers is None or least > count:
        problems.add(
            mark,
            f"restart.min_workers is {least}, and cluster has "
            f"{f'{count} of the role worker' if count else 'no workers'}",
            f"write at most {count}" if count else "remove it",
        )
    elif workers.addresses:
        problems.add(
            mark,
            "restart.min_workers needs workers whose addresses distrun chooses",
            "write a count in cluster.worker instead of addresses, or remove it",
        )


def _with_restart(
    role: WrittenRole,
    cluster: Section,
    document: Section,
    restart: model.RestartSpec,
    problems: Problems,
) -> WrittenRole:
    """The role with its own policy. What that leaves out is as in the job's."""
    name = role.spec.role.value
    section = cluster.get(name)
    written = section.get("restart") if isinstance(section, Section) else None
    if written is None:
        return role
    policy = restart if document.has("restart") else model.RestartSpec()
    if written == "never":
        policy = replace(policy, max=0)
    elif isinstance(written, str):
        policy = replace(policy, on=(written,))
    else:
        policy = _read_restart(written, policy, f"cluster.{name}.restart", problems)
    return replace(role, spec=replace(role.spec, restart=policy))


def _read_restart(
    section: Section, common: model.RestartSpec, path: str, problems: Problems
) -> model.RestartSpec:
    values = dict(section.values)
    if "on" in values:
        written = values["on"]
        words = [written] if isinstance(written, str) else [at.value for at in written]
        values["on"] = tuple("failure" if each == "any failure" else each for each in words)
    if "never_on" in values:
        never = model.exit_codes(at.value for at in values["never_on"])
        values["never_on"] = tuple(sorted(never))
    restart = replace(common, **values)
    where = next((key for key in ("backoff_max", "backoff") if section.has(key)), None)
    if where is not None and restart.backoff > restart.backoff_max:
        problems.add(
            section.marks[where],
            f"{path}.backoff is longer than {path}.backoff_max ({restart.backoff_max:g}s)",
            "raise backoff_max, or lower backoff",
        )
        return model.NO_RESTARTS
    return restart


def _ssh(section: Section, context: LoadContext, problems: Problems) -> model.SshSpec:
    values = dict(section.values)
    for key in ("identity_file", "config_file"):
        if key in values:
            values[key] = context.resolve(values[key])
            check_readable(values[key], section.marks[key], f"ssh.{key}", problems)
    if "options" in values:
        values["options"] = {name: at.value for name, at in values["options"].items()}
    return model.SshSpec(**values)


def _slurm(section: Section, problems: Problems) -> model.SlurmSpec:
    values = dict(section.values)
    if "options" in values:
        values["options"] = {name: at.value for name, at in values["options"].items()}
    if "setup" in values:
        values["setup"] = tuple(at.value for at in values["setup"])
    if "gpus_per_node" in values:
        values["gpus_per_node"] = str(values["gpus_per_node"])
    slurm = model.SlurmSpec(**values)
    where = next((key for key in ("signal_before_end", "time") if section.has(key)), None)
    before, time = slurm.signal_before_end, slurm.time
    if where is not None and before > _LONGEST_WARNING:
        problems.add(section.marks[where], "slurm.signal_before_end is longer than 18h", "lower it")
    elif where is not None and time is not None and before >= time:
        problems.add(
            section.marks[where],
            f"slurm.signal_before_end ({before:g}s) leaves nothing of slurm.time ({time:g}s)",
            "raise time, or lower signal_before_end",
        )
    return slurm


def _kubernetes(document: Section) -> model.KubernetesSpec | None:
    section = document.get("kubernetes")
    if section is None:
        return None
    overlay = json.dumps(section.get("pod", {}))
    return model.KubernetesSpec(**{**section.values, "pod": overlay})


def _tensorboard(document: Section, workdir: str) -> model.TensorBoardSpec | None:
    section = document.get("tensorboard")
    if section is None:
        return None
    port = section.get("port", "auto")
    return model.TensorBoardSpec(
        logdir=os.path.normpath(os.path.join(workdir, section.get("logdir"))),
        port=port if isinstance(port, int) else 0,
    )
