"""Builds the Spec from a document that fits the schema. Checks the rules that span several keys."""

from __future__ import annotations

import os
from typing import Any

from distrun.frozen import replace
from distrun.spec import model, yamlnodes
from distrun.spec.addresses import LAST_PORT, parse_address
from distrun.spec.context import LoadContext
from distrun.spec.host_spec import CLUSTERS, KUBERNETES, SLURM, HostSpec, SlurmNode, SshSpec
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
from distrun.spec.model import LONGEST_NAME, job_name_problem
from distrun.spec.problems import Mark, Problems, printable, quoted
from distrun.spec.program import ProgramReader, check_readable, quoted_path
from distrun.spec.restart_spec import NO_RESTARTS, RestartSpec
from distrun.spec.roles import (
    ClusterChecker,
    check_addresses,
    check_roles_of_hosts,
    checked_restart,
    custom_roles,
    read_roles,
)
from distrun.spec.schedulers import KubernetesSpec, SlurmSpec
from distrun.spec.schema import Section, bad_character
from distrun.spec.variables import check_placeholders, check_variables
from distrun.strategies import STRATEGIES, Role, Success, Workers

_LONGEST_WARNING = 18 * 3600.0
"""Slurm's option has 16 bits for the seconds."""
_AS_WRITTEN = ("placement", "timeouts", "kubernetes")
_NO_PROGRAM = Section("program")


def build(document: Section, context: LoadContext, problems: Problems) -> model.Spec:
    """Build the spec. Raises SpecProblemsError with every problem, also earlier ones."""
    return _Builder(document, context, problems).spec()


def default_name(file: str) -> str:
    stem = os.path.splitext(os.path.basename(os.path.normpath(file)))[0]
    # A file's name may be bytes that are not UTF-8.
    return printable(os.fsencode(stem).decode("utf-8", "replace"))[:LONGEST_NAME]


