"""Specs written short, and the plans that are made of them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from distrun import plan
from distrun.errors import InvalidSpecError
from distrun.plan import HostFacts, Plan, TaskPlan
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import ProgramKind, ProgramSpec, RoleSpec, Spec
from distrun.strategies import STRATEGIES, Role
from distrun.words.causes import cause_text

MWM = "multi_worker_mirrored"
PS = "parameter_server"
SCRIPT = ProgramSpec(kind=ProgramKind.SCRIPT, target="/src/main.py", workdir="/src")
FACTS = HostFacts(cores=4.0, python="/usr/bin/python3", environ={}, libc="glibc 2.36")
A, B = HostSpec(name="a"), HostSpec(name="b")


def role(name: str, count: int = 1, **options: Any) -> RoleSpec:
    if "addresses" in options:
        count = len(options["addresses"])
    return RoleSpec(role=Role(name), count=count, **options)


def spec_of(*roles: RoleSpec, strategy: str = MWM, **options: Any) -> Spec:
    fields = {"program": SCRIPT, "success": STRATEGIES[strategy].success, **options}
    return Spec(name="job", strategy=strategy, roles=roles, **fields)


def script_in(folder: Path, **options: Any) -> ProgramSpec:
    """The script train.py in a folder that other hosts are sent."""
    places = {"target": str(folder / "train.py"), "workdir": str(folder), "sync_base": str(folder)}
    return ProgramSpec(kind=ProgramKind.SCRIPT, **{**places, **options})


@contextmanager
def refused(words: str) -> Iterator[pytest.ExceptionInfo[InvalidSpecError]]:
    """Expect that no plan can be made, for a reason that has these words."""
    with pytest.raises(InvalidSpecError) as raised:
        yield raised
    assert re.search(words, cause_text(raised.value.as_cause()))


def planned(spec: Spec, facts: HostFacts | Mapping[str, HostFacts] = FACTS) -> Plan:
    """The plan with ports 20001, 20002, ... on each host."""
    placement = plan.place(spec)
    needs = plan.ports_needed(spec, placement)
    free = {host: range(20001, 20001 + need.free) for host, need in needs.items()}
    hosts = {placed.host.name for placed in placement}
    by_host = facts if isinstance(facts, Mapping) else dict.fromkeys(hosts, facts)
    return plan.make(spec, placement, by_host, free)


def task(made: Plan, name: str) -> TaskPlan:
    return next(each for each in made.tasks if each.name == name)
