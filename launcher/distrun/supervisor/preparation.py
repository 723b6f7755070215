"""Prepares the hosts of a job: connected, facts gathered, ports held, files sent, preflight judged.

`launch` prepares inside the supervisor, `plan` and `doctor` inside the command's own process
(:mod:`distrun.supervisor.dry_run`).
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from typing import TYPE_CHECKING

from distrun import events, jobstore, plan
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code
from distrun.errors import DistrunError, HostError, InvalidSpecError
from distrun.spec.model import Ready
from distrun.supervisor.hosts.pool import make_reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from distrun.agent.protocol import Order, Report
    from distrun.preflight import Check
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.file_delivery import FileDelivery
    from distrun.supervisor.hosts.reach import Reach
    from distrun.supervisor.probe import Probe

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
        jobstore.require_proc()
        self._spec = spec
        self._order = order
        self._folder = folder
        self._emit = emit
        self._has_preflight = has_preflight
        self._checks_all = checks_all
        self._placement = plan.place(spec)
        hosts = {placed.host.name: placed.host for placed in self._placement}
        self.hosts = tuple(hosts)
        """Their names, in the order of the spec."""
        self.reaches = {name: make_reach(host, spec) for name, host in hosts.items()}
        self.delivery: FileDelivery | None = None
        """Sends the program's files, if any are sent."""
        self.hellos: dict[str, protocol.Hello] = {}
        self.unreachable: dict[str, Cause] = {}
        self.failures: dict[str, Cause] = {}
        """Why hosts that were reached cannot be used."""
        self.plan: plan.Plan | None = None
        self.checks: tuple[Check, ...] | None = None
        """The result of the preflight; None: there was none."""
        self.error: DistrunError | None = None
        """Why the job cannot start."""
        self.is_finished = False
        needs = plan.ports_needed(spec, self._placement)
        self._needs = {host: needs.get(host, plan.PortNeed()) for host in hosts}
        self._free_ports: dict[str, list[int]] = {}
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
        return not any(reach.has_own_logs for reach in self.reaches.values())

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

    def receive(self, host: str, report: Report) -> None:
        """Handle a report that belongs to the preparation; ignore any other."""
        if self.is_finished:
            return
        if isinstance(report, protocol.Hello):
            self._on_hello(host, report)
        elif isinstance(report, (protocol.PortsHeld, protocol.PortsRefused)):
            self._unprepared.discard(host)
            if isinstance(report, protocol.PortsHeld):
                self._free_ports[host] = report.chosen
            else:
                self.failures[host] = self.ports_refused(host, report)
        elif self._probe is not None:
            self._probe.receive(host, report)
        self.advance()

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        """Continue without these hosts, or end."""
        self.unreachable.update(causes)
        self._unprepared -= causes.keys()
        if not (self.is_finished or self._checks_all):
            self.error = unreachable_hosts(causes, len(self.hosts))
            self.is_finished = True
        self.advance()

    def fail(self, host: str, cause: Cause) -> None:
        """Continue without a host that was reached, or end."""
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
        self.hellos[host] = hello
        reach = self.reaches[host]
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
            )
        )
        need = self._needs[host]
        first, last = self._spec.port_range or (0, 0)
        if not first and need.has_unbound:
            first, last = secrets.choice(_UNASSIGNED[: -need.free]), _UNASSIGNED[-1]
        self._order(host, protocol.HoldPorts(need.free, list(need.wanted), first, last))
        if self.delivery is not None:
            self.delivery.start(host)

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
        hellos = {host: self.hellos.get(host, _UNKNOWN_HOST) for host in self.hosts}
        free_ports = dict(self._free_ports)
        missing = self.unreachable.keys() | self.failures.keys()
        for host in missing:
            free_ports.setdefault(host, list(range(1, self._needs[host].free + 1)))
        facts = {host: self._facts(host, hellos) for host in self.hosts}
        try:
            return plan.make(self._spec, self._placement, facts, free_ports)
        except InvalidSpecError:
            if not missing:
                raise
            self.is_finished = True
            return None

    def _facts(self, host: str, hellos: Mapping[str, protocol.Hello]) -> plan.HostFacts:
        hello, reach = hellos[host], self.reaches[host]
        environ = dict(os.environ) if reach.inherits_environment else hello.environ
        is_sent = reach.lacks_files and bool(self._spec.program.sync_base)
        return plan.HostFacts(
            cores=hello.cores,
            gpus=plan.visible_gpus(environ, hello.gpus),
            python=reach.default_python,
            environ=environ,
            address=reach.address(hello, hellos.values()),
            files=hello.files if is_sent else None,
            has_launch_folders=not reach.lacks_files,
        )

    def _has_files(self) -> bool:
        if self.delivery is None:
            return True
        if self.delivery.is_finished and self.delivery.refusals:
            raise files_refused(self.delivery.refusals, self.reaches)
        return self.delivery.is_finished

    # The preflight -------------------------------------------------------------------------

    def _start_probe(self, made: plan.Plan) -> None:
        missing = self.unreachable.keys() | self.failures.keys()
        hosts = tuple(host for host in self.hosts if host not in missing)
        is_needed = any(self.reaches[host].needs_preflight for host in hosts)
        if not hosts or not (is_needed or self._checks_all):
            return
        if not self._has_preflight:
            self._emit(events.PreflightSkipped(at=time.time()))
            return
        from distrun.supervisor.probe import Probe

        self._emit(events.PreflightStarted(at=time.time(), hosts=len(hosts)))
        lacking = self.hosts_without_files if self._checks_all and self._spec.sends_files else ()
        passed = {host: self.passed_variables(host) for host in hosts}
        self._probe = Probe(
            self._spec,
            made,
            {host: self.reaches[host] for host in hosts},
            self._folder,
            self._order,
            lacking_files=frozenset(lacking),
            passed=passed,
            with_exposure=self._checks_all,
        )
        self._probe.start()

    def _judge(self, checks: tuple[Check, ...]) -> None:
        from distrun.supervisor.probe import failure, record

        for event in record(checks, time.time()):
            self._emit(event)
        if not self._checks_all:
            self.error = failure(checks)

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
        return protocol.StartTask(
            task=task.name,
            attempt=attempt,
            argv=list(task.argv),
            workdir=task.workdir,
            log=task.log,
            env={**task.environment, **self.passed_variables(task.host), **own},
            unset=list(task.unset),
            port=task.port,
            binds_port=task.binds_port,
            is_awaited=task.is_awaited and task.ready is Ready.PORT,
            or_home=task.or_home,
            marker=_marker(attempt, cause) if attempt else "",
        )


def _marker(attempt: int, cause: str) -> str:
    """The line in a task's log that separates the output of a new attempt."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"--- attempt {attempt}, {now}: restarted after {cause} ---"


def task_record(task: plan.TaskPlan) -> events.TaskRecord:
    """Return a planned task as the job's record has it."""
    names = [each.name for each in dataclasses.fields(events.TaskRecord)]
    return events.TaskRecord(**{name: getattr(task, name) for name in names})


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
