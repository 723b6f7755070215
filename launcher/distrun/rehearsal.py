"""A plan without a launch: real agents say what their hosts have, and hold ports for it."""

from __future__ import annotations

import selectors
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent import kernel, wire
from distrun.errors import DistrunError, HostError
from distrun.plan import READ
from distrun.supervisor.hosts import Callbacks, Hosts, unreachable_error
from distrun.supervisor.preparation import Preparation, refusal

if TYPE_CHECKING:
    from distrun.agent.wire import Message
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
        return _Rehearsal(spec, Path(folder)).run()


class _Rehearsal:
    """Goes with the hosts as far as the plan, then lets them go."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self._preparation = Preparation(spec)
        self._plan: Plan | None = None
        self._error: DistrunError | None = None
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

    def run(self) -> Plan:
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signal)
        self._hosts.connect(self._preparation.hosts)
        while self._hosts.connected:
            if (self._plan or self._error) and not self._is_leaving:
                self._is_leaving = True
                self._hosts.order_all(wire.Shutdown())
            self._wait()
        if self._error is not None:
            raise self._error
        if self._plan is None:
            raise HostError("no host answered")
        return self._plan

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
        try:
            if isinstance(message, wire.Hello):
                self._hosts.order(host, self._preparation.on_hello(host, message))
            elif isinstance(message, wire.PortsHeld):
                self._plan = self._preparation.on_ports(host, message) or self._plan
            elif isinstance(message, wire.PortsRefused):
                raise refusal(host, message)
            elif isinstance(message, wire.Fault):
                raise HostError(f"{host} cannot be prepared: {message.reason}")
        except DistrunError as error:
            self._error = self._error or error

    def _on_gone(self, host: str, how: str) -> None:
        if self._plan is None and self._error is None:
            self._error = HostError(f"{host} cannot be prepared: {how}")

    def _on_unreachable(self, found: dict[str, Diagnosis]) -> None:
        self._error = self._error or unreachable_error(found, len(self._preparation.hosts))
