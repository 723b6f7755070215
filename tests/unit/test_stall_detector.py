"""What counts as a sign of life of a job's tasks, and when there has been none for too long."""

from collections.abc import Callable

import pytest

from harness.loops import SimulatedLoop
from harness.parts.supervisor import QUIET_SECONDS, SUSPECT_SECONDS, StallDetector
from harness.values import not_none

STALL = 100.0
BUSY = 0.5
HANGS = 0.002
"""Shares of a core that a task uses: when it computes, and when TensorFlow waits."""


class Tasks:
    """Two tasks at a time of their own, whose hosts answer at once."""

    def __init__(self, stall: float | None) -> None:
        self.loop, self.is_known, self.is_between = SimulatedLoop(), True, False
        self.sizes = {"worker:0": 0, "worker:1": 0}
        self.shares = dict.fromkeys(self.sizes, HANGS)
        self.measured = 0
        self.answering = [*self.sizes]
        self.changes: list[bool] = []
        self.signs = StallDetector(
            *(self.loop, stall, self.sizes.__getitem__),
            lambda: [*self.sizes] if self.is_known else [],
            self.measure,
            self.changes.append,
            lambda: self.is_between,
            lambda: [each for each in self.sizes if each != "evaluator:0"],
        )
        self.signs.start()

    @property
    def now(self) -> float:
        return self.loop.time

    def measure(self) -> None:
        self.measured += 1
        for task in self.answering:  # each on a host of its own
            self.signs.record_cpu({task: self.now * self.shares[task]})

    def wait(self, seconds: float) -> float | None:
        """Let time pass. Returns when the tasks were called silent, if they were."""
        end = self.now + seconds
        while not_none(self.loop.next_call) <= end:
            self.loop.call_next()
            if self.signs.are_silent:
                return self.now
        self.loop.time = end
        return None

    def wait_with(self, what: str, each: float) -> float | None:
        """Wait for long; meanwhile something happens each so many seconds."""
        for number in range(20):
            found = self.wait(each)
            if found is not None:
                return found
            if what == "line":
                self.sizes["worker:1"] += len("a line\n")
            else:
                self.signs.record("worker:0", str(number) if what == "step" else "7")
        return None


@pytest.fixture
def stalling() -> Tasks:
    return Tasks(STALL)


@pytest.fixture
def quiet() -> Tasks:
    """Without `timeouts.stall`."""
    return Tasks(None)


@pytest.mark.parametrize("what", ["line", "step"])
def test_lines_and_steps_are_progress(stalling: Tasks, what: str) -> None:
    assert stalling.wait_with(what, 90.0) is None
    since = stalling.now
    assert STALL - 90.0 <= not_none(stalling.wait(1000.0)) - since <= STALL * 1.25
    assert stalling.changes == [True]


@pytest.mark.parametrize("what", ["same step", "line"])
def test_the_same_step_and_lines_beside_steps_are_no_progress(stalling: Tasks, what: str) -> None:
    stalling.signs.record("worker:0", "7")
    assert stalling.wait_with(what, 10.0) == STALL


@pytest.mark.parametrize(
    "is_over",
    [
        lambda signs: signs.start(),  # a new attempt
        lambda signs: signs.end("worker:0"),  # it has exited
        lambda signs: signs.record("worker:0", "1", is_moving=False),  # a bar has ended
    ],
)
def test_lines_count_after_steps(stalling: Tasks, is_over: Callable[[StallDetector], None]) -> None:
    stalling.signs.record("worker:0", "1")
    stalling.wait(90.0)
    is_over(stalling.signs)
    assert stalling.wait_with("line", 30.0) is None
    since = stalling.now
    assert not_none(stalling.wait(1000.0)) - since <= STALL * 1.25


def test_while_a_host_is_out_of_reach_nothing_is_known(stalling: Tasks) -> None:
    stalling.is_known = False
    assert stalling.wait(1000.0) is None
    stalling.is_known = True
    since = stalling.now
    assert STALL / 2 < not_none(stalling.wait(1000.0)) - since <= STALL


def test_nothing_is_watched_once_it_is_stopped(stalling: Tasks) -> None:
    assert stalling.wait(1000.0) is not None
    stalling.signs.stop()
    assert stalling.loop.next_call is None
    stalling.signs.start()
    assert not stalling.signs.are_silent


# Without timeouts.stall --------------------------------------------------------------------


@pytest.mark.parametrize("task", ["worker:0", "worker:1"])
@pytest.mark.parametrize(("share", "is_quiet"), [(0.009, True), (0.012, False), (BUSY, False)])
def test_who_is_idle(quiet: Tasks, task: str, share: float, is_quiet: bool) -> None:
    quiet.shares[task] = share
    assert (quiet.wait(3600.0) is not None) is is_quiet
    assert quiet.measured < 3600.0 / QUIET_SECONDS * 3


@pytest.mark.parametrize("what", ["line", "same step"])
def test_a_line_or_a_report_now_and_then_is_enough(quiet: Tasks, what: str) -> None:
    assert quiet.wait_with(what, 100.0) is None
    assert quiet.wait(600.0) is not None


def test_a_host_that_does_not_answer_may_have_a_busy_task(quiet: Tasks) -> None:
    quiet.answering.remove("worker:1")
    assert quiet.wait(3600.0) is None


def test_a_job_that_does_not_run_is_not_quiet_and_a_suspect_has_less_time(quiet: Tasks) -> None:
    quiet.signs.limit(SUSPECT_SECONDS)
    quiet.is_known = False
    assert quiet.wait(3600.0) is None
    assert quiet.measured == 0
    quiet.is_known = True
    assert not_none(quiet.wait(600.0)) - 3600.0 <= 2 * SUSPECT_SECONDS


