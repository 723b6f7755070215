"""Checks whether hosts reach each other's ports. Equal failures of several hosts are one check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code, Subject
from distrun.preflight.checks import Check, Grade

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distrun.agent.protocol.probe_messages import Unreachable
    from distrun.preflight.answers import Answers, HostAnswers

_Failure = tuple[str, Cause, bool]
"""A host that is not reached, why and where, and whether the callers belong to the cluster."""


def check_network(answers: Answers) -> Iterator[Check]:
    """A check for each way in which a host is not reached, and for each host that reaches all."""
    callers: dict[_Failure, list[str]] = {}
    for each in answers.hosts:
        yield from _check_own_ports(each)
        failures = _failures(each, answers.owners)
        for failure in failures:
            callers.setdefault(failure, []).append(each.host)
        if not failures and not each.listen_errors:
            yield from _check_success(each)
    for (owner, cause, is_needed), hosts in callers.items():
        # An evaluator alone takes no part in a cluster.
        grade = Grade.FAILED if is_needed else Grade.WARNING
        yield _check(owner, grade, cause._replace(hosts=tuple(hosts)))


def _failures(answers: HostAnswers, owners: Mapping[str, str]) -> list[_Failure]:
    addresses: dict[tuple[str, Cause], list[str]] = {}
    for port in [] if answers.dialled is None else answers.dialled.unreachable:
        address = _address(port)
        key = (owners.get(address, port.machine), port.cause)
        addresses.setdefault(key, []).append(address)
    return [
        (
            owner,
            Cause(Code.PORTS_UNREACHABLE, host=owner, addresses=tuple(each), within=(cause,)),
            answers.ports > 0,
        )
        for (owner, cause), each in addresses.items()
    ]


def _check_success(answers: HostAnswers) -> Iterator[Check]:
    if answers.dialled is None:
        yield _check(answers.host, Grade.OK, Cause(Code.PORTS_HELD, count=answers.ports))
    elif answers.dialled.failure is None:
        yield _check(answers.host, Grade.OK, Cause(Code.PORTS_REACHED, count=answers.calls))


def _check_own_ports(answers: HostAnswers) -> Iterator[Check]:
    for error in answers.listen_errors:
        yield _check(answers.host, Grade.FAILED, error)
    if answers.dialled is not None and answers.dialled.failure is not None:
        cause = Cause(Code.PORTS_NOT_DIALLED, within=(answers.dialled.failure,))
        yield _check(answers.host, Grade.WARNING, cause)


def _check(host: str, grade: Grade, cause: Cause) -> Check:
    return Check(host=host, subject=Subject.NETWORK, grade=grade, cause=cause)


def _address(port: Unreachable) -> str:
    machine = f"[{port.machine}]" if ":" in port.machine else port.machine
    return f"{machine}:{port.port}"
