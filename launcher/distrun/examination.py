"""What is in the way of a job on its hosts, found out without one: what `distrun doctor` says."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.errors import HostError, InvalidSpecError
from distrun.preflight import Check, Grade
from distrun.preflight.words import count, some
from distrun.rehearsal import Rehearsal
from distrun.supervisor.preflight import Preflight

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.agent.protocol import Hello, Report
    from distrun.plan import Plan
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.diagnosis import Diagnosis

_MISSING = protocol.Hello(protocol.PROTOCOL, 0, "", "", cores=1.0, gpus=list(range(256)), at=0.0)
"""Stands for a host that cannot be used, so that there is a plan by which to ask the others."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found out about a job's hosts. `checks` are in the order of the hosts."""

    hosts: tuple[str, ...]
    checks: tuple[Check, ...]
    is_complete: bool
    """Whether every host could be tried out."""

    @property
    def failed(self) -> int:
        return sum(check.grade is Grade.FAILED for check in self.checks)


def examine(spec: Spec, records: Path, tell: Callable[[str], float | None]) -> Examination:
    """Reach the hosts and try them out as a launch does, without a task.

    Args:
        spec: the job's.
        records: where the jobs' records are.
        tell: called before each wait with what is being done; how long to wait at most.

    Raises:
        InvalidSpecError: no plan can be made of the spec.
    """
    with tempfile.TemporaryDirectory(prefix="distrun-doctor-") as folder:
        trial = _Trial(spec, Path(folder), records, tell)
        trial.run()
    reached = [_reached(host, hello) for host, hello in trial.hellos.items()]
    missing = [_unreached(host, why) for host, why in trial.unreachable.items()]
    unusable = [_unusable(host, error) for host, error in trial.troubles.items()]
    checks = [*reached, *missing, *unusable, *(trial.checks or ())]
    order = {host: number for number, host in enumerate(trial.host_names)}
    return Examination(
        hosts=trial.host_names,
        checks=tuple(sorted(checks, key=lambda check: order.get(check.host, len(order)))),
        is_complete=trial.checks is not None and not (missing or unusable),
    )


def _reached(host: str, hello: Hello) -> Check:
    gpus = f", {count(len(hello.gpus), 'GPU')}" if hello.gpus else ""
    cores = "1 core" if hello.cores == 1 else f"{hello.cores:g} cores"
    text = f"{cores}{gpus}, Python {hello.python} for the agent"
    return Check(host=host, subject="reached", grade=Grade.OK, text=text)


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


class _Trial(Rehearsal):
    """Goes on to the preflight, without the hosts that cannot be used."""

    def __init__(
        self, spec: Spec, folder: Path, records: Path, tell: Callable[[str], float | None]
    ) -> None:
        super().__init__(spec, folder, lambda: tell(self._doing))
        self._records = records
        self._preflight: Preflight | None = None
        self._asked: tuple[str, ...] = ()
        self.checks: tuple[Check, ...] | None = None

    def goes_on(self) -> bool:
        if super().goes_on():
            return True
        if self._preflight is None and self.invalid is None:
            self._begin()
        is_whole = not any(host in self.troubles for host in self._asked)
        return self._preflight is not None and self.checks is None and is_whole

    def on_answer(self, host: str, message: Report) -> None:
        if self._preflight is not None:
            self._preflight.take(host, message)
            self.checks = self._preflight.checks()

    def _begin(self) -> None:
        missing = [host for host in self.host_names if self._is_missing(host)]
        plan = self.plan if not missing else self._plan_without(missing)
        usable = tuple(host for host in self.host_names if host not in missing)
        if plan is not None and usable:
            self._asked = usable
            self._preflight = Preflight(
                self.spec,
                plan,
                usable,
                self._records,
                self.hosts.order,
                has_files=not self.spec.sends_files,
            )
            self._preflight.begin()

    def _is_missing(self, host: str) -> bool:
        return host in self.unreachable or host in self.troubles

    def _plan_without(self, missing: list[str]) -> Plan | None:
        """A plan that is right for the other hosts; None where none can be made."""
        plan = None
        for host in missing:
            needed = self.preparation.on_hello(host, self.hellos.get(host, _MISSING))
            held = protocol.PortsHeld(list(range(1, needed.free + 1)), needed.wanted)
            try:
                plan = self.preparation.on_ports(host, held)
            except InvalidSpecError:
                return None
        return plan

    @property
    def _doing(self) -> str:
        if self._preflight is None:
            verb, waiting = "reaching", [host for host in self.host_names if host in self.pending]
        else:
            verb, waiting = "trying out", self._preflight.waiting_for
        text = f"{verb} {count(len(self.host_names), 'host')}"
        if 0 < len(waiting) < len(self.host_names):
            text += f", waiting for {some(waiting)}"
        return text
