"""What an interruption costs in steps, where that is known."""

import itertools

import pytest

from distrun.job.events import TrainingContinued
from distrun.supervisor.training_gap import TrainingGap

KEYS = {"e": "EPOCH", "s": "STEP"}


def values(text: str) -> dict[str, str]:
    """The progress that is short for `e2 s34`."""
    return {KEYS[word[0]]: word[1:] for word in text.split()}


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("s40, s50", "s41", 10), ("s50", "s51", 0), ("s50", "s0", 50), ("s50", "s70", 0),
        ("e2 s70", "e2 s61", 10),
        ("e1 s40, e2 s41, e2 s70", "e1 s31", 40),
        ("e1 s39, e2 s1, e2 s34", "e2 s1", 34),
        ("e1 s40, e2 s40, e2 s1, e2 s5", "e2 s1", 5),  # each key in a datagram of its own
        ("e2 s34", "e1 s21", None),  # it may count within epochs or over all
        ("s39, s1, s30", "s1", None),  # it counts within epochs, and nobody knows in which
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_printed", [False, True], ids=["reported", "printed"])
def test_what_is_repeated(before: str, after: str, steps: int | None, is_printed: bool) -> None:
    gap, emitted = gap_of("worker:0")
    for state in before.split(", "):
        gap.record("worker:0", values(state), is_printed=is_printed)
    gap.interrupt(["worker:0"])
    gap.start("worker:0")
    gap.record("worker:0", values(after), is_printed=is_printed)
    (event,) = emitted
    assert event.repeated_steps == (None if is_printed else steps)
    assert event.seconds == 1.0


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
