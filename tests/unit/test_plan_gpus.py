"""Which GPUs each task of a plan sees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrun.errors import InvalidSpecError
from distrun.spec.model import HostSpec, Spec

from .plans import FACTS, PS, SCRIPT, A, B, planned, refused, role, spec_of

CLUSTER = spec_of(role("chief"), role("worker", 2), role("ps"), role("evaluator"), strategy=PS)
SHARED = spec_of(role("worker", 3), role("evaluator"))
ONE, TWO = role("worker"), role("worker", 2)
NAMED = (HostSpec(gpus=(2, 3)),)
CASES: dict[str, tuple[Spec, str, str]] = {
    "workers share them evenly and servers have none": (
        CLUSTER, "0 1 2 3 4 5 6",
        "chief:0=0,1 worker:0=2,3 worker:1=4,5 ps:0=-1 evaluator:0=-1"),
    "more tasks than GPUs": (
        SHARED, "0 1", "worker:0=0 worker:1=1 worker:2=0 evaluator:0=-1"),
    "what a role asks for it gets, and the others the rest": (
        spec_of(role("chief", gpus=2), TWO, role("evaluator", gpus=1)), "0 1 2 3 4",
        "chief:0=0,1 worker:0=3 worker:1=4 evaluator:0=2"),
    "none for two": (spec_of(role("worker", 2, gpus=0)), "0", "worker:0=-1 worker:1=-1"),
    "none for one": (spec_of(role("worker", gpus=0)), "0", "worker:0=-1"),
    "a host names its GPUs": (
        spec_of(TWO, hosts=NAMED), "0 1 2 3", "worker:0=2 worker:1=3"),
    "a host names them for one": (spec_of(ONE, hosts=NAMED), "0 1 2 3", "worker:0=2,3"),
    "CUDA's own names": (spec_of(TWO), "GPU-8932f937 MIG-GPU-1/1/0",
                         "worker:0=GPU-8932f937 worker:1=MIG-GPU-1/1/0"),
    "where nothing is said, one task alone keeps all": (spec_of(ONE), "0 1", "worker:0"),
    "without GPUs, those that never use one are told": (
        CLUSTER, "", "chief:0 worker:0 worker:1 ps:0=-1 evaluator:0=-1"),
}  # fmt: skip
"""The GPUs of the host, and what tasks see; without a value, nothing is set."""


def visible(spec: Spec, *gpus: str) -> dict[str, str | None]:
    made = planned(spec, replace(FACTS, gpus=gpus))
    return {each.name: each.env.get("CUDA_VISIBLE_DEVICES") for each in made.tasks}


@pytest.mark.parametrize("case", CASES)
def test_which_gpus_a_task_sees(case: str) -> None:
    spec, gpus, expected = CASES[case]
    seen = {name: value or None for name, _, value in (e.partition("=") for e in expected.split())}
    assert visible(spec, *gpus.split()) == seen


def test_tasks_that_share_a_gpu_leave_each_other_memory() -> None:
    def growing(spec: Spec, *gpus: str, **environ: str) -> list[str]:
        made = planned(spec, replace(FACTS, gpus=gpus, environ=environ))
        wanted = ("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        return [each.name for each in made.tasks if wanted in each.env.items()]

    assert growing(SHARED, "0", "1") == ["worker:0", "worker:2"]
    assert growing(SHARED, "0", "1", TF_FORCE_GPU_ALLOW_GROWTH="false") == []
    own = replace(SCRIPT, env={"TF_FORCE_GPU_ALLOW_GROWTH": "false"})
    assert growing(replace(SHARED, program=own), "0", "1") == []
    assert growing(SHARED, "0", "1", "2") == []
    assert growing(spec_of(TWO, hosts=(A, B)), "0") == [], "another host's 0 is another GPU"


def test_asking_for_more_than_there_is_is_an_error() -> None:
    with refused("ask for 4 GPUs, and it has 3"):
        visible(spec_of(role("worker", 2, gpus=2)), *"012")


@given(
    asked=st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=4),
    gpus=st.integers(0, 9),
)
def test_no_gpu_is_given_to_one_that_asked_and_another(asked: list[int | None], gpus: int) -> None:
    names = ("chief", "worker", "ps", "evaluator")
    roles = [role(name, gpus=each) for name, each in zip(names, asked, strict=False)]
    spec = spec_of(*roles, strategy=PS)
    numbers = [str(number) for number in range(gpus)]
    try:
        seen = visible(spec, *numbers)
    except InvalidSpecError:
        assert sum(each or 0 for each in asked) > gpus
        return
    given_out = [
        gpu
        for name, count in zip(seen, asked, strict=True)
        for gpu in (seen[name] or "").split(",")
        if count
    ]
    assert len(set(given_out)) == len(given_out) == sum(each or 0 for each in asked)
    assert {gpu for each in seen.values() if each for gpu in each.split(",")} <= {*numbers, "-1"}
