"""Who reaches whom: calls that failed, those that failed alike together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrun.preflight.checks import Check, Grade
from distrun.preflight.words import count, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distrun.agent.protocol.probe_messages import Unreachable
    from distrun.preflight.findings import Findings, HostFindings

_ALLOW = (
    "let the hosts reach each other's ports by TCP; `ports: {range: 20000-21000}` keeps them in a "
    "range that a firewall can allow"
)
_ADDRESS = "perhaps that address does not lead there: `address:` of a host names another"
_MEANINGS = {
    "refused": (
        "refused: a firewall rejects it, or it is not that host's address",
        f"{_ALLOW}; {_ADDRESS}",
    ),
    "timeout": (
        "no answer within {seconds:g} s: a firewall drops it, or nothing has that address",
        f"{_ALLOW}; {_ADDRESS}",
    ),
    "no route": (
        "there is no way to it ({detail}): a firewall rejects it, or the networks are not joined",
        f"{_ALLOW}; {_ADDRESS}",
    ),
    "unresolved": (
        "the name cannot be looked up there ({detail})",
        "name it in DNS or in /etc/hosts on every host, or give the hosts' `address:`",
    ),
    "silent": (
        "the call is taken, and nothing of this job answers{because}",
        f"something in between takes connections, a proxy or a gateway for one; {_ADDRESS}",
    ),
    "stranger": ("another program answers there", _ADDRESS),
    "failed": ("{detail}", _ADDRESS),
}


@dataclass(frozen=True)
class _Failure:
    """How some hosts do not reach another, the same way and at the same addresses."""

    owner: str
    kind: str
    detail: str
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
        if not failures and not found.deaf:
            yield from _all_well(found)
    for failure, hosts in callers.items():
        yield _unreached(failure, hosts, findings.seconds)


def _failures(found: HostFindings, owners: Mapping[str, str]) -> list[_Failure]:
    missed: dict[tuple[str, str, str], list[str]] = {}
    for miss in [] if found.dialled is None else found.dialled.misses:
        address = _address(miss)
        kind = (owners.get(address, miss.machine), miss.kind, miss.detail)
        missed.setdefault(kind, []).append(address)
    return [
        _Failure(owner, kind, detail, found.ports > 0, tuple(addresses))
        for (owner, kind, detail), addresses in missed.items()
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
    for port, why in found.deaf.items():
        yield Check(
            host=found.host,
            subject="network",
            grade=Grade.FAILED,
            text=f"port {port} cannot be listened on: {why}",
            advice="does another program listen there?",
        )
    if found.dialled is not None and found.dialled.failure:
        yield Check(
            host=found.host,
            subject="network",
            grade=Grade.WARNING,
            text=f"it could not try to reach the others: {found.dialled.failure}",
            advice="is the host overloaded?",
        )


def _unreached(failure: _Failure, callers: Sequence[str], seconds: float) -> Check:
    meaning, advice = _MEANINGS.get(failure.kind, _MEANINGS["failed"])
    why = meaning.format(
        seconds=seconds,
        detail=failure.detail or failure.kind,
        because=f" ({failure.detail})" if failure.detail else "",
    )
    who, where = some(callers), some(failure.addresses)
    return Check(
        host=failure.owner,
        subject="network",
        # An evaluator alone takes part in no cluster.
        grade=Grade.FAILED if failure.is_needed else Grade.WARNING,
        text=f"{who} cannot reach {failure.owner} at {where}: {why}",
        advice=advice,
        dialled_from=tuple(callers),
        addresses=failure.addresses,
    )


def _address(miss: Unreachable) -> str:
    machine = f"[{miss.machine}]" if ":" in miss.machine else miss.machine
    return f"{machine}:{miss.port}"
