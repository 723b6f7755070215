"""What counts as progress, and when there has been too little of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from distrun.supervisor.stall import StallWatch

STALL = 100.0


class Tasks:
    """What two tasks have come to, at a time of their own."""

    names = ("worker:0", "worker:1")

    def __init__(self) -> None:
        self.now = 0.0
        self.sizes: Counter[str] = Counter()
        self.watch = StallWatch(STALL, self.sizes.__getitem__, lambda: self.now)
        self.wait: float | None = self.watch.start(self.names)

    def stall_at(self, until: float, each: float = 0.0, *, what: str = "") -> float | None:
        """Looks whenever it is due; meanwhile something happens each so many seconds."""
        happened = self.now
        while self.wait is not None and self.now < until:
            self.now += self.wait
            while each and happened + each <= self.now:
                happened += each
                self.happen(what, int(happened))
            self.wait = self.watch.check()
        return None if self.wait is not None else self.now

    def happen(self, what: str, number: int) -> None:
        if what == "line":
            self.sizes["worker:1"] += len("a line\n")
        else:
            self.watch.record("worker:0", str(number) if what == "step" else "7")


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


@pytest.mark.parametrize("what", ["line", "step"])
def test_lines_and_steps_are_progress(tasks: Any, what: str) -> None:
    assert tasks.stall_at(1000.0, 90.0, what=what) is None
    since = tasks.now
    found = tasks.stall_at(2000.0)
    assert found is not None
    assert STALL - 90.0 <= found - since <= STALL * 1.25


def test_the_same_step_again_is_no_progress(tasks: Any) -> None:
    assert tasks.stall_at(1000.0, 10.0, what="same step") == pytest.approx(STALL, abs=25.0)


def test_once_there_are_steps_lines_are_no_progress(tasks: Any) -> None:
    tasks.watch.record("worker:0", "1")
    assert tasks.stall_at(1000.0, 10.0, what="line") == STALL


def test_a_new_attempt_may_print_again_before_its_first_step(tasks: Any) -> None:
    tasks.watch.record("worker:0", "1")
    tasks.now = 90.0
    tasks.wait = tasks.watch.start(tasks.names)
    assert tasks.stall_at(500.0, 30.0, what="line") is None


def test_steps_of_a_task_that_is_not_waited_for_do_not_count(tasks: Any) -> None:
    tasks.watch.record("evaluator:0", "1")
    assert tasks.stall_at(1000.0) == STALL


def test_while_a_host_is_out_of_reach_nothing_is_known(tasks: Any) -> None:
    tasks.now = 99.0
    assert tasks.watch.check(are_linked=False) is not None
    tasks.now = 198.0
    assert tasks.watch.check() == pytest.approx(1.0)


def test_the_steps_of_a_task_that_has_exited_are_forgotten(tasks: Any) -> None:
    tasks.watch.record("worker:0", "1")
    tasks.now = 90.0
    tasks.watch.forget("worker:0")
    assert tasks.stall_at(1000.0, 30.0, what="line") is None
    since = tasks.now
    found = tasks.stall_at(2000.0)
    assert found is not None
    assert found - since <= STALL * 1.25


def test_the_end_of_a_bar_is_progress_and_lines_count_again(tasks: Any) -> None:
    tasks.watch.record("worker:0", "1")
    tasks.now = 90.0
    tasks.watch.record("worker:0", "1", is_moving=False)
    tasks.wait = tasks.watch.check()
    assert tasks.stall_at(1000.0, 30.0, what="line") is None
