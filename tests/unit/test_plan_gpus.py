"""Which GPUs each task of a plan sees."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from distrun.errors import InvalidSpecError
from distrun.spec.model import (
    HostSpec,
    Spec,
)

from .plans import FACTS, PS, SCRIPT, A, B, planned, refused, role, spec_of

CLUSTER = (role("chief"), role("worker", 2), role("ps"), role("evaluator"))


def visible(spec: Spec, *gpus: str) -> dict[str, str | None]:
    made = planned(spec, replace(FACTS, gpus=gpus))
    return {each.name: each.env.get("CUDA_VISIBLE_DEVICES") for each in made.tasks}


def growing(spec: Spec, *gpus: str, **environ: str) -> list[str]:
    made = planned(spec, replace(FACTS, gpus=gpus, environ=environ))
    wanted = ("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    return [each.name for each in made.tasks if wanted in each.env.items()]


def test_workers_share_the_gpus_evenly_and_servers_have_none() -> None:
    assert visible(spec_of(*CLUSTER, strategy=PS), *"0123456") == {
        "chief:0": "0,1",
        "worker:0": "2,3",
        "worker:1": "4,5",
        "ps:0": "-1",
        "evaluator:0": "-1",
    }


def test_more_tasks_than_gpus_share_them_and_leave_each_other_memory() -> None:
    spec = spec_of(role("worker", 3), role("evaluator"))
    assert visible(spec, "0", "1") == {
        "worker:0": "0",
        "worker:1": "1",
        "worker:2": "0",
        "evaluator:0": "-1",
    }
    assert growing(spec, "0", "1") == ["worker:0", "worker:2"]
    assert growing(spec, "0", "1", TF_FORCE_GPU_ALLOW_GROWTH="false") == []
    own = replace(SCRIPT, env={"TF_FORCE_GPU_ALLOW_GROWTH": "false"})
    assert growing(replace(spec, program=own), "0", "1") == []
    assert growing(spec, "0", "1", "2") == []


def test_what_a_role_asks_for_it_gets_and_the_others_the_rest() -> None:
    spec = spec_of(role("chief", gpus=2), role("worker", 2), role("evaluator", gpus=1))
    assert visible(spec, *"01234") == {
        "chief:0": "0,1",
        "worker:0": "3",
        "worker:1": "4",
        "evaluator:0": "2",
    }
    assert visible(spec_of(role("worker", 2, gpus=0)), "0") == {"worker:0": "-1", "worker:1": "-1"}
    assert visible(spec_of(role("worker", gpus=0)), "0") == {"worker:0": "-1"}


def test_asking_for_more_than_there_is_is_an_error() -> None:
    with refused("ask for 4 GPUs, and it has 3"):
        visible(spec_of(role("worker", 2, gpus=2)), *"012")


def test_a_host_may_name_its_gpus_and_cuda_may_have_names_for_them() -> None:
    one = HostSpec(gpus=(2, 3))
    assert visible(spec_of(role("worker", 2), hosts=(one,)), *"0123") == {
        "worker:0": "2",
        "worker:1": "3",
    }
    assert visible(spec_of(role("worker"), hosts=(one,)), *"0123") == {"worker:0": "2,3"}
    names = ("GPU-8932f937", "MIG-GPU-1/1/0")
    assert visible(spec_of(role("worker", 2)), *names) == dict(
        zip(("worker:0", "worker:1"), names, strict=True)
    )


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


def test_where_nothing_is_said_one_task_alone_keeps_all() -> None:
    assert visible(spec_of(role("worker")), "0", "1") == {"worker:0": None}


def test_without_gpus_only_those_that_never_use_one_are_told() -> None:
    seen = visible(spec_of(*CLUSTER, strategy=PS))
    assert seen["worker:0"] is None
    assert (seen["ps:0"], seen["evaluator:0"]) == ("-1", "-1")


def test_a_gpu_of_the_same_number_on_another_host_is_another_gpu() -> None:
    assert growing(spec_of(role("worker", 2), hosts=(A, B)), "0") == []
