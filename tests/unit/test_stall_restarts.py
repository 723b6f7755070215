"""A stall as the pure lifecycle takes it: what starts again, and when the next one counts."""

from __future__ import annotations

import pytest

from distrun.lifecycle import (
    CancelTimer,
    SetTimer,
    StopTask,
)
from distrun.spec.model import RestartSpec

from .histories import (
    MWM,
    PS,
    backoff_over,
    restartable,
    running,
    starts,
    timer,
)

W = ("worker:0", "worker:1", "worker:2")
CLUSTER = ("chief:0", "worker:0", "worker:1", "ps:0")


def test_a_stall_starts_the_group_again_and_each_attempt_has_all_of_its_time() -> None:
    job = running(MWM, *W, "evaluator:0", restart=RestartSpec(max=1), stall_timeout=60.0)
    actions = job.timed_out("stall")
    assert [each.task for each in actions if isinstance(each, StopTask)] == list(W)
    assert {each.signal for each in actions if isinstance(each, StopTask)} == {6}
    assert CancelTimer(timer("stall")) in actions
    for name in W:
        job.gone(name, signal=6)
    assert starts(backoff_over(job)) == [(name, 1) for name in W]
    assert SetTimer(timer("stall"), 60.0) in job.started(*W)
    job.timed_out("stall")
    assert job.verdict == ("failed", 75, "distrun")


@pytest.mark.parametrize("strategy", [MWM, PS])
def test_a_task_that_starts_again_alone_begins_no_new_wait_for_progress(strategy: str) -> None:
    names = (*CLUSTER, "evaluator:0") if strategy == PS else (*W, "evaluator:0")
    job = restartable(strategy, *names, max=3, stall_timeout=30.0)
    for name in ("evaluator:0", *(["worker:1"] if strategy == PS else [])):
        job.gone(name, 1)
        backoff_over(job)
        job.actions.clear()
        job.started(name)
        assert not [each for each in job.actions if getattr(each, "timer", None) == timer("stall")]


def test_a_stall_of_parameter_servers_is_the_whole_groups() -> None:
    job = running(PS, *CLUSTER, restart=RestartSpec(max=1), stall_timeout=60.0)
    assert sorted(
        each.task for each in job.timed_out("stall") if isinstance(each, StopTask)
    ) == sorted(CLUSTER)