class _Builder:
    def __init__(self, document: Section, context: LoadContext, problems: Problems) -> None:
        self._document, self._context, self._problems = document, context, problems
        self._cluster: Section = document.get("cluster", Section("cluster"))
        # Without the section, nothing is restarted: a faulty script should fail at once.
        restart = document.get("restart") or NO_RESTARTS
        self._restart = checked_restart(restart, "restart", problems)
        of_roles = self._restart if document.has("restart") else RestartSpec()
        self._roles = read_roles(document, of_roles, context, problems)
        self._has_chief = any(one.role is Role.CHIEF for one in self._roles)
        self._workers = self._what_workers_do()
        strategy = STRATEGIES.get(document.get("strategy", ""))
        self._strategy = strategy and strategy.with_workers(self._workers)
        self._slurm = self._slurm_settings()
        is_submitted = context.is_submitted and document.get("hosts") != KUBERNETES
        if context.is_submitted is None and document.get("hosts") == SLURM:
            is_submitted = "SLURM_JOB_ID" not in context.environ
        hosts = self._nodes() if is_submitted else self._read_hosts()
        self._ssh = self._ssh_settings()
        if hosts:
            dialled = (parse_address(each).host for role in self._roles for each in role.addresses)
            elsewhere = (machine for machine in dialled if not is_this_machine(machine))
            hosts = with_addresses_of_aliases(hosts, elsewhere, self._ssh)
        self._hosts = hosts

    def spec(self) -> model.Spec:
        document, context, problems = self._document, self._context, self._problems
        strategy, hosts = self._strategy, self._hosts
        name = self._name()
        for arg in context.extra_args:
            if bad := bad_character(arg):
                message = f"the argument {quoted(arg)} holds {bad}"
                problems.add(Mark("after --"), message, "remove it")
        self._check_min_workers()
        has_cluster = strategy is not None and not document.is_wrong("cluster")
        if strategy and has_cluster:
            checker = ClusterChecker(document, self._roles, strategy, problems)
            checker.check_roles()
            checker.check_order()
            check_roles_of_hosts(document, self._roles, hosts or (), problems)
        check_addresses(self._roles, hosts, problems)
        with_ports = [one for one in self._roles if strategy and one.has_ports(strategy)]
        chosen_ports = sum(one.count for one in with_ports if not one.addresses)
        if chosen_ports > 1 and document.get("hosts") not in CLUSTERS:
            check_host_addresses(document.get("hosts", ()), problems)
        where = hosts or (HostSpec(),)
        has_pods = bool(context.is_submitted) and any(one.pod for one in where)
        is_set_there = self._slurm.setup or "export" in self._slurm.options or has_pods
        has_environ = context.is_submitted is False or not is_set_there
        section = document.get("program", _NO_PROGRAM)
        reader = ProgramReader(section, where, context, problems, has_environ)
        program, custom = reader.programs(custom_roles(self._cluster))
        check_variables(document, context, problems)
        roles = [replace(one, program=custom.get(one.role)) for one in self._roles]
        if strategy and not strategy.tf_config and all(each.role.is_custom for each in roles):
            # A strategy that runs in one process needs no cluster.
            roles.insert(0, model.RoleSpec(role=Role.WORKER, count=1))
        if strategy and has_cluster and not context.is_draft:
            check_placeholders(document, roles, strategy, context, problems)
        ports = self._port_range(chosen_ports)
        success = self._success()
        problems.raise_if_any()
        assert strategy is not None  # noqa: S101 - otherwise there was a problem
        tensorboard: model.TensorBoardSpec | None = document.get("tensorboard")
        if tensorboard is not None:
            logdir = os.path.normpath(os.path.join(program.workdir, tensorboard.logdir))
            tensorboard = replace(tensorboard, logdir=logdir)
        return model.Spec(
            name=name,
            strategy=strategy.name,
            roles=tuple(roles),
            program=program,
            hosts=where,
            ssh=self._ssh,
            workers=self._workers,
            success=success,
            strict=document.get("success", {}).get("strict", False),
            restart=self._restart,
            port_range=ports,
            log_max_size=document.get("logs", {}).get("max_size"),
            tensorboard=tensorboard,
            slurm=self._slurm,
            **{key: document[key] for key in _AS_WRITTEN if key in document},
        )

    def _name(self) -> str:
        name, file = self._context.name, self._context.file
        if name is None:
            default = "job" if file in (STDIN_NAME, yamlnodes.OF_PROGRAM) else default_name(file)
            written: str = self._document.get("name", default)
            return written
        if not 1 <= len(name) <= LONGEST_NAME or job_name_problem(name):
            message = f"{quoted(name)} cannot be the name of a job"
            hint = f"use 1 to {LONGEST_NAME} characters, without line breaks and control characters"
            self._problems.add(Mark("--name"), message, hint)
        return name

    def _read_hosts(self) -> tuple[HostSpec, ...] | None:
        document, problems = self._document, self._problems
        if document.has("hosts") and document.has("hostfile"):
            where = problems.keys["hostfile"]
            problems.add(where, "hosts and hostfile are both given", "keep one of them")
        if document.is_wrong("hosts"):
            return None
        written = document.get("hosts")
        if written is None and not document.has("hostfile"):
            if document.get("spares"):
                message = "spares are among the hosts, and there are no hosts"
                problems.add(problems.keys["spares"], message, "add hosts or hostfile")
            return (HostSpec(),)
        if written is None:
            hosts = self._hosts_of_file()
        elif written == SLURM:
            hosts = allocated_hosts(self._context.environ, problems)
        elif written == KUBERNETES:
            hosts = self._pods()
        else:
            return with_spares(listed_hosts(written, problems), document, problems)
        return with_spares(hosts, document, problems) or None

    def _pods(self) -> tuple[HostSpec, ...]:
        settings: KubernetesSpec | None = self._document.get("kubernetes")
        if settings is None:
            if not self._document.has("kubernetes"):
                hint = "add 'kubernetes: {image: IMAGE}', or with `distrun run` --image IMAGE"
                self._problems.add("hosts", "hosts is kubernetes, and no image is given", hint)
            return ()
        own = [each.role.value for each in self._roles if each.pod for _ in range(each.count)]
        shared = [each for each in self._roles if not each.pod]
        alone = sum(each.count for each in shared if each.role in (Role.CHIEF, Role.WORKER))
        least = bool(shared) or not own  # also without a cluster, whose one task is added later
        count = settings.pods or max(least, alone) + self._document.get("spares", 0)
        gpus = () if settings.gpus == 0 else None
        return tuple(
            HostSpec(name=f"pod{number}", pod=True, gpus=gpus, role=role)
            for number, role in enumerate([*own, *[""] * count], start=1)
        )

    def _nodes(self) -> tuple[HostSpec, ...] | None:
        """The nodes that a job asks Slurm for; None if something is wrong with its hosts."""
        from distrun.slurm import batch_script

        for key in ("hosts", "hostfile"):
            if self._document.has(key) and self._document.get(key) != SLURM:
                message = f"{key} names machines, and Slurm chooses those of a submitted job"
                hint = "remove it, or write 'hosts: slurm'"
                self._problems.add(self._problems.keys[key], message, hint)
                return None
        count = batch_script.nodes(self._roles, self._slurm, self._document.get("spares", 0))
        hosts = tuple(
            HostSpec(name=f"node{number}", slurm=SlurmNode(job="", cores=1))
            for number in range(1, count + 1)
        )
        return with_spares(hosts, self._document, self._problems) or None

    def _hosts_of_file(self) -> tuple[HostSpec, ...]:
        written, problems = self._document.get("hostfile"), self._problems
        if written is None:
            return ()
        path = self._context.resolve(written)
        # Messages show it as the user would name it: relative to the spec, not an absolute path.
        shown = os.path.join(os.path.dirname(self._context.file), written)
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            # Reading a pipe could block forever.
            problems.add("hostfile", f"hostfile is not a file: {quoted_path(path)}", "name a file")
            return ()
        try:
            content = read_file(path, shown, problems)
        except (FileNotFoundError, NotADirectoryError):
            check_readable(path, "hostfile", problems)
            return ()
        text = None if content is None else decode(content, shown, problems)
        return () if text is None else hostfile_hosts(text, shown, problems)

    def _port_range(self, needed: int) -> tuple[int, int] | None:
        ports = self._document.get("ports")
        text = ports.get("range") if isinstance(ports, Section) else None
        if text is None:
            return None
        first, last = (int(port) for port in text.split("-"))
        if not 1 <= first <= last <= LAST_PORT:
            message = f"ports.range is {text}; ports are 1 to {LAST_PORT}, the lower one first"
            self._problems.add("ports.range", message, "write for example 20000-21000")
            return None
        if self._hosts is not None and needed > (last - first + 1) * len(self._hosts):
            message = f"ports.range has {last - first + 1} ports for {needed} tasks"
            self._problems.add("ports.range", message, "widen it")
        return first, last

    def _what_workers_do(self) -> Workers | None:
        """What the workers do; None if neither `workers` nor another key says it."""
        document, problems = self._document, self._problems
        strategy = STRATEGIES.get(document.get("strategy", ""))
        written: Workers | None = document.get("workers")
        if strategy is None or strategy.independent is None:
            if strategy and written:
                others = [row.name for row in STRATEGIES.values() if row.independent is not None]
                message = f"{strategy.name} has no coordinated and no independent workers"
                hint = f"remove it, or use the strategy {' or '.join(others)}"
                problems.add(problems.keys["workers"], message, hint)
            return None
        if document.is_wrong("workers"):
            return Workers.INDEPENDENT  # no other problem follows from it
        if written or not self._roles or "cluster" in problems.with_unknown:
            return written
        tasks = document.get("success", {}).get("tasks")
        if not self._has_chief or tasks == Success.WORKER_0.value:
            # Nobody directs them, or worker 0 is no server.
            return None if self._cluster.is_wrong("chief") else Workers.INDEPENDENT
        return None

    def _success(self) -> Success:
        written = self._document.get("success", {}).get("tasks", "strategy")
        strategy = self._strategy
        if written == Success.CHIEF.value and not self._has_chief:
            message = "success waits for a chief, and there is none"
            self._problems.add("success", message, "add 'chief: 1' to cluster, or write worker0")
        if written == Success.WORKER_0.value and strategy and strategy.roles[Role.WORKER].serves:
            self._problems.add(
                "success",
                "success waits for worker 0, and coordinated workers are servers that never exit",
                "write chief, or 'workers: independent'",
            )
        if written != "strategy":
            return Success(written)
        return strategy.success_of({one.role for one in self._roles}) if strategy else Success.ALL

    def _check_min_workers(self) -> None:
        where, least = "restart.min_workers", self._restart.min_workers
        if least is None or self._document.is_wrong("cluster"):
            return
        workers = next((one for one in self._roles if one.role is Role.WORKER), None)
        count = workers.count if workers is not None else 0
        if workers is None or least > count:
            there = f"{count} of the role worker" if count else "no workers"
            hint = f"write at most {count}" if count else "remove it"
            self._problems.add(where, f"{where} is {least}, and cluster has {there}", hint)
        elif workers.addresses:
            message = f"{where} needs workers whose addresses distrun chooses"
            hint = "write a count in cluster.worker instead of addresses, or remove it"
            self._problems.add(where, message, hint)

    def _ssh_settings(self) -> SshSpec:
        ssh: SshSpec = self._document.get("ssh", SshSpec())
        files = {"identity_file": ssh.identity_file, "config_file": ssh.config_file}
        found: dict[str, Any] = {
            k: self._context.resolve(path) for k, path in files.items() if path
        }
        for key, path in found.items():
            check_readable(path, f"ssh.{key}", self._problems)
        return replace(ssh, **found)

    def _slurm_settings(self) -> SlurmSpec:
        slurm: SlurmSpec = self._document.get("slurm", SlurmSpec())
        written = ("slurm.signal_before_end", "slurm.time")
        where = next((each for each in written if each in self._problems.keys), None)
        before, time = slurm.signal_before_end, slurm.time
        if where is not None and before > _LONGEST_WARNING:
            self._problems.add(where, f"{written[0]} is longer than 18h", "lower it")
        elif where is not None and time is not None and before >= time:
            message = f"{written[0]} ({before:g}s) leaves nothing of slurm.time ({time:g}s)"
            self._problems.add(where, message, "raise time, or lower signal_before_end")
        return slurm
