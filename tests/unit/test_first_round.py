"""From the hosts' answers to a plan, or to why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distrun.agent.protocol import PROTOCOL, Cause, Code, Hello, PortsHeld, PortsRefused
from distrun.errors import DistrunError, HostError
from distrun.spec.model import HostSpec
from distrun.supervisor.job_hosts import JobHosts
from distrun.supervisor.round import Round
from distrun.words.causes import cause_advice, cause_text

from .plans import role, spec_of

SHORT = "only 0 of 1 ports from 23000 to 23000 are free"
TOO_FEW = PortsRefused([Cause(Code.TOO_FEW_FREE_PORTS, total=1, text="23000-23000")])


def preparation(hosts: list[str], **worker: Any) -> Round:
    """Of a job with a worker on each host; all have said hello."""
    roles = role("worker", len(hosts), **worker)
    spec = spec_of(roles, hosts=tuple(HostSpec(name=name) for name in hosts))
    made = Round(JobHosts(spec, lambda _host, _order: None, Path("/record")))
    for name in hosts:
        machine = name.rpartition("=")[2]
        hello = Hello(PROTOCOL, 1, machine, "3.8.0", 1.0, [], 0.0, address=f"{machine}.net")
        made.hosts.add_hello(name, hello)
        made.receive(name, hello)
    return made


def words(error: DistrunError | None) -> tuple[str, str | None]:
    """What is shown of an error, and the hint."""
    assert isinstance(error, HostError)
    cause = error.as_cause()
    return cause_text(cause), cause_advice(cause)


def test_all_hosts_that_cannot_hold_their_ports_are_named() -> None:
    made = preparation(["h1", "h2", "h3"])
    made.receive("h3", TOO_FEW)
    made.receive("h2", PortsHeld([23000], []))
    assert not made.is_finished
    made.receive("h1", TOO_FEW)
    message, hint = words(made.error)
    assert message == f"on h1 {SHORT}; on h3 {SHORT}"
    assert hint == "widen `ports: {range: …}`"


def test_another_name_of_the_same_machine_is_no_other_job() -> None:
    made = preparation(["a=m", "b=m", "c"], addresses=("a=m:23005", "b=m:23005", "c:23005"))
    refused = PortsRefused([Cause(Code.PORT_HELD_BY_JOB, port=23005)])
    cause = made.hosts.ports_refused("b=m", refused)
    assert cause_text(cause) == "port 23005 is wanted on a=m and on b=m: one machine"
    assert "name each machine once" in (cause_advice(cause) or "")
    other = cause_text(made.hosts.ports_refused("c", refused))
    assert other.endswith("another distrun job holds it")
