"""`program.memory`: which tasks keep the memory that they free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distrun.spec.model import Memory

from .plans import FACTS, MWM, PS, SCRIPT, A, planned, role, spec_of

VARIABLE = "GLIBC_TUNABLES"
WORKERS, PAIR = (role("worker", 2),), ["worker:0", "worker:1"]


def keepers(*roles: Any, facts: Any = FACTS, strategy: str = MWM, **program: Any) -> list[str]:
    spec = spec_of(*roles, strategy=strategy, program=replace(SCRIPT, **program))
    return [each.name for each in planned(spec, facts).tasks if VARIABLE in each.env]


@pytest.mark.parametrize(
    ("roles", "strategy", "memory", "expected"),
    [
        (WORKERS, MWM, None, PAIR),
        (WORKERS, MWM, Memory.KEEP, PAIR),
        (WORKERS, MWM, Memory.SYSTEM, []),
        ((role("worker"),), MWM, None, []),
        ((role("worker"),), "mirrored", Memory.KEEP, ["worker:0"]),
        ((role("worker"), role("server")), "default", None, []),
        ((role("chief"), role("worker"), role("evaluator")), MWM, None, ["chief:0", "worker:0"]),
        ((role("chief"), role("worker"), role("ps"), role("evaluator")), PS, None,
         ["chief:0", "worker:0", "ps:0"]),
        ((role("worker", 2), role("data", in_tf_config=False)), MWM, None, PAIR),
    ],
)  # fmt: skip
def test_members_of_a_cluster_of_several_keep_memory(
    roles: Any, strategy: str, memory: Memory | None, expected: list[str]
) -> None:
    assert keepers(*roles, strategy=strategy, memory=memory) == expected


@pytest.mark.parametrize(
    ("libc", "threshold"),
    [
        ("glibc 2.36", 1 << 30),
        ("glibc 2.35", 1 << 30),
        ("glibc 3.0", 1 << 30),
        # an older one ignores a higher threshold, and maps each block from 128 KiB on
        ("glibc 2.34", 32 << 20),
        ("glibc 2.26", 32 << 20),
        ("glibc 2.25", None),
        ("glibc 2.9", None),
        ("", None),
        ("musl 2.36", None),
        ("glibc", None),
    ],
)
def test_the_hosts_c_library_decides(libc: str, threshold: int | None) -> None:
    made = planned(spec_of(*WORKERS), replace(FACTS, libc=libc))
    value = made.tasks[0].env.get(VARIABLE)
    found = dict(each.split("=") for each in value.split(":")) if value else {}
    assert found.get("glibc.malloc.mmap_threshold") == (threshold and str(threshold))
    assert ("glibc.malloc.hugetlb" in found) == (threshold == 1 << 30), "new in 2.35"


@pytest.mark.parametrize(("cores", "arenas"), [(0.5, 2), (1.0, 2), (2.0, 2), (7.5, 7), (64.0, 64)])
def test_no_thread_waits_for_another_ones_arena(cores: float, arenas: int) -> None:
    made = planned(spec_of(*WORKERS), replace(FACTS, cores=cores))
    assert f"glibc.malloc.arena_max={arenas}" in made.tasks[0].env[VARIABLE].split(":")


@pytest.mark.parametrize(
    "name", [VARIABLE, "LD_PRELOAD", "MALLOC_ARENA_MAX", "MALLOC_CONF", "MALLOC_TRIM_THRESHOLD_"]
)
def test_who_has_settings_for_malloc_keeps_them(name: str) -> None:
    theirs = {name: ""}
    assert keepers(*WORKERS, facts=replace(FACTS, environ=theirs)) == []
    assert keepers(*WORKERS, pass_env=(name,)) == []
    of_program = spec_of(*WORKERS, program=replace(SCRIPT, env=theirs))
    of_role = spec_of(role("worker", 2, env=theirs))
    for spec in (of_program, of_role, spec_of(*WORKERS, hosts=(replace(A, env=theirs),))):
        assert [each.env.get(VARIABLE, "") for each in planned(spec, FACTS).tasks] == ["", ""]
    other = {"MALLOCATOR": "1", "PRELOAD": "1", "MY_MALLOC_CONF": "1"}
    assert keepers(*WORKERS, facts=replace(FACTS, environ=other)) == PAIR
