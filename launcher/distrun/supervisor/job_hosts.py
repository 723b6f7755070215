"""The hosts of a job: their facts, ports and copies of the program's files."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distrun import plan
from distrun.agent import protocol
from distrun.agent.linux import job_processes, syscalls
from distrun.agent.protocol import Cause, Code, Order, probe_messages
from distrun.errors import HostError
from distrun.job import events
from distrun.job import folder as job_folder
from distrun.spec.model import Ready, Spec
from distrun.supervisor import forked_process
from distrun.supervisor.hosts.reach import HostView, Lifetime, Reach, make_reach

if TYPE_CHECKING:
    from distrun.supervisor.hosts.file_delivery import FileDelivery
    from distrun.sync.manifest import Manifest

_UNKNOWN_HOST = protocol.Hello(0, "", "", cores=1.0, gpus=list(range(256)), at=0.0)
"""Replaces a host that cannot be used, so that a plan for the others can be made and checked."""


class JobHosts:
    """The hosts of a job.

    `folder`: of the job's record. `manifest`: the program's files, if any are sent. `checks_all`:
    whether hosts are checked although others cannot be used and were not sent the files; if not,
    the first failure ends the first round. `measures`: hosts measure how fast they receive. Raises
    DistrunError: the job cannot run on this machine.
    """

    def __init__(
        self,
        spec: Spec,
        order: Callable[[str, Order], None],
        folder: Path,
        manifest: Manifest | None = None,
        *,
        emit: Callable[[events.Event], None] = lambda _: None,
        has_preflight: bool = False,
        checks_all: bool = False,
        measures: bool = False,
    ) -> None:
        job_folder.require_proc()
        if spec.log_max_size is not None:
            _require_holes(folder)
        self.spec, self.order, self.folder, self.emit = spec, order, folder, emit
        self.has_preflight, self.checks_all = has_preflight or checks_all, checks_all
        self.measures = measures
        self.placement = plan.place(spec)
        """Where the tasks are; a later plan may change it."""
        self._rooms = plan.room_of_hosts(spec)
        self.spares = () if checks_all else tuple(host.name for host in spec.spares)
        """The names of hosts without which the job can start."""
        hosts = {placed.host.name: placed.host for placed in self.placement}
        others = spec.hosts if checks_all else spec.spares
        self.specs = hosts | {host.name: host for host in others}
        self.names = tuple(self.specs)
        self._manifest = manifest
        self.reaches = {name: make_reach(host, spec, manifest) for name, host in self.specs.items()}
        self.delivery: FileDelivery | None = None
        """What sends the program's files to the hosts that lack them."""
        self.hellos: dict[str, protocol.Hello] = {}
        self.left_out: dict[str, Cause] = {}
        needs = plan.ports_needed(spec, self.placement)
        self.needs = {host: needs.get(host, plan.PortNeed()) for host in self.specs}
        self.held_ports: dict[str, list[int]] = {}
        """The ports that each host holds for tasks whose ports are chosen."""
        self.inspected: dict[str, probe_messages.Inspected] = {}

    @property
    def hosts_without_files(self) -> list[str]:
        return [name for name in self.reaches if not self._view(name).has_files]

    def _view(self, host: str) -> HostView:
        return self.reaches[host].describe(self.hellos.get(host, _UNKNOWN_HOST))

    def has_own_logs(self, host: str) -> bool:
        """Whether the tasks on a host write their logs there, and have its environment."""
        return self.reaches[host].lifetime is not Lifetime.SUPERVISOR

    def add_hello(self, host: str, hello: protocol.Hello) -> None:
        """Note that a host's agent has answered; send it the files."""
        view, has_others = self.reaches[host].describe(hello), len(self.names) > 1
        self.hellos[host] = hello = view.hello
        was_left_out = self.left_out.pop(host, None) is not None
        self.held_ports[host] = []
        names = ("hostname", "python", "cores", "pid_namespace", "token", "folder")
        self.emit(
            events.HostReady(
                **{name: getattr(hello, name) for name in names},
                at=time.time(),
                host=host,
                agent_pid=hello.pid,
                gpus=tuple(hello.gpus),
                kind=self.specs[host].reach,
                address=hello.address or None,
                found_as=view.found_as,
                behind=round(time.time() - hello.at, 3),
                spare=self.specs[host].spare,
                role=self.specs[host].role,
                # If this machine is the only host and its agent dies, the job ends.
                room=self._rooms[host] if has_others or self.has_own_logs(host) else None,
            )
        )
        if self.delivery is not None:
            if view.has_files:
                self.delivery.forget(host)  # only now it is known that it has them
            elif was_left_out:
                self.delivery.add(host)
            self.delivery.start(host)

    def reconnect(self, host: str) -> Reach:
        """Return how to connect to a host again; what it had before is gone."""
        self.reaches[host] = make_reach(self.specs[host], self.spec, self._manifest)
        if self.delivery is not None and not self._view(host).has_files:
            self.delivery.add(host)
        return self.reaches[host]

    def remove(self, host: str) -> None:
        self.held_ports.pop(host, None)
        self.inspected.pop(host, None)
        if self.delivery is not None:
            self.delivery.forget(host)

    def ports_refused(self, host: str, refused: protocol.PortsRefused) -> Cause:
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
            wants = port in self.needs[name].wanted
            is_same = (other.hostname, other.address) == (hello.hostname, hello.address)
            if name != host and wants and is_same and hello.address:
                return name
        return None

    def make_plan(
        self,
        placement: Sequence[plan.Placed],
        free_ports: Mapping[str, Sequence[int]],
        running: Mapping[str, str] | None = None,
    ) -> plan.Plan:
        """Return the plan for a placement, see :func:`distrun.plan.make`."""
        used = {placed.host.name for placed in placement}
        hellos = {
            host: self.hellos.get(host, _UNKNOWN_HOST)
            for host in self.names
            if host in used or host in self.hellos
        }

        own = None  # a job on one machine stays on localhost
        if len(hellos) > 1:
            from distrun.supervisor.hosts.addresses import own_address

            own = own_address(hellos.values())
        facts = {}
        for host in used:
            address = self.reaches[host].address(hellos[host], len(hellos), own)
            facts[host] = self._facts(host, hellos[host], address)
        return plan.make(self.spec, placement, facts, free_ports, running)

    def lacking_gpus(self, placement: Sequence[plan.Placed]) -> list[str]:
        """Return the hosts that have fewer GPUs than their tasks ask for."""
        asked = Counter[str]()
        for placed in placement:
            asked[placed.host.name] += placed.role.gpus or 0
        lacking = []
        for host, count in (+asked).items():
            chosen = self.specs[host].gpus
            facts = self._facts(host, self.hellos.get(host, _UNKNOWN_HOST), None)
            if count > len(facts.gpus if chosen is None else chosen):
                lacking.append(host)
        return lacking

    def _facts(self, host: str, hello: protocol.Hello, address: str | None) -> plan.HostFacts:
        environ = hello.environ if self.has_own_logs(host) else dict(os.environ)
        view = self.reaches[host].describe(hello)
        is_sent = not view.has_files and bool(self.spec.program.sync_base)
        return plan.HostFacts(
            cores=hello.cores,
            gpus=plan.visible_gpus(environ, hello.gpus),
            gpu_failure=hello.gpu_failure,
            python=sys.executable if view.has_python else "python3",
            environ=environ,
            address=address,
            files=hello.files if is_sent else None,
            has_launch_folders=view.has_files,
            libc=hello.libc,
        )

    def need_probe(self, hosts: Iterable[str]) -> bool:
        """Whether these hosts should be checked before tasks start on them."""
        return self.checks_all or any(map(self.has_own_logs, hosts))

    # Tasks ---------------------------------------------------------------------------------

    def passed_variables(self, host: str) -> dict[str, str]:
        """Return the variables of `program.pass_env` that the host's tasks do not inherit.

        They are sent over the link and are written nowhere.
        """
        if not self.has_own_logs(host):
            return {}
        names = self.spec.program.pass_env
        return {name: os.environ[name] for name in names if name in os.environ}

    def start_order(
        self, task: plan.TaskPlan, job_id: str, attempt: int, cause: str
    ) -> protocol.StartTask:
        # The line in its log that separates the output of a new attempt.
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        marker = f"--- attempt {attempt}, {now}: restarted after {cause} ---" if attempt else ""
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
            marker=marker,
        )


def _require_holes(folder: Path) -> None:
    """Raise HostError if the logs in a job's folder, which need not exist yet, have no limit."""
    while not folder.exists():
        folder = folder.parent
    try:
        syscalls.check_holes(str(folder))
    except OSError as error:
        errno, host = error.errno or 0, os.uname().nodename
        cause = Cause(Code.LOGS_NOT_LIMITED, host=host, path=str(folder), errno=errno)
        raise HostError(cause=cause._replace(name="DISTRUN_HOME")) from None
