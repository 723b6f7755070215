"""Progress in words, and the time that is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distrun.words.progress import TimeLeft, progress_words

Values = dict[str, str]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("EPOCH=3 EPOCHS=3", "epoch 3/3"),
        ("STEP=120 STEPS=500", "step 120/500 24%"),
        ("STEP=501 STEPS=500", "step 501"),
        ("STEP=3 STEPS=0", "step 3"),
        ("MAE=0.12345 ACCURACY=0.951 LOSS=0.16384", "loss 0.1638, accuracy 0.951, mae 0.1235"),
        ("EXAMPLES_PER_SEC=1800", "1,800/s"),
        ("A=1 B=2 C=3 D=4 E=5 F=6 G=7", "a 1, b 2, c 3, d 4, e 5, f 6"),
        ("X\x1b[2J=1", "x\\x1b[2j 1"),
    ],
)
def test_words(text: str, words: str) -> None:
    values = dict(word.split("=") for word in text.split())
    assert ", ".join(progress_words(values)) == words


def estimates(reports: Iterator[Values], seconds: float) -> list[float | None]:
    left, clock = TimeLeft(), 50.0
    found = []
    for values in reports:
        found.append(left.update("worker:0", values, clock))
        clock += seconds
    return found


def counted(epochs: int, steps: int, *, over_all: bool) -> Iterator[Values]:
    for epoch in range(1, epochs + 1):
        for step in range(1, steps + 1):
            before, total = ((epoch - 1) * steps, epochs * steps) if over_all else (0, steps)
            yield {
                "EPOCH": str(epoch),
                "EPOCHS": str(epochs),
                "STEP": str(before + step),
                "STEPS": str(total),
            }


@pytest.mark.parametrize("over_all", [False, True])
def test_the_rest_takes_as_long_as_the_rate_says(over_all: bool) -> None:
    """The whole takes 3 x 20 x 2 s. The estimate begins when it is known what a step counts."""
    found = estimates(counted(3, 20, over_all=over_all), 2.0)
    known = [(at, left) for at, left in enumerate(found) if left is not None]
    assert known[0][0] <= 22
    assert all(left == pytest.approx((59 - at) * 2.0, abs=0.1) for at, left in known)
    assert len(known) >= 60 - 22


def test_no_totals_no_estimate() -> None:
    assert set(estimates(({"STEP": str(step)} for step in range(50)), 1.0)) == {None}
    nonsense = {"STEP": "5", "STEPS": "x", "EPOCH": "nan", "EPOCHS": "0"}
    assert set(estimates(iter([nonsense] * 5), 1.0)) == {None}


def test_a_restart_begins_again() -> None:
    steps = [*range(1, 50), *range(1, 50)]
    found = estimates(({"STEP": str(step), "STEPS": "100"} for step in steps), 1.0)
    assert found[-1] == pytest.approx(51.0)


def test_the_time_runs_between_two_reports() -> None:
    left = TimeLeft()
    for second in range(11):
        left.update("worker:0", {"STEP": str(second), "STEPS": "100"}, second)
    assert left.update("worker:0", {"STEP": "10", "STEPS": "100"}, 40.0) == pytest.approx(60.0)
