"""What an interruption costs in steps: known exactly, about, or not at all."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from distrun.supervisor.training_gap import TrainingGap

if TYPE_CHECKING:
    from distrun.events import TrainingContinued

KEYS = {"e": "EPOCH", "E": "EPOCHS", "s": "STEP", "S": "STEPS"}


def values(text: str) -> dict[str, str]:
    """The progress that is short for `e2/3 s34/40`."""
    found: dict[str, str] = {}
    for word in text.split():
        now, _, most = word[1:].partition("/")
        found |= {KEYS[word[0]]: now, **({KEYS[word[0].upper()]: most} if most else {})}
    return found


def cost(before: str, after: str, *, is_printed: bool = False) -> tuple[int | None, bool]:
    """The repeated steps of a task with these states, and whether that is an estimate."""
    emitted: list[TrainingContinued] = []
    clock = itertools.count(10.0)
    gap = TrainingGap(emitted.append, lambda: next(clock))  # type: ignore[arg-type]
    gap.start("worker:0")
    for state in before.split(", "):
        gap.record("worker:0", values(state), is_printed=is_printed)
    gap.interrupt(["worker:0"])
    gap.start("worker:0")
    for state in after.split(", "):
        gap.record("worker:0", values(state), is_printed=is_printed)
    (event,) = emitted
    return event.repeated_steps, event.is_estimate


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("s40, s50", "s41", 10),
        ("s50", "s51", 0),
        ("s50", "s0", 50),
        ("s50", "s70", 0),
        # steps over all epochs
        ("e1/3 s40/120, e2/3 s41/120, e2/3 s70/120", "e1/3 s31/120", 40),
        ("e2/3 s70/120", "e2/3 s61/120", 10),
        # within an epoch
        ("e1/3 s39/40, e2/3 s1/40, e2/3 s34/40", "e2/3 s1/40", 34),
        ("e1/3 s39/40, e2/3 s1/40, e2/3 s34/40", "e1/3 s21/40", 54),
        ("e1 s40, e2 s40, e2 s1, e2 s5", "e2 s1", 5),  # each key in a datagram of its own
        # it may be either, or there is no total
        ("e2/3 s20/40", "e1/3 s1/40", None),
        ("e1 s39, e2 s1, e2 s34", "e1 s21", None),
        ("s39/40, s1/40, s30/40", "s1/40", None),
        # other numbers of steps, with fewer workers
        ("e1/3 s39/40, e2/3 s1/40, e2/3 s34/40", "e2/3 s1/60", None),
        # only the ends of epochs
        ("e1/3 s40/40, e2/3 s40/40", "e2/3 s40/40", None),
    ],
)
def test_of_reported_steps(before: str, after: str, steps: int | None) -> None:
    assert cost(before, after) == (steps, False)


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("e1/3 s5/40, e3/3 s34/40", "e2/3 s1/40, e2/3 s9/40", 74),
        ("e1/3 s40/40, e2/3 s9/40", "e2/3 s0/40", 9),
        ("e1/2 s40/40, e2/2 s30/40, e2/2 s40/40, e2/2 s5/10", "e2/2 s1/40", 40),  # an evaluation
        ("e2/3 s20/40", "e1/3 s1/40", 60),
        ("e1/3 s9, e2/3 s9", "e1/3 s1", None),  # `9/Unknown`
        ("e1/3 s9/500, e1/3 s500/500, e2/3 s500/500", "e2/3 s500/500", None),  # `verbose=2`
        # a bar without an epoch
        ("s30/40", "s1/40", None),
        ("s30/100", "s21/100", 10),
    ],
)
def test_of_bars(before: str, after: str, steps: int | None) -> None:
    assert cost(before, after, is_printed=True) == (steps, True)


def test_of_a_lost_host_the_last_steps_are_not_known() -> None:
    emitted: list[TrainingContinued] = []
    gap = TrainingGap(emitted.append, lambda: 0.0)  # type: ignore[arg-type]
    gap.record("worker:1", {"STEP": "30"}, is_printed=False)
    gap.record("worker:0", {"STEP": "50"}, is_printed=False)
    gap.interrupt(["worker:0"])
    for task in ("worker:1", "worker:0"):
        gap.start(task)
        gap.record(task, {"STEP": "21"}, is_printed=False)
    assert [(each.task, each.repeated_steps) for each in emitted] == [("worker:0", 30)]


def test_numbers_of_thousands_of_digits_are_no_steps() -> None:
    gap = TrainingGap(print, lambda: 0.0)
    gap.record("worker:0", {"STEP": "9" * 5000}, is_printed=False)


def gap_of(*tasks: str) -> tuple[TrainingGap, list[TrainingContinued]]:
    emitted: list[TrainingContinued] = []
    clock = itertools.count(10.0)
    gap = TrainingGap(emitted.append, lambda: next(clock))  # type: ignore[arg-type]
    for task in tasks:
        gap.start(task)
    return gap, emitted


def test_a_restart_by_the_same_plan_is_told_once_for_all_its_tasks() -> None:
    gap, emitted = gap_of("worker:0", "worker:1")
    for task, state in (("worker:0", "s50"), ("worker:1", "s49")):
        gap.record(task, values(state), is_printed=False)
    assert emitted == []
    for task in ("worker:0", "worker:1"):
        gap.start(task)
    gap.record("worker:1", values("s41"), is_printed=False)
    gap.record("worker:0", values("s41"), is_printed=False)
    ((task, steps, is_restart),) = (
        (each.task, each.repeated_steps, each.is_restart) for each in emitted
    )
    assert (task, steps, is_restart) == ("worker:1", 9, True)


def test_a_further_plan_is_told_as_such() -> None:
    gap, emitted = gap_of("worker:0", "worker:1")
    gap.record("worker:0", values("s50"), is_printed=False)
    gap.interrupt(["worker:0"])
    gap.start("worker:0")
    gap.record("worker:0", values("s31"), is_printed=False)
    assert [(each.repeated_steps, each.is_restart) for each in emitted] == [(20, False)]


def test_an_attempt_without_steps_costs_nothing_more() -> None:
    gap, emitted = gap_of("worker:0")
    gap.record("worker:0", values("s50"), is_printed=False)
    gap.start("worker:0")
    gap.start("worker:0")  # the second attempt has not come to a step
    gap.record("worker:0", values("s41"), is_printed=False)
    assert [each.repeated_steps for each in emitted] == [10]
