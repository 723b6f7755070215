"""From the hosts' answers to a plan, or to why there is none."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from distrun.agent.protocol import PROTOCOL, Cause, Code, Hello, PortsHeld, PortsRefused
from distrun.errors import HostError
from distrun.spec.model import HostSpec, ProgramKind, ProgramSpec, RoleSpec, Spec
from distrun.strategies import STRATEGIES, Role
from distrun.supervisor.preparation import Preparation

MWM = "multi_worker_mirrored"
SHORT = "only 0 of 1 ports from 23000 to 23000 are free"
TOO_FEW = PortsRefused([Cause(Code.TOO_FEW_FREE_PORTS, total=1, text="23000-23000")])


def preparation(hosts: list[str], **worker: Any) -> Preparation:
    """Of a job with a worker on each host; all have said hello."""
    spec = Spec(
        name="job",
        strategy=MWM,
        roles=(RoleSpec(role=Role.WORKER, count=len(hosts), **worker),),
        program=ProgramSpec(kind=ProgramKind.SCRIPT, target="/src/main.py", workdir="/src"),
        hosts=tuple(HostSpec(name=name) for name in hosts),
        success=STRATEGIES[MWM].success,
    )
    made = Preparation(spec)
    for name in hosts:
        machine = name.rpartition("=")[2]
        made.on_hello(
            name, Hello(PROTOCOL, 1, machine, "3.8.0", 1.0, [], 0.0, address=f"{machine}.net")
        )
    return made


def test_all_hosts_that_cannot_hold_their_ports_are_named() -> None:
    made = preparation(["h1", "h2", "h3"])
    assert made.on_ports("h3", TOO_FEW) is None
    assert made.on_ports("h2", PortsHeld([23000], [])) is None
    with pytest.raises(HostError) as raised:
        made.on_ports("h1", TOO_FEW)
    assert raised.value.message == f"on h1 {SHORT}; on h3 {SHORT}"
    assert raised.value.hint == "widen `ports: {range: …}`"


def test_of_many_hosts_some_are_named() -> None:
    names = [f"h{number}" for number in range(9)]
    made = preparation(names)
    for name in names[:-1]:
        assert made.on_ports(name, TOO_FEW) is None
    with pytest.raises(HostError, match="; and 6 more hosts"):
        made.on_ports(names[-1], TOO_FEW)


def test_where_descriptors_are_short_no_range_is_to_be_widened() -> None:
    made = preparation(["h1"])
    cause = Cause(Code.FREE_PORTS_NOT_HELD, total=1, errno=errno.EMFILE)
    error = made.refusal("h1", PortsRefused([cause]))
    assert error.message == "on h1 no port can be held: Too many open files"
    assert "ulimit -n" in (error.hint or "")
    cause = cause._replace(errno=errno.EPERM)
    assert made.refusal("h1", PortsRefused([cause])).hint is None


def test_another_name_of_the_same_machine_is_no_other_job() -> None:
    made = preparation(["a=m", "b=m", "c"], addresses=("a=m:23005", "b=m:23005", "c:23005"))
    refused = PortsRefused([Cause(Code.PORT_HELD_BY_JOB, port=23005)])
    error = made.refusal("b=m", refused)
    assert error.message == "port 23005 is wanted on a=m and on b=m: one machine"
    assert "name each machine once" in (error.hint or "")
    assert made.refusal("c", refused).message.endswith("another distrun job holds it")
