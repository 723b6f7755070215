"""The agent's part in the preflight: it listens, dials and inspects while its loop continues."""

from __future__ import annotations

import time
from typing import Callable, Optional, Union

from distrun.agent.linux.forked_call import ForkedCall, report_call
from distrun.agent.loop import Loop
from distrun.agent.probe import dialer, inspection, marks
from distrun.agent.probe.listener import Listener
from distrun.agent.protocol import Cause, Code, Message, Order, Report, probe_messages
from distrun.agent.tasks.ports import PortHolder

_LATENESS = 5.0
"""Seconds to wait beyond what a forked call should need at most."""


class Probe:
    """Answers the orders of :mod:`distrun.agent.protocol.probe_messages`."""

    def __init__(self, loop: Loop, ports: PortHolder, report: Callable[[Report], None]) -> None:
        self._loop = loop
        self._ports = ports
        self._report = report
        self._listener = Listener(loop)
        self._marked: Optional[probe_messages.Listen] = None
        """The order by which this host has written files that are to be removed."""
        self._writer: Optional[ForkedCall] = None
        """The child that writes them, or has done so."""

    def execute(self, order: Order, log_dir: str) -> None:
        """Execute one order. `log_dir`: the folder of the tasks' logs."""
        if isinstance(order, probe_messages.Listen):
            listening = probe_messages.Listening(
                self._listener.open(self._ports, order.greeting, order.password), time.time()
            )
            if not order.mark:
                self._report(listening)
                return
            self.remove_marks()
            self._marked = order
            self._writer = self._fork(
                lambda: listening._replace(unwritten=marks.write(order)),
                marks.LONGEST_WAIT,
                lambda cause: listening._replace(
                    unwritten=[
                        Cause(Code.FOLDER_NOT_USABLE, path=each, within=(cause,))
                        for each in order.folders
                    ]
                ),
            )
        elif isinstance(order, probe_messages.StopListening):
            self._listener.close()
            marked, stopped = self._marked, probe_messages.StoppedListening()
            if marked is None:
                self._report(stopped)
            else:
                self._fork(lambda: marks.remove(marked), marks.LONGEST_WAIT, lambda _: stopped)
        elif isinstance(order, probe_messages.Dial):
            self._fork(
                lambda: self._dial(order),
                dialer.most_seconds(order) + marks.LONGEST_WAIT,
                lambda cause: probe_messages.Dialled([], cause),
            )
        elif isinstance(order, probe_messages.Measure):
            self._fork(
                lambda: dialer.measure(order),
                4 * order.seconds,
                lambda _: probe_messages.Measured(0.0),
            )
        elif isinstance(order, probe_messages.Inspect):
            self._fork(
                lambda: inspection.inspect(order, log_dir),
                order.seconds,
                lambda cause: probe_messages.Inspected([], {}, failure=cause),
            )

    def _dial(self, order: probe_messages.Dial) -> probe_messages.Dialled:
        dialled = dialer.dial(order)
        if self._marked is None or not order.mark:
            return dialled
        return dialled._replace(unseen=marks.unseen(self._marked, order.mark))

    def remove_marks(self) -> None:
        """Remove the files that this host has written, if nothing else has; does not wait."""
        writer, marked = self._writer, self._marked
        self._writer = self._marked = None
        if writer is None or marked is None:
            return
        writer.close()

        def work() -> Report:
            writer.wait(1.0)  # else it could write them later
            return marks.remove(marked)

        report_call(self._loop, work, marks.LONGEST_WAIT, lambda _: None)

    def _fork(
        self, work: Callable[[], Report], seconds: float, failed: Callable[[Cause], Report]
    ) -> ForkedCall:
        def follow(found: Union[Message, Cause]) -> None:
            report = failed(found) if isinstance(found, Cause) else found
            if isinstance(report, probe_messages.StoppedListening):
                self._marked = None  # not before: a stop ends the child that removes them
            if isinstance(report, Report):
                self._report(report)

        return report_call(self._loop, work, seconds + _LATENESS, follow)
