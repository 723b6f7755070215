"""A job without its tasks: real agents say what they have, hold ports, try each other out."""

from __future__ import annotations

import selectors
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent import kernel, wire
from distrun.agent.questions import ANSWERS
from distrun.errors import HostError, InvalidSpecError
from distrun.plan import READ
from distrun.preflight import Check, Grade
from distrun.supervisor.hosts import Callbacks, Hosts, unreachable_error
from distrun.supervisor.preflight import Preflight
from distrun.supervisor.preparation import Preparation, refusal

if TYPE_CHECKING:
    from distrun.agent.wire import Hello, Message
    from distrun.plan import Plan
    from distrun.spec.model import Spec
    from distrun.transport.diagnosis import Diagnosis

_JOB_ID = "plan"


def rehearse(spec: Spec) -> Plan:
    """The plan that a launch would run, but for the ports: those held are let go again.

    Raises:
        HostError: a host or port cannot be had.
        InvalidSpecError: no plan can be made of the spec.
    """
    with tempfile.TemporaryDirectory(prefix="distrun-plan-") as folder:
        rehearsal = _Rehearsal(spec, Path(folder))
        rehearsal.run()
    if rehearsal.unreachable:
        raise unreachable_error(rehearsal.unreachable, len(rehearsal.hosts))
    for error in rehearsal.troubles.values():
        raise error
    if rehearsal.plan is None:
        raise HostError("no host answered")
    return rehearsal.plan


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found out about a job's hosts. `checks` are in the order of the hosts."""

    hosts: tuple[str, ...]
    checks: tuple[Check, ...]
    is_complete: bool
    """Whether all was looked at: some is only when every host can be reached."""

    @property
    def failed(self) -> int:
        return sum(check.grade is Grade.FAILED for check in self.checks)


def examine(spec: Spec, records: Path) -> Examination:
    """Reach the hosts and try them out as a launch does, without a task.

    Args:
        spec: the job's.
        records: where the jobs' records are.

    Raises:
        InvalidSpecError: no plan can be made of the spec.
    """
    with tempfile.TemporaryDirectory(prefix="distrun-doctor-") as folder:
        rehearsal = _Rehearsal(spec, Path(folder), records)
        rehearsal.run()
    reached = [_reached(host, hello) for host, hello in rehearsal.hellos.items()]
    missing = [_unreached(host, why) for host, why in rehearsal.unreachable.items()]
    unusable = [_unusable(host, error) for host, error in rehearsal.troubles.items()]
    checks = [*reached, *missing, *unusable, *(rehearsal.checks or ())]
    order = {host: number for number, host in enumerate(rehearsal.hosts)}
    return Examination(
        hosts=rehearsal.hosts,
        checks=tuple(sorted(checks, key=lambda check: order.get(check.host, len(order)))),
        is_complete=rehearsal.checks is not None,
    )


def _reached(host: str, hello: Hello) -> Check:
    gpus = f", {len(hello.gpus)} GPUs" if hello.gpus else ""
    how = f"{hello.hostname}: {hello.cores:g} cores{gpus}, Python {hello.python} for the agent"
    return Check(host=host, subject="reached", grade=Grade.OK, text=how)


def _unreached(host: str, why: Diagnosis) -> Check:
    return Check(host=host, subject="reached", grade=Grade.FAILED, text=why.reason, advice=why.hint)


def _unusable(host: str, error: HostError) -> Check:
    return Check(
        host=host,
        subject="preparation",
        grade=Grade.FAILED,
        text=error.message,
        advice=error.hint,
    )


class _Rehearsal:
    """Goes with the hosts as far as the plan or the preflight, then lets them go.

    Args:
        records: where the jobs' records are; without it, there is no preflight.
    """

    def __init__(self, spec: Spec, folder: Path, records: Path | None = None) -> None:
        self._spec = spec
        self._records = records
        self._preparation = Preparation(spec)
        self._preflight: Preflight | None = None
        self.hosts = tuple(host.name for host in self._preparation.hosts)
        self.hellos: dict[str, Hello] = {}
        self.unreachable: dict[str, Diagnosis] = {}
        self.troubles: dict[str, HostError] = {}
        """Why hosts that were reached cannot be used."""
        self.plan: Plan | None = None
        self._invalid: InvalidSpecError | None = None
        self.checks: tuple[Check, ...] | None = None
        self._pending = set(self.hosts)
        """Those that have neither held their ports nor failed."""
        self._is_leaving = False
        self._selector = selectors.DefaultSelector()
        self._signals = kernel.signal_pipe((signal.SIGCHLD,))
        callbacks = Callbacks(
            report=self._on_report,
            gone=self._on_gone,
            unreachable=self._on_unreachable,
            link_lost=lambda _host, _why: None,
            link_restored=lambda _host: None,
            logs_incomplete=lambda _host, _why: None,
        )
        self._hosts = Hosts(self._selector, spec, _JOB_ID, folder, READ, callbacks)

    def run(self) -> None:
        """Go that far; how far it came is in the attributes.

        Raises:
            InvalidSpecError: no plan can be made of the spec.
        """
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signal)
        self._hosts.connect(self._preparation.hosts)
        while self._hosts.connected:
            if self._is_over and not self._is_leaving:
                self._is_leaving = True
                self._hosts.order_all(wire.Shutdown())
            self._wait()
        if self._invalid is not None:
            raise self._invalid

    @property
    def _is_over(self) -> bool:
        """Whether there is no more to be learnt."""
        if self._invalid is not None:
            return True
        if self.unreachable or self.troubles:
            return not self._pending
        return (self.plan if self._records is None else self.checks) is not None

    def _wait(self) -> None:
        self._hosts.watch_writing()
        due = self._hosts.next_due
        timeout = None if due is None else max(0.0, due - time.monotonic())
        for key, _ in self._selector.select(timeout):
            if key.fileobj in self._selector.get_map():
                key.data()
        self._hosts.on_time()

    def _on_signal(self) -> None:
        self._signals.read(4096)
        self._hosts.look_for_exits()

    def _on_report(self, host: str, message: Message) -> None:
        if self._is_leaving:
            return
        if isinstance(message, wire.Hello):
            self.hellos[host] = message
            self._hosts.order(host, self._preparation.on_hello(host, message))
        elif isinstance(message, wire.PortsHeld):
            self._pending.discard(host)
            try:
                plan = self._preparation.on_ports(host, message)
            except InvalidSpecError as error:
                self._invalid = error
            else:
                self._on_plan(plan)
        elif isinstance(message, wire.PortsRefused):
            self._fail(host, refusal(host, message))
        elif isinstance(message, wire.Fault):
            self._fail(host, HostError(f"{host} cannot be prepared: {message.reason}"))
        elif isinstance(message, ANSWERS) and self._preflight is not None:
            self._preflight.take(host, message)
            self.checks = self._preflight.checks()

    def _on_plan(self, plan: Plan | None) -> None:
        self.plan = plan
        if plan is not None and self._records is not None:
            self._preflight = Preflight(self._spec, plan, self._records, self._hosts.order)
            self._preflight.begin()

    def _fail(self, host: str, error: HostError) -> None:
        self._pending.discard(host)
        self.troubles.setdefault(host, error)

    def _on_gone(self, host: str, how: str) -> None:
        if not self._is_leaving:
            self._fail(host, HostError(f"{host} cannot be prepared: {how}"))

    def _on_unreachable(self, found: dict[str, Diagnosis]) -> None:
        self._pending -= set(found)
        self.unreachable.update(found)
