"""A job without its tasks: real agents say what they have and hold ports, then are let go."""

from __future__ import annotations

import selectors
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.agent.linux import syscalls
from distrun.cli.cause_text import cause_text
from distrun.errors import HostError, InvalidSpecError
from distrun.plan import READ
from distrun.supervisor.hosts.pool import Callbacks, Hosts, unreachable_error
from distrun.supervisor.preparation import Preparation, together

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.agent.protocol import Hello, Report
    from distrun.plan import Plan
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.diagnosis import Diagnosis

_JOB_ID = "plan"


def rehearse(spec: Spec) -> Plan:
    """The plan that a launch would run, but for the ports: those held are let go again.

    Raises:
        HostError: a host or port cannot be had.
        InvalidSpecError: no plan can be made of the spec.
    """
    with tempfile.TemporaryDirectory(prefix="distrun-plan-") as folder:
        rehearsal = Rehearsal(spec, Path(folder))
        rehearsal.run()
    if rehearsal.unreachable:
        raise unreachable_error(rehearsal.unreachable, len(rehearsal.host_names))
    if rehearsal.troubles:
        raise together(rehearsal.troubles, rehearsal.host_names)
    if rehearsal.plan is None:
        raise HostError("no host answered")
    return rehearsal.plan


class Rehearsal:
    """Goes with the hosts as far as the plan, then lets them go.

    Args:
        folder: an empty one, for what the agent of this machine writes.
        tick: called before each wait; the longest time to wait, in seconds, or None.
    """

    def __init__(
        self, spec: Spec, folder: Path, tick: Callable[[], float | None] = lambda: None
    ) -> None:
        self.spec = spec
        self.preparation = Preparation(spec)
        self.host_names = tuple(host.name for host in self.preparation.hosts)
        self.hellos: dict[str, Hello] = {}
        self.unreachable: dict[str, Diagnosis] = {}
        self.troubles: dict[str, HostError] = {}
        """Why hosts that were reached cannot be used."""
        self.pending = set(self.host_names)
        """Those that have neither held their ports nor failed."""
        self.plan: Plan | None = None
        self._tick = tick
        self.invalid: InvalidSpecError | None = None
        self._is_leaving = False
        self._selector = selectors.DefaultSelector()
        self._signals = syscalls.signal_pipe((signal.SIGCHLD,))
        callbacks = Callbacks(
            report=self._on_report,
            gone=self._on_gone,
            unreachable=self._on_unreachable,
            link_lost=lambda _host, _why: None,
            link_restored=lambda _host: None,
            logs_incomplete=lambda _host, _why: None,
        )
        self.hosts = Hosts(self._selector, spec, _JOB_ID, folder, READ, callbacks)

    def run(self) -> None:
        """Go that far; how far it came is in the attributes.

        Raises:
            InvalidSpecError: no plan can be made of the spec.
            BaseException: a signal's, such as KeyboardInterrupt, once the hosts have been let go.
        """
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signal)
        self.hosts.connect(self.preparation.hosts)
        try:
            self._go_on()
        except BaseException:
            self._leave()
            self._go_on()
            raise
        if self.invalid is not None:
            raise self.invalid

    def goes_on(self) -> bool:
        """Whether there is more to be learnt: all that is in the way of a plan, if not the plan."""
        return self.invalid is None and bool(self.pending)

    def on_answer(self, host: str, message: Report) -> None:
        """Take what has nothing to do with the plan."""

    def _go_on(self) -> None:
        while self.hosts.connected:
            if not self._is_leaving and not self.goes_on():
                self._leave()
            self._wait()

    def _leave(self) -> None:
        self._is_leaving = True
        self.hosts.order_all(protocol.Shutdown())

    def _wait(self) -> None:
        self.hosts.watch_writing()
        due = self.hosts.next_due
        waits = [self._tick(), None if due is None else max(0.0, due - time.monotonic())]
        timeout = min((each for each in waits if each is not None), default=None)
        for key, _ in self._selector.select(timeout):
            if key.fileobj in self._selector.get_map():
                key.data()
        self.hosts.on_time()

    def _on_signal(self) -> None:
        self._signals.read(4096)
        self.hosts.look_for_exits()

    def _on_report(self, host: str, message: Report) -> None:
        if self._is_leaving:
            return
        if isinstance(message, protocol.Hello):
            self.hellos[host] = message
            self.hosts.order(host, self.preparation.on_hello(host, message))
        elif isinstance(message, protocol.PortsHeld):
            self.pending.discard(host)
            try:
                self.plan = self.preparation.on_ports(host, message)
            except InvalidSpecError as error:
                self.invalid = error
        elif isinstance(message, protocol.PortsRefused):
            self._fail(host, self.preparation.refusal(host, message))
        elif isinstance(message, protocol.Fault):
            self._fail(host, HostError(f"{host} cannot be prepared: {cause_text(message.cause)}"))
        else:
            self.on_answer(host, message)

    def _fail(self, host: str, error: HostError) -> None:
        self.pending.discard(host)
        self.troubles.setdefault(host, error)

    def _on_gone(self, host: str, how: str) -> None:
        if not self._is_leaving:
            self._fail(host, HostError(f"{host} cannot be prepared: {how}"))

    def _on_unreachable(self, found: dict[str, Diagnosis]) -> None:
        self.pending -= set(found)
        self.unreachable.update(found)
