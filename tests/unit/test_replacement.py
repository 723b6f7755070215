"""Spare hosts in the spec, and the placement of tasks after hosts were lost.

A spare that takes a place, and workers that grow back, are in tests/world/test_replacements.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from distrun.frozen import replace
from distrun.plan import Placed, place, place_again, room_of_hosts
from distrun.spec.model import HostSpec, RestartSpec, Spec

from .plans import role, spec_of
from .specs import load_text, refusal

HOSTS = tuple(HostSpec(name=name) for name in "abc")
SPARE = HostSpec(name="s", spare=True)


def again(spec: Spec, lost: str, moving: str = "", before: tuple[Placed, ...] = ()) -> str | None:
    """Where the tasks are once hosts are lost, like `worker:0=a`; None: there is no room."""
    present = before or place(spec)
    rooms = {host: room for host, room in room_of_hosts(spec).items() if host not in lost}
    names = moving.split() or [placed.name for placed in present]
    placed = place_again(spec, present, names, rooms)
    return None if placed is None else " ".join(f"{p.name}={p.host.name}" for p in placed)


def test_a_host_with_slots_has_room_but_one_without_is_full() -> None:
    spec = spec_of(role("worker", 3), hosts=(replace(HOSTS[0], slots=2), *HOSTS[1:]))
    three = tuple(
        replace(placed, host=host) for placed, host in zip(place(spec), HOSTS, strict=True)
    )
    assert again(spec, "b", before=three) == "worker:0=a worker:1=a worker:2=c"
    assert again(replace(spec, hosts=HOSTS), "b") is None


def test_fewer_workers_are_numbered_without_gaps_and_the_chief_stays() -> None:
    one = RestartSpec(min_workers=1)
    spec = spec_of(role("chief"), role("worker", 2), hosts=HOSTS, restart=one)
    assert again(spec, "a") == "chief:0=c worker:0=b"
    assert again(spec, "b") == "chief:0=a worker:0=c"
    assert again(spec, "bc") is None


def test_a_task_with_an_address_of_its_own_stays_where_it_is() -> None:
    spec = spec_of(role("worker", addresses=("a:1", "b:1")), hosts=(*HOSTS[:2], SPARE))
    assert again(spec, "b") is None


SPEC = """\
strategy: multi_worker_mirrored
cluster: {worker: 2}
program: {command: ["true"]}
"""


@pytest.mark.parametrize(
    ("more", "spares"),
    [
        ("hosts: [h1, h2, {name: h3, spare: true}]", ["h3"]),
        ('hosts: ["h[1-4]"]\nspares: 2', ["h3", "h4"]),
        ('hosts: [h1, {name: "g[1-3]", spares: 2}]', ["g2", "g3"]),
        ("hosts: [h1, h2, h3]\nspares: 1", ["h3"]),
    ],
)
def test_spares_of_the_spec(folder: Path, more: str, spares: list[str]) -> None:
    assert [host.name for host in load_text(folder, SPEC + more).spares] == spares


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("hosts: [h1, h2]\nspares: 2", "job.yaml:5:1: all hosts are spares"),
        ("hosts: [{name: h1, spare: true}]", "job.yaml:4:1: the only host is a spare"),
        ('hosts: [{name: "h[1-2]", spares: 3}]', "job.yaml:4:34: 2 hosts cannot have 3 spares"),
        ("spares: 1", "job.yaml:4:1: spares are among the hosts"),
        ("restart: {min_workers: 3}", "job.yaml:4:24: restart.min_workers is 3, and cluster has 2"),
    ],
)
def test_wrong_spares_are_named_with_their_place(folder: Path, more: str, problem: str) -> None:
    assert problem in str(refusal(folder, SPEC + more))
