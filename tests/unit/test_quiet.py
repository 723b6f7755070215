"""When a job is quiet: no task prints, reports progress or uses the processor."""

from __future__ import annotations

import pytest

from distrun.supervisor.quiet import QUIET_SECONDS, SUSPECT_SECONDS, QuietWatch
from harness.loops import SimulatedLoop
from harness.values import not_none

BUSY = 0.5
HANGS = 0.002
"""Shares of a core that a task uses: when it computes, and when TensorFlow waits."""


class Tasks:
    """Two tasks at a time of their own, whose hosts answer at once."""

    def __init__(self) -> None:
        self.loop, self.is_running = SimulatedLoop(), True
        self.sizes = {"worker:0": 0, "worker:1": 0}
        self.shares = {"worker:0": HANGS, "worker:1": HANGS}
        self.measured = 0
        self.answering = ["worker:0", "worker:1"]
        self.watch = QuietWatch(
            *(self.loop, self.sizes.__getitem__, self.measure),
            lambda: {*self.sizes} if self.is_running else set(),
        )

    @property
    def now(self) -> float:
        return self.loop.time

    def measure(self) -> None:
        self.measured += 1
        for task in self.answering:  # each on a host of its own
            self.watch.record_cpu({task: self.now * self.shares[task]})

    def wait(self, seconds: float, *, running: bool = True) -> float | None:
        """Check whenever it is due. Returns when the job was called quiet, if it was."""
        self.is_running, end = running, self.now + seconds
        while not_none(self.loop.next_call) <= end:
            self.loop.call_next()
            if self.watch.is_quiet:
                return self.now
        self.loop.time = end
        return None


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


def test_a_job_that_does_nothing_is_quiet_after_two_minutes(tasks: Tasks) -> None:
    found = tasks.wait(600.0)
    assert found is not None
    assert QUIET_SECONDS <= found <= QUIET_SECONDS * 1.5
    assert tasks.measured == 2


@pytest.mark.parametrize("task", ["worker:0", "worker:1"])
def test_a_task_that_computes_in_silence_is_not(tasks: Tasks, task: str) -> None:
    tasks.shares[task] = BUSY
    assert tasks.wait(3600.0) is None
    assert tasks.measured < 3600.0 / QUIET_SECONDS * 3


@pytest.mark.parametrize(("share", "is_quiet"), [(0.009, True), (0.012, False)])
def test_a_task_is_idle_that_uses_less_than_a_hundredth_of_a_core(
    tasks: Tasks, share: float, is_quiet: bool
) -> None:
    tasks.shares["worker:1"] = share
    assert (tasks.wait(3600.0) is not None) is is_quiet


def test_a_line_now_and_then_is_enough(tasks: Tasks) -> None:
    for _ in range(20):
        assert tasks.wait(100.0) is None
        tasks.sizes["worker:1"] += 5
    assert tasks.wait(600.0) is not None


def test_a_host_that_does_not_answer_may_have_a_busy_task(tasks: Tasks) -> None:
    tasks.answering.remove("worker:1")
    assert tasks.wait(3600.0) is None


def test_a_suspect_is_given_less_time(tasks: Tasks) -> None:
    tasks.watch.limit(SUSPECT_SECONDS)
    found = tasks.wait(600.0)
    assert found is not None
    assert found <= 2 * SUSPECT_SECONDS


def test_progress_is_enough(tasks: Tasks) -> None:
    for _ in range(20):
        assert tasks.wait(100.0) is None
        tasks.watch.record_sign()


def test_a_job_that_does_not_run_is_not_quiet(tasks: Tasks) -> None:
    assert tasks.wait(3600.0, running=False) is None
    assert tasks.measured == 0
