"""Prepares the hosts of a job: connected, facts gathered, ports held, files sent, preflight judged.

`launch` prepares inside the supervisor, `plan` and `doctor` inside the command's own process
(:mod:`distrun.supervisor.dry_run`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING

from distrun import plan
from distrun.agent import protocol
from distrun.agent.linux import holes, job_processes
from distrun.agent.protocol import Cause, Code
from distrun.errors import DistrunError, HostError, InvalidSpecError
from distrun.job import events
from distrun.job import folder as job_folder
from distrun.preflight import Grade
from distrun.spec.model import Ready
from distrun.supervisor import forked_process
from distrun.supervisor.hosts.reach import Logins, make_reach

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from distrun.agent.protocol import Order, Report
    from distrun.preflight import Check
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.file_delivery import FileDelivery
    from distrun.supervisor.hosts.reach import Reach
    from distrun.supervisor.probe import Probe
    from distrun.sync.manifest import Manifest

_UNASSIGNED = range(20000, 32768)
"""Ports that Linux assigns to no connection (net.ipv4.ip_local_port_range): nothing takes one of
them between the start of a program and its `bind`."""
_UNKNOWN_HOST = protocol.Hello(
    protocol.PROTOCOL, 0, "", "", cores=1.0, gpus=list(range(256)), at=0.0
)
"""Stands for a host that cannot be used, so that a plan for the others can be made and checked."""


class Preparation:
    """Collects what the hosts report until the job can start, or cannot.

    Args:
        order: sends a host an order.
        folder: where the job's record is, or would be.
        emit: called with the events for the record.
        has_preflight: whether hosts that need it are checked once there is a plan.
        checks_all: whether hosts are checked although others cannot be used, and although they
            were not sent the program's files. If not, the first failure ends the preparation.
    """

    def __init__(
        self,
        spec: Spec,
        order: Callable[[str, Order], None],
        folder: Path,
        *,
        emit: Callable[[events.Event], None] = lambda _: None,
        has_preflight: bool = False,
        checks_all: bool = False,
    ) -> None:
        job_folder.require_proc()
        if spec.log_max_size is not None:
            _require_holes(folder)
        self._spec = spec
        self._order = order
        self._folder = folder
        self._emit = emit
        self._has_preflight = has_preflight
        self._checks_all = checks_all
        self.placement = plan.place(spec)
        """Where the tasks are; a later plan may change it."""
        self._rooms = plan.room_of_hosts(spec)
        self.spares = () if checks_all else tuple(host.name for host in spec.spares)
        """The names of hosts without which the job can start."""
        hosts = {placed.host.name: placed.host for placed in self.placement}
        others = spec.hosts if checks_all else spec.spares
        hosts |= {host.name: host for host in others}
        self._specs = hosts
        self.hosts = tuple(hosts)
        """Their names, in the order of the spec, spares last."""
        self.reaches = {name: make_reach(host, spec) for name, host in hosts.items()}
        self.delivery: FileDelivery | None = None
        """Sends the program's files, if any are sent."""
        self._manifest: Manifest | None = None
        self.hellos: dict[str, protocol.Hello] = {}
        self.unreachable: dict[str, Cause] = {}
        self.failures: dict[str, Cause] = {}
        """Why hosts that were reached cannot be used."""
        self.left_out: dict[str, Cause] = {}
        """Why spares cannot be used."""
        self.plan: plan.Plan | None = None
        self.checks: tuple[Check, ...] | None = None
        """The result of the preflight; None: there was none."""
        self.error: DistrunError | None = None
        """Why the job cannot start."""
        self.is_finished = False
        needs = plan.ports_needed(spec, self.placement)
        self._needs = {host: needs.get(host, plan.PortNeed()) for host in hosts}
        self.held_ports: dict[str, list[int]] = {}
        """The ports that each host holds for tasks whose ports are chosen."""
        self._unprepared = set(self.hosts)
        """The hosts that have neither held their ports nor failed."""
        self._probe: Probe | None = None

    @property
    def hosts_without_files(self) -> list[str]:
        """The hosts that must be sent the program's files."""
        return [name for name, reach in self.reaches.items() if reach.lacks_files]

    @property
    def has_all_logs_here(self) -> bool:
        """Whether all tasks write their logs into the job's folder."""
        return not any(map(self.has_own_logs, self.reaches))

    def has_own_logs(self, host: str) -> bool:
        """Whether the tasks on a host write their logs there."""
        return self.reaches[host].has_own_logs

    @property
    def is_probing(self) -> bool:
        """Whether the hosts are ready and are being checked."""
        return self._probe is not None

    @property
    def waiting_for(self) -> list[str]:
        """The hosts that have not answered the last order yet."""
        if self._probe is not None:
            return self._probe.waiting_for
        waiting = self._unprepared or (() if self.delivery is None else self.delivery.waiting_for)
        return [host for host in self.hosts if host in waiting]

    @property
    def waits_for_spares(self) -> bool:
        """Whether the job could start but for spares that have not answered."""
        if self.is_finished or not self.spares:
            return False
        waiting = self.waiting_for
        return bool(waiting) and all(host in self.spares for host in waiting)

    def deliver(self, delivery: FileDelivery, manifest: Manifest) -> None:
        """Have the program's files sent to the hosts that lack them."""
        self.delivery, self._manifest = delivery, manifest
        for reach in self.reaches.values():
            reach.files = manifest

    def receive(self, host: str, report: Report) -> None:
        """Handle a report that belongs to the preparation; ignore any other."""
        if isinstance(report, protocol.Hello):
            self._on_hello(host, report)
        elif self.is_finished:
            return
        elif isinstance(report, (protocol.PortsHeld, protocol.PortsRefused)):
            self._unprepared.discard(host)
            if isinstance(report, protocol.PortsHeld):
                self.held_ports[host] = report.chosen
            else:
                self.failures[host] = self.ports_refused(host, report)
        elif self._probe is not None:
            self._probe.receive(host, report)
        self.advance()

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        """Continue without these hosts, or end."""
        causes = self.without_spares(causes)
        if not causes:
            return
        self.unreachable.update(causes)
        self._unprepared -= causes.keys()
        if not (self.is_finished or self._checks_all):
            self.error = unreachable_hosts(causes, len(self.hosts))
            self.is_finished = True
        self.advance()

    def without_spares(self, causes: Mapping[str, Cause]) -> dict[str, Cause]:
        """Continue without the spares among these hosts; return the others."""
        for host in [each for each in causes if each in self.spares]:
            self._leave_out(host, causes[host])
        self.advance()
        return {host: cause for host, cause in causes.items() if host not in self.spares}

    def _leave_out(self, host: str, cause: Cause) -> None:
        """Continue without a spare that cannot be used, at whatever stage."""
        if host in self.left_out:
            return
        self.left_out[host] = cause
        self._unprepared.discard(host)
        if self.delivery is not None:
            self.delivery.forget(host)
        if self._probe is not None:
            self._probe.forget(host)
        self._emit(events.HostLeftOut(at=time.time(), host=host, cause=cause))

    def fail(self, host: str, cause: Cause) -> None:
        """Continue without a host that was reached, or end."""
        if host in self.spares:
            self.without_spares({host: cause})
            return
        self.failures.setdefault(host, cause)
        self._unprepared.discard(host)
        if self._probe is not None:
            self.is_finished = True  # an incomplete preflight says nothing
        self.advance()

    def advance(self) -> None:
        """Take the next steps if the reports so far allow them."""
        if self.is_finished or self._unprepared:
            return
        try:
            self._advance()
        except DistrunError as error:
            self.error, self.is_finished = error, True

    def _advance(self) -> None:
        if self.failures and not self._checks_all:
            raise failed_hosts(self.failures, self.hosts)
        if self.plan is None:
            self.plan = self._make_plan()
        if self.plan is None or not self._has_files():
            return
        if self._probe is None:
            self._start_probe(self.plan)
        if self._probe is not None:
            self.checks = self._probe.checks()
            if self.checks is None:
                return
            self._judge(self.checks)
        self.is_finished = True

    # Hosts ---------------------------------------------------------------------------------

    def _on_hello(self, host: str, hello: protocol.Hello) -> None:
        reach, is_only = self.reaches[host], len(self.hosts) == 1
        self.hellos[host] = hello = reach.usable(hello)
        was_left_out = self.left_out.pop(host, None) is not None
        self.held_ports[host] = []
        self._emit(
            events.HostReady(
                at=hello.at,
                host=host,
                agent_pid=hello.pid,
                hostname=hello.hostname,
                python=hello.python,
                cores=hello.cores,
                gpus=tuple(hello.gpus),
                kind=reach.kind,
                pid_namespace=hello.pid_namespace,
                address=hello.address or None,
                behind=round(time.time() - hello.at, 3),
                token=hello.token,
                folder=hello.folder,
                spare=self._specs[host].spare,
                # If this machine is the only host and its agent dies, the job ends.
                room=None if is_only and reach.is_below_supervisor else self._rooms[host],
            )
        )
        if self.is_finished or host in self.spares:
            self._unprepared.discard(host)
        else:
            self.hold_ports(host, self._needs[host])
        if self.delivery is not None:
            if not reach.lacks_files:
                self.delivery.forget(host)  # only now it is known that it has them
            elif was_left_out:
                self.delivery.add(host)
            self.delivery.start(host)

    def reconnect(self, host: str) -> Reach:
        """Return how to connect to a host anew; what it had before is gone."""
        self.reaches[host] = make_reach(self._specs[host], self._spec)
        self.reaches[host].files = self._manifest
        if self.delivery is not None and self.reaches[host].lacks_files:
            self.delivery.add(host)
        return self.reaches[host]

    def hold_ports(self, host: str, need: plan.PortNeed) -> None:
        """Have a host hold ports for its tasks."""
        first, last = self._spec.port_range or (0, 0)
        if not first and need.has_unbound:
            random = int.from_bytes(os.urandom(4), "big")  # the module `secrets` is slow to import
            candidates = _UNASSIGNED[: -need.free]
            first, last = candidates[random % len(candidates)], _UNASSIGNED[-1]
        self._order(host, protocol.HoldPorts(need.free, list(need.wanted), first, last))

    def ports_refused(self, host: str, refused: protocol.PortsRefused) -> Cause:
        """Return why a host cannot hold its ports."""
        causes = []
        for cause in refused.causes:
            other = self._same_machine(host, cause.port) if cause.port else None
            twice = Cause(Code.ONE_MACHINE_TWICE, name=other or "", port=cause.port)
            causes.append((cause if other is None else twice)._replace(host=host))
        return Cause(Code.PORTS_REFUSED, host=host, within=tuple(causes))

    def _same_machine(self, host: str, port: int) -> str | None:
        """Return another host that needs that port and is the same machine; None if none is."""
        hello = self.hellos[host]
        for name, other in self.hellos.items():
            wants = port in self._needs[name].wanted
            is_same = (other.hostname, other.address) == (hello.hostname, hello.address)
            if name != host and wants and is_same and hello.address:
                return name
        return None

    def _make_plan(self) -> plan.Plan | None:
        """The plan; None if hosts have failed and it cannot be made without them."""
        free_ports = dict(self.held_ports)
        missing = self.unreachable.keys() | self.failures.keys()
        for host in missing:  # perhaps it was reached, and could hold none
            free_ports[host] = list(range(1, self._needs[host].free + 1))
        try:
            return self.make_plan(self.placement, free_ports)
        except InvalidSpecError:
            if not missing:
                raise
            self.is_finished = True
            return None

    def make_plan(
        self, placement: Sequence[plan.Placed], free_ports: Mapping[str, Sequence[int]]
    ) -> plan.Plan:
        """Return the plan for a placement, see :func:`distrun.plan.make`."""
        used = {placed.host.name for placed in placement}
        hellos = {
            host: self.hellos.get(host, _UNKNOWN_HOST)
            for host in self.hosts
            if host in used or host in self.hellos
        }
        logins = Logins(hellos.values())
        facts = {host: self._facts(host, hellos[host], logins) for host in used}
        return plan.make(self._spec, placement, facts, free_ports)

    def _facts(self, host: str, hello: protocol.Hello, logins: Logins) -> plan.HostFacts:
        reach = self.reaches[host]
        environ = dict(os.environ) if reach.inherits_environment else hello.environ
        is_sent = reach.lacks_files and bool(self._spec.program.sync_base)
        return plan.HostFacts(
            cores=hello.cores,
            gpus=plan.visible_gpus(environ, hello.gpus),
            python=reach.default_python,
            environ=environ,
            address=reach.address(hello, logins),
            files=hello.files if is_sent else None,
            has_launch_folders=not reach.lacks_files,
            libc=hello.libc,
        )

    def _has_files(self) -> bool:
        if self.delivery is None:
            return True
        for host, cause in list(self.delivery.refusals.items()):
            if host in self.spares:
                self._leave_out(host, files_refused({host: cause}, self.reaches).as_cause())
        if self.delivery.is_finished and self.delivery.refusals:
            raise files_refused(self.delivery.refusals, self.reaches)
        return self.delivery.is_finished

    # The preflight -------------------------------------------------------------------------

    def _start_probe(self, made: plan.Plan) -> None:
        missing = {*self.unreachable, *self.failures, *self.left_out}
        hosts = [host for host in self.hosts if host not in missing]
        if not hosts or not (self._checks_all or self._is_checkable(hosts)):
            return
        if not self._has_preflight:
            self._emit(events.PreflightSkipped(at=time.time()))
            return
        self._probe = self.start_probe(
            made, hosts, inspected=hosts, trials=self._trials(missing), newcomers=self.spares
        )

    def _is_checkable(self, hosts: Iterable[str]) -> bool:
        return any(self.reaches[host].needs_preflight for host in hosts)

    def needs_probe(self, hosts: Iterable[str]) -> bool:
        """Whether these hosts are to be checked before tasks start on them."""
        return self._has_preflight and self._is_checkable(hosts)

    def start_probe(
        self,
        made: plan.Plan,
        hosts: Iterable[str],
        *,
        inspected: Iterable[str],
        newcomers: Collection[str],
        trials: Sequence[plan.TaskPlan] = (),
    ) -> Probe:
        """Start to check hosts of a plan; the answers of hosts that were inspected are reused.

        The newcomers are measured by the other hosts, and not the reverse.
        """
        from distrun.supervisor.probe import Probe

        hosts = tuple(hosts)
        self._emit(events.PreflightStarted(at=time.time(), hosts=len(hosts)))
        lacking = self.hosts_without_files if self._checks_all and self._spec.sends_files else ()
        passed = {host: self.passed_variables(host) for host in hosts}
        fresh = {*inspected}
        known = {} if self._probe is None else self._probe.inspected
        probe = Probe(
            self._spec,
            made,
            {host: self.reaches[host] for host in hosts},
            self._folder,
            self._order,
            lacking_files=frozenset(lacking),
            passed=passed,
            with_exposure=self._checks_all,
            known={host: known[host] for host in known.keys() & {*hosts} if host not in fresh},
            trials=trials,
            newcomers=newcomers,
        )
        self._probe = probe
        probe.start()
        return probe

    def _trials(self, missing: Collection[str]) -> list[plan.TaskPlan]:
        """Return the tasks as spares would run them, to try out the programs there."""
        tasks: list[plan.TaskPlan] = []
        for host in self.spares:
            if host in missing:
                continue
            placement = [
                dataclasses.replace(
                    placed,
                    host=self._specs[host],
                    role=dataclasses.replace(placed.role, gpus=None),
                    address=f"{host}:{number}",
                )
                for number, placed in enumerate(self.placement, start=1)
            ]
            with contextlib.suppress(InvalidSpecError):
                tasks += self.make_plan(placement, {}).tasks
        return tasks

    def record_checks(self, checks: tuple[Check, ...]) -> None:
        """Record the result of a preflight."""
        from distrun.supervisor.probe import record

        for event in record(checks, time.time()):
            self._emit(event)

    def _judge(self, checks: tuple[Check, ...]) -> None:
        from distrun.supervisor.probe import failure

        failed = {
            check.host if check.host in self.spares else check.cause.hosts[0]: check
            for check in checks
            if check.grade is Grade.FAILED and self._is_about_spares(check)
        }
        # A spare that cannot be used is no failure.
        checks = tuple(
            dataclasses.replace(check, grade=Grade.WARNING) if check in failed.values() else check
            for check in checks
        )
        self.record_checks(checks)
        for host, check in failed.items():
            self._leave_out(host, check.cause)
        if not self._checks_all:
            self.error = failure(checks)

    def _is_about_spares(self, check: Check) -> bool:
        """Whether a check is one of a spare, or of ports that only spares cannot reach."""
        callers = check.cause.hosts if check.cause.code is Code.PORTS_UNREACHABLE else ()
        are_spares = bool(callers) and all(each in self.spares for each in callers)
        return check.host in self.spares or are_spares

    # Tasks ---------------------------------------------------------------------------------

    def passed_variables(self, host: str) -> dict[str, str]:
        """Return the variables of `program.pass_env` that the host's tasks do not inherit.

        They are sent over the link and are written nowhere.
        """
        if self.reaches[host].inherits_environment:
            return {}
        names = self._spec.program.pass_env
        return {name: os.environ[name] for name in names if name in os.environ}

    def start_order(
        self, task: plan.TaskPlan, job_id: str, attempt: int, cause: str
    ) -> protocol.StartTask:
        """Return the order to start an attempt; `cause` is why it follows another one."""
        own = {"DISTRUN_JOB_ID": job_id, "DISTRUN_ATTEMPT": str(attempt)}
        own[job_processes.VARIABLE] = forked_process.token()
        return protocol.StartTask(
            task=task.name,
            attempt=attempt,
            argv=list(task.argv),
            workdir=task.workdir,
            log=task.log,
            env={**task.own_environment, **self.passed_variables(task.host), **own},
            tf_config=task.tf_config_parts,
            unset=list(task.unset),
            port=task.port,
            binds_port=task.binds_port,
            is_awaited=task.is_awaited and task.ready is Ready.PORT,
            or_home=task.or_home,
            marker=_marker(attempt, cause) if attempt else "",
        )


