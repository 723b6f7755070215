"""Who reaches whom: calls that failed, those that failed alike together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrun.cli.cause_text import cause_advice, cause_text
from distrun.preflight.checks import Check, Grade
from distrun.preflight.words import count, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distrun.agent.protocol import Cause
    from distrun.agent.protocol.probe_messages import Unreachable
    from distrun.preflight.findings import Findings, HostFindings


@dataclass(frozen=True)
class _Failure:
    """How some hosts do not reach another, the same way and at the same addresses."""

    owner: str
    cause: Cause
    is_needed: bool
    """Whether those hosts have a part in the cluster."""
    addresses: tuple[str, ...]


def judge_reach(findings: Findings) -> Iterator[Check]:
    """A check for each way in which a host is not reached, and one for each that reaches all."""
    callers: dict[_Failure, list[str]] = {}
    for found in findings.hosts:
        yield from _own_troubles(found)
        failures = _failures(found, findings.owners)
        for failure in failures:
            callers.setdefault(failure, []).append(found.host)
        if not failures and not found.listen_errors:
            yield from _all_well(found)
    for failure, hosts in callers.items():
        yield _unreached(failure, hosts)


def _failures(found: HostFindings, owners: Mapping[str, str]) -> list[_Failure]:
    missed: dict[tuple[str, Cause], list[str]] = {}
    for port in [] if found.dialled is None else found.dialled.unreachable:
        address = _address(port)
        key = (owners.get(address, port.machine), port.cause)
        missed.setdefault(key, []).append(address)
    return [
        _Failure(owner, cause, found.ports > 0, tuple(addresses))
        for (owner, cause), addresses in missed.items()
    ]


def _all_well(found: HostFindings) -> Iterator[Check]:
    if found.dialled is None:
        text = f"{count(found.ports, 'port')} held; no other to reach"
    elif not found.dialled.failure:
        text = f"reaches {count(found.calls, 'port')} of the tasks"
    else:
        return
    yield Check(host=found.host, subject="network", grade=Grade.OK, text=text)


def _own_troubles(found: HostFindings) -> Iterator[Check]:
    for error in found.listen_errors:
        yield Check(
            host=found.host,
            subject="network",
            grade=Grade.FAILED,
            text=cause_text(error),
            advice="does another program listen there?",
        )
    if found.dialled is not None and found.dialled.failure:
        yield Check(
            host=found.host,
            subject="network",
            grade=Grade.WARNING,
            text=f"it could not try to reach the others: {cause_text(found.dialled.failure)}",
            advice="is the host overloaded?",
        )


def _unreached(failure: _Failure, callers: Sequence[str]) -> Check:
    why = cause_text(failure.cause)
    who, where = some(callers), some(failure.addresses)
    return Check(
        host=failure.owner,
        subject="network",
        # An evaluator alone takes part in no cluster.
        grade=Grade.FAILED if failure.is_needed else Grade.WARNING,
        text=f"{who} cannot reach {failure.owner} at {where}: {why}",
        advice=cause_advice(failure.cause),
        dialled_from=tuple(callers),
        addresses=failure.addresses,
    )


def _address(port: Unreachable) -> str:
    machine = f"[{port.machine}]" if ":" in port.machine else port.machine
    return f"{machine}:{port.port}"
