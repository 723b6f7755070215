"""The agent's part in the preflight: it listens, dials and looks, and its loop goes on."""

from __future__ import annotations

import selectors
import time
from typing import Any, Callable, Dict, List, Optional

from distrun.agent.probe import dialer, inspection
from distrun.agent.probe.forked_call import ForkedCall
from distrun.agent.probe.listener import Reception
from distrun.agent.protocol.probe_messages import (
    Dial,
    Dialled,
    Inspect,
    Inspected,
    Listen,
    Listening,
    StopListening,
    StoppedListening,
)
from distrun.agent.tasks.ports import PortHolder

_LATENESS = 5.0
"""Seconds beyond what an errand should need at most."""


class Preflight:
    """Answers the questions of :mod:`distrun.agent.protocol.probe_messages`."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        ports: PortHolder,
        report: Callable[[Any], None],
        clock: Callable[[], float],
    ) -> None:
        self._selector = selector
        self._ports = ports
        self._report = report
        self._clock = clock
        self._reception = Reception(selector)
        self._errands: Dict[ForkedCall, Callable[[Optional[Any], str], Any]] = {}

    def obey(self, order: Any, folder: str) -> None:
        """Do what is asked. `folder`: where logs are written."""
        if isinstance(order, Listen):
            failed = self._reception.open(self._ports, order.greeting)
            self._report(Listening(failed, time.time()))
        elif isinstance(order, StopListening):
            self._reception.close()
            self._report(StoppedListening())
        elif isinstance(order, Dial):
            seconds = dialer.longest(order)
            self._send_out(lambda: dialer.dial(order), seconds, _dialled)
        elif isinstance(order, Inspect):
            self._send_out(lambda: inspection.inspect(order, folder), order.seconds, _inspected)

    @property
    def dues(self) -> List[Optional[float]]:
        return [errand.due for errand in self._errands]

    def on_time(self, now: float) -> None:
        for errand in [each for each in self._errands if each.due <= now]:
            self._finish(errand, "it took too long")

    def _send_out(
        self, work: Callable[[], Any], seconds: float, answer: Callable[[Optional[Any], str], Any]
    ) -> None:
        try:
            errand = ForkedCall(work, self._clock() + seconds + _LATENESS)
        except OSError as error:
            self._report(answer(None, "no process could be made: {}".format(error.strerror)))
            return
        self._errands[errand] = answer
        self._selector.register(errand, selectors.EVENT_READ, lambda: self._on_answer(errand))

    def _on_answer(self, errand: ForkedCall) -> None:
        if errand.read():
            self._finish(errand, "its process died")

    def _finish(self, errand: ForkedCall, otherwise: str) -> None:
        answer = self._errands.pop(errand)
        self._selector.unregister(errand)
        self._report(answer(errand.answer(), otherwise))
        errand.close()


def _dialled(fields: Optional[Any], why: str) -> Dialled:
    return Dialled([], why) if fields is None else Dialled(**fields)


def _inspected(fields: Optional[Any], why: str) -> Inspected:
    return Inspected([], [], why) if fields is None else Inspected(**fields)