# Tasks that use the processor and do nothing else --------------------------------------------

SPINS = 0.3
ONE, ALL = {"worker:1": SPINS}, {"worker:0": SPINS, "worker:1": SPINS}
SIXTY_STEPS = [0.5] * 60


@pytest.mark.parametrize(
    ("intervals", "shares", "told_after", "busy"),
    [
        (SIXTY_STEPS, ONE, 120.0, ("worker:1",)),
        (SIXTY_STEPS, ALL, 300.0, ()),  # an evaluation that prints nothing?
        (SIXTY_STEPS, {"worker:1": 0.05}, 300.0, ("worker:1",)),  # it writes a checkpoint?
        ([20.0] * 30, ONE, 200.0, ("worker:1",)),  # ten times the usual interval
        ([1.0] * 10 + [20.0] * 30, ONE, 200.0, ("worker:1",)),
        ([20.0, 0.1, 0.1] * 25, ONE, 200.0, ("worker:1",)),  # three tasks print together
        ([0.5] * 50 + [100.0] + [0.5] * 50, ONE, 300.0, ("worker:1",)),  # it evaluated before
    ],
)
@pytest.mark.parametrize("what", ["step", "printed step", "line"])
def test_steps_or_lines_that_stop_are_told_although_a_task_computes(
    quiet: Tasks,
    intervals: list[float],
    shares: dict[str, float],
    told_after: float,
    busy: tuple[str, ...],
    what: str,
) -> None:
    train(quiet, intervals, what)
    began = quiet.now
    quiet.shares |= shares
    told = quiet.wait(5000.0)
    assert told_after <= not_none(told) - began <= told_after + QUIET_SECONDS / 2
    assert quiet.signs.silent_since == began
    assert not_none(quiet.signs.stop_found).busy == busy
    quiet.signs.note_output()
    assert quiet.changes == [True, False]


def test_a_hang_is_found_sooner_for_who_stops_the_job(quiet: Tasks) -> None:
    train(quiet, SIXTY_STEPS, "step")
    for seconds, shares, busy in ((15, ONE, None), (10, ONE, ("worker:1",)), (0, {}, ())):
        quiet.wait(seconds)
        assert getattr(quiet.signs.find_hang({**quiet.shares, **shares}), "busy", None) == busy
    assert quiet.signs.find_hang({**quiet.shares, **ALL}) is None


def train(tasks: Tasks, intervals: list[float], what: str) -> None:
    tasks.shares = dict.fromkeys(tasks.sizes, BUSY)
    for step, seconds in enumerate(intervals):
        assert tasks.wait(seconds) is None
        if what == "line":
            tasks.signs.note_output()
        else:
            tasks.signs.record("worker:0", str(step), is_moving=what == "step")
    tasks.shares = dict.fromkeys(tasks.sizes, HANGS)


@pytest.mark.parametrize(
    ("other", "busy"), [("evaluator:0", ()), ("ps:0", ("worker:0", "worker:1"))]
)
def test_workers_may_evaluate_together(quiet: Tasks, other: str, busy: tuple[str, ...]) -> None:
    quiet.sizes[other], quiet.shares[other] = 0, HANGS
    quiet.answering.append(other)
    quiet.signs.start()
    train(quiet, SIXTY_STEPS, "step")
    quiet.shares |= ALL
    began = quiet.now
    assert not_none(quiet.wait(5000.0)) - began >= 300.0
    assert not_none(quiet.signs.stop_found).busy == busy


@pytest.mark.parametrize(("epoch", "told_after"), [(30.0, 300.0), (2000.0, 2000.0)])
@pytest.mark.parametrize("shares", [ONE, ALL])
def test_after_the_last_step_of_an_epoch_as_much_time_may_pass_as_before(
    quiet: Tasks, epoch: float, told_after: float, shares: dict[str, float]
) -> None:
    train(quiet, [1.0] * int(epoch), "step")
    quiet.shares |= shares
    quiet.is_between = True
    began = quiet.now
    assert told_after - 1 <= not_none(quiet.wait(5000.0)) - began <= told_after + 60.0


@pytest.mark.parametrize(("what", "count"), [("line", 15), ("step", 5)])
def test_nobody_knows_at_the_start_what_is_usual(quiet: Tasks, what: str, count: int) -> None:
    train(quiet, [1.0] * count, what)
    quiet.shares |= ONE
    assert quiet.wait(5000.0) is None


def test_tasks_that_wait_again_are_quiet(quiet: Tasks) -> None:
    train(quiet, SIXTY_STEPS, "step")
    quiet.shares |= ONE
    assert quiet.wait(1000.0) is not None
    assert quiet.signs.stop_found is not None
    quiet.signs.note_output()
    quiet.shares = dict.fromkeys(quiet.sizes, HANGS)
    assert quiet.wait(1000.0) is not None
    assert quiet.signs.stop_found is None


def test_a_silence_is_told_if_it_is_twice_as_long_as_any_before(quiet: Tasks) -> None:
    train(quiet, SIXTY_STEPS, "step")
    longest = not_none(quiet.wait(1000.0)) - quiet.signs.last_output
    quiet.signs.note_output()
    quiet.shares |= ONE  # then a task computes for ever, which is no silence
    assert quiet.wait(1000.0) is not None
    quiet.signs.note_output()
    quiet.shares = dict.fromkeys(quiet.sizes, HANGS)
    assert not_none(quiet.wait(1000.0)) - quiet.signs.last_output >= 2 * longest