def _require_holes(folder: Path) -> None:
    """Raise HostError if the logs in a job's folder, which need not exist yet, have no limit."""
    while not folder.exists():
        folder = folder.parent
    try:
        holes.check(str(folder))
    except OSError as error:
        errno, host = error.errno or 0, os.uname().nodename
        cause = Cause(Code.LOGS_NOT_LIMITED, host=host, path=str(folder), errno=errno)
        raise HostError(cause=cause._replace(name="DISTRUN_HOME")) from None


def _marker(attempt: int, cause: str) -> str:
    """The line in a task's log that separates the output of a new attempt."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"--- attempt {attempt}, {now}: restarted after {cause} ---"


def task_record(task: plan.TaskPlan) -> events.TaskRecord:
    """Return a planned task as the job's record has it."""
    names = [each.name for each in dataclasses.fields(events.TaskRecord)]
    return events.TaskRecord(**{name: getattr(task, name) for name in names if hasattr(task, name)})


def unreachable_hosts(causes: Mapping[str, Cause], total: int) -> HostError:
    """Return the error for hosts of a job that could not be reached."""
    within = tuple(
        Cause(Code.HOST_UNUSABLE, host=host, within=(cause,)) for host, cause in causes.items()
    )
    return HostError(cause=_joined(Code.HOSTS_UNUSABLE, within, total))


def failed_hosts(causes: Mapping[str, Cause], order: Iterable[str]) -> HostError:
    """Return the error for hosts that were reached but cannot be prepared, in their order."""
    within = tuple(causes[host] for host in order if host in causes)
    return HostError(cause=_joined(Code.SEVERAL, within, len(causes)))


def files_refused(causes: Mapping[str, Cause], reaches: Mapping[str, Reach]) -> HostError:
    """Return the error for hosts that cannot have the program's files."""
    within = tuple(
        Cause(Code.FILES_REFUSED, host=host, name=reaches[host].folder_variable, within=(cause,))
        for host, cause in causes.items()
    )
    return HostError(cause=_joined(Code.FILES_REFUSED_BY_HOSTS, within, len(within)))


def _joined(code: Code, causes: tuple[Cause, ...], total: int) -> Cause:
    """The cause, or one of that code around several."""
    return causes[0] if len(causes) == 1 else Cause(code, count=total, within=causes)
