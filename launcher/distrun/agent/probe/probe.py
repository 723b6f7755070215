"""The agent's part in the preflight: it listens, dials and inspects while its loop continues."""

from __future__ import annotations

import selectors
import time
from typing import Callable, Dict, List, Optional

from distrun.agent.probe import dialer, inspection
from distrun.agent.probe.forked_call import ForkedCall
from distrun.agent.probe.listener import Listener
from distrun.agent.protocol import Cause, Code, Order, Report, probe_messages
from distrun.agent.tasks.ports import PortHolder

_LATENESS = 5.0
"""Seconds to wait beyond what a forked call should need at most."""


class Probe:
    """Answers the orders of :mod:`distrun.agent.protocol.probe_messages`.

    `report` sends a report to the supervisor.
    """

    def __init__(
        self, selector: selectors.BaseSelector, ports: PortHolder, report: Callable[[Report], None]
    ) -> None:
        self._selector = selector
        self._ports = ports
        self._report = report
        self._listener = Listener(selector)
        self._calls: Dict[ForkedCall, Callable[[Cause], Report]] = {}
        """Each running call, with the report to send if it fails."""

    def execute(self, order: Order, log_dir: str) -> None:
        """Execute one order. `log_dir`: the folder of the tasks' logs."""
        if isinstance(order, probe_messages.Listen):
            errors = self._listener.open(self._ports, order.greeting)
            self._report(probe_messages.Listening(errors, time.time()))
        elif isinstance(order, probe_messages.StopListening):
            self._listener.close()
            self._report(probe_messages.StoppedListening())
        elif isinstance(order, probe_messages.Dial):
            self._fork(
                lambda: dialer.dial(order),
                dialer.most_seconds(order),
                lambda cause: probe_messages.Dialled([], cause),
            )
        elif isinstance(order, probe_messages.Inspect):
            self._fork(
                lambda: inspection.inspect(order, log_dir),
                order.seconds,
                lambda cause: probe_messages.Inspected([], None, cause),
            )

    @property
    def dues(self) -> List[Optional[float]]:
        """The times at which :meth:`on_time` has something to do."""
        return [call.due for call in self._calls]

    def on_time(self, now: float) -> None:
        """End the calls that take too long."""
        for call in [each for each in self._calls if each.due <= now]:
            self._finish(call, Code.PROBE_TIMED_OUT)

    def _fork(
        self, work: Callable[[], Report], seconds: float, failed: Callable[[Cause], Report]
    ) -> None:
        try:
            call = ForkedCall(work, time.monotonic() + seconds + _LATENESS)
        except OSError as error:
            self._report(failed(Cause(Code.PROBE_NOT_STARTED, errno=error.errno or 0)))
            return
        self._calls[call] = failed
        self._selector.register(call, selectors.EVENT_READ, lambda: self._on_readable(call))

    def _on_readable(self, call: ForkedCall) -> None:
        if call.read():
            self._finish(call, Code.PROBE_DIED)

    def _finish(self, call: ForkedCall, otherwise: Code) -> None:
        failed = self._calls.pop(call)
        self._selector.unregister(call)
        result = call.result()
        self._report(result if isinstance(result, Report) else failed(Cause(otherwise)))
        call.close()
