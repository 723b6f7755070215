"""Progress that is read from the lines of training loops, as tutorials and examples print them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.parts.job import PrintedProgress, steps
from harness.parts.words import TimeLeft, progress_words, seconds_left
from harness.tables import read_table

TABLE = Path(__file__).with_name("progress_forms.txt")
FORMS = read_table(TABLE, "with a metric")
BARE = read_table(TABLE, "without a metric")


def lines(form: str) -> list[str]:
    return [form.format(E=each, S=100 * each, L=f"0.{9 - each}25") + "\n" for each in (1, 2, 3)]


@pytest.mark.parametrize("end", ["\n", "\r"])
@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_progress_once_it_has_moved_on(form: str, end: str) -> None:
    first, second, third = (line[:-1] + end for line in lines(form))
    printed = PrintedProgress()
    assert not printed.read(first), "one line can be anything"
    assert not printed.read(first)
    assert printed.read(f"other output\n{second}")
    assert {"EPOCH": "2", "STEP": "200"}.items() & printed.values.items()
    assert set(FORMS[form].split()) <= printed.values.keys()
    assert printed.first_step.get("STEP", "100") == "100"
    printed.read(third)
    assert "0.625" in printed.values.values()
    assert not printed.is_moving, "other output is a sign of life, too"


@pytest.mark.parametrize("form", BARE)
def test_a_line_without_a_metric_is_progress_if_it_begins_with_an_epoch_or_step(form: str) -> None:
    first, second, _ = lines(form)
    printed = PrintedProgress()
    assert not printed.read(first + first)
    assert printed.read(second)
    assert printed.values.keys() == set(BARE[form].split())
    known = {"EPOCH": "2", "STEP": "200", "PERCENT": "20"}
    assert known.items() & printed.values.items() or printed.values == {"PERCENT": "20.0"}


TABLES = {
    "  epoch    train_loss    valid_acc     dur\n-------  ----------  ------  ------\n":
        "      {E}        {L}       0.6150  0.0412\n",
    "E    #       LOSS NER  SCORE \n---  ------  --------  ------\n": "  {E}  {S}  {L}  0.5 \n",
    "epoch,loss,acc,note\n": "{E},{L},0.8,a word\n",
    "| Epoch | Step | Train loss | Time |\n|---|---|---|---|\n": "| {E} | {S} | {L} | 00:12 |\n",
}  # fmt: skip


@pytest.mark.parametrize("header", TABLES)
def test_the_rows_of_a_table_are_progress(header: str) -> None:
    first, second, third = lines(TABLES[header].rstrip("\n"))
    printed = PrintedProgress()
    assert not printed.read(header + first), "one row can be anything"
    assert printed.read(f"Epoch begins\nother output, 3 lines\n{second}")
    assert printed.values["EPOCH"] == "2"
    losses = map(printed.values.get, ("LOSS", "TRAIN_LOSS", "LOSS_NER"))
    assert [*filter(None, losses)] == ["0.725"]
    assert "TIME" not in printed.values
    printed.read(f"{third}7 8\n")
    assert printed.values["EPOCH"] == "3"


@pytest.mark.parametrize("table", read_table(TABLE, "no tables"))
def test_other_tables_are_none(table: str) -> None:
    printed = PrintedProgress()
    assert not printed.read(table)
    assert printed.values == {}


def test_a_fraction_of_an_epoch_moves_on() -> None:
    printed = PrintedProgress()
    assert not printed.read("epoch 3 loss 0.5\n" * 3 + "epoch 2 loss 0.4\n")
    assert printed.read("{'loss': 0.3, 'epoch': 1.2}\n{'loss': 0.25, 'epoch': 1.4}\n")
    assert printed.values == {"LOSS": "0.25", "EPOCH": "1"}


@pytest.mark.parametrize("form", read_table(TABLE, "no progress"))
def test_other_lines_are_none(form: str) -> None:
    printed = PrintedProgress()
    assert [printed.read(line) for line in lines(form)] == [False] * 3
    assert printed.values == {}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", read_table(TABLE, "repeated"))
def test_the_time_is_linear(part: str) -> None:
    """60 kB of one line, or of short ones. Quadratic time would be many minutes."""
    line = part * (60_000 // len(part))
    printed = PrintedProgress()
    printed.read(line)
    printed.read(f"1 loss {line}\n")
    printed.read(f"{part} 1 loss\n" * 1000)


def test_counts_with_commas_are_whole_and_steps_begin_anew() -> None:
    printed = PrintedProgress()
    printed.read("Step 9,000/100,000 loss: 0.5\nStep 10,000/100,000 loss: 0.4\n")
    assert printed.values == {"STEP": "10000", "STEPS": "100000", "LOSS": "0.4"}
    printed.read("[iter:  20,100, lr:(1e-4,)] loss: 0.5\n[iter:  20,200, lr:(1e-4,)] loss: 0.3\n")
    assert printed.values["STEP"] == "20200"
    epochs = "".join(f"epoch {e} step {s} loss 0.1\n" for e in (4, 5) for s in (50, 100))
    for each, end in ((epochs, {"EPOCH": "5", "STEP": "100"}),
                      ("epoch 6 step 50 loss 0.1\n", {"EPOCH": "6", "STEP": "50"})):  # fmt: skip
        printed.read(each)
        assert end.items() <= printed.values.items(), "a step begins anew with each epoch"


# Progress in words, and the time that is left -----------------------------------------------------

Values = dict[str, str]


@pytest.mark.parametrize("text", WORDS := read_table(TABLE, "in words"))
def test_words(text: str) -> None:
    values = dict(word.split("=") for word in text.split())
    assert ", ".join(progress_words(values, is_running=True)) == WORDS[text]


def estimates(reports: Iterator[Values], seconds: float) -> list[float | None]:
    left = TimeLeft()
    return [time_left(left, values, 50.0 + at * seconds) for at, values in enumerate(reports)]


def time_left(left: TimeLeft, values: Values, now: float) -> float | None:
    left.note(values, now)
    return seconds_left([left.ends_at(now)], now)


def counted(epochs: int, steps: int, *, over_all: bool) -> Iterator[Values]:
    for epoch in range(1, epochs + 1):
        for step in range(1, steps + 1):
            before, total = ((epoch - 1) * steps, epochs * steps) if over_all else (0, steps)
            counts = {"EPOCH": epoch, "EPOCHS": epochs, "STEP": before + step, "STEPS": total}
            yield {key: str(count) for key, count in counts.items()}


@pytest.mark.parametrize("over_all", [False, True])
def test_the_rest_takes_as_long_as_the_rate_says(over_all: bool) -> None:
    """The whole takes 3 x 20 x 2 s. The estimate begins when it is known what a step counts."""
    found = estimates(counted(3, 20, over_all=over_all), 2.0)
    known = [(at, left) for at, left in enumerate(found) if left is not None]
    assert known[0][0] <= 22
    assert all(left == pytest.approx((59 - at) * 2.0, abs=0.1) for at, left in known)
    assert len(known) >= 60 - 22


def test_an_evaluation_after_each_epoch_takes_its_time_too() -> None:
    left, values = TimeLeft(), [*counted(3, 20, over_all=False)]
    for at, each in enumerate(values):  # an epoch takes 100 s
        now = at // 20 * 100 + at % 20 * 2.0
        assert time_left(left, each, now) == pytest.approx(300 - now, abs=6) or at < 20


BAR = "epochs:  {B}0%|##  | {B}/10 [00:10<00:20,  1.00s/it]"
DRAWN = "Epoch {E}/10:   0%|  | 0/20 [00:01<00:19,  1.00it/s]"
BOTH = ("Epoch {E}/10\n1/20 - 3s 2ms/step - loss: 0.5", "20/20 - 3s 2ms/step - loss: 0.5")


@pytest.mark.parametrize(
    ("begin", "end"),
    [("", "epoch {E}/10, loss 0.5"), ("", "epoch {B}/10, loss 0.5"), ("Starting epoch {E}/10", ""),
     (DRAWN, DRAWN.replace("  0%|  | 0/20", "100%|##| 20/20") + "\nepoch {E}/10 val_loss 0.5"),
     ("Epoch {E}/10", "20/20 - 3s - loss: 0.5"), (BAR, ""), BOTH],
)  # fmt: skip
def test_an_epochs_line_comes_at_its_begin_or_end(begin: str, end: str) -> None:
    printed, left, known = PrintedProgress(), TimeLeft(), 0
    for epoch in range(1, 11):  # of a minute each
        for text, now in ((begin, epoch * 60.0), (end, epoch * 60.0 + 59.9)):
            if text and printed.read(text.format(E=epoch, B=epoch - 1) + "\n"):
                left.note(printed.values, now, printed.epochs_done)
            known += (ends_at := left.ends_at(now)) is not None
            assert ends_at is None or abs(ends_at - 660.0) < (4.0 if epoch > 1 else 30.0), text
    assert known >= 12
    printed.read(2 * f"{begin}\n{end}\n".format(E=1, B=0))
    left.note(printed.values, 650.0, printed.epochs_done)
    assert left.ends_at(650.0) is None, "another fold: how many follow is unknown"


def test_what_does_not_move_any_more_has_no_time_left() -> None:
    steps = [{"STEP": str(min(step, 20)), "STEPS": "100"} for step in range(60)]
    found = estimates(iter(steps), 2.0)
    assert found[20] == pytest.approx(160.0)
    assert found[30] is not None  # it may save or evaluate
    assert set(found[36:]) == {None}
    assert estimates(iter(steps), 20.0)[29] is not None


def test_lines_that_are_read_together_were_printed_one_after_the_other() -> None:
    left = TimeLeft()
    for step, now in ((1, 2.3), (2, 2.301), (3, 3.3), (4, 4.3)):
        found = time_left(left, {"STEP": str(step), "STEPS": "100"}, now)
    assert found == pytest.approx(96, abs=0.5)


def test_no_totals_no_estimate() -> None:
    assert set(estimates(({"STEP": str(step)} for step in range(50)), 1.0)) == {None}
    nonsense = {"STEP": "5", "STEPS": "x", "EPOCH": "nan", "EPOCHS": "0"}
    assert set(estimates(iter([nonsense] * 5), 1.0)) == {None}
    bar = [{"STEP": str(step), "STEPS": "9"} for step in range(9)]
    assert set(estimates(iter(bar + bar), 2.0)[9:]) == {None}, "how many bars follow is unknown"
    other = [{"STEP": str(step), "STEPS": "50"} for step in range(9)]
    assert estimates(iter(bar + other), 2.0)[-1] == pytest.approx(84.0), "another phase"
    turns = [{**each, "STEPS": "99"} for each in bar[:5]] + bar + [{"STEP": "5", "STEPS": "99"}]
    assert estimates(iter([*turns, {"STEP": "6", "STEPS": "99"}]), 2.0)[-1], "a test has its own"


SHOWN = {"STEP": "5", "STEPS": "10", "LOSS": "0.123456", "EXAMPLES_PER_SEC": "1800"}


@pytest.mark.parametrize(
    ("values", "how", "words"),
    [
        (SHOWN, {}, ["step 5/10 50%", "loss 0.1235", "1,800/s"]),
        (SHOWN, {"rate_of": " examples"}, ["step 5/10 50%", "loss 0.1235", "1,800 examples/s"]),
        (SHOWN, {"at_end": True}, ["step 5/10 50%", "loss 0.123"]),
        ({**SHOWN, "EPOCH": "2"}, {"at_end": True}, ["epoch 2", "loss 0.123"]),
        ({"STEP": "5", "SAVING": "1"}, {"is_running": True}, ["step 5", "saving"]),
        ({"STEP": "5", "SAVING": "0"}, {"is_running": True}, ["step 5"]),
        ({"STEP": "5", "SAVING": "1"}, {"left": 90.0}, ["step 5", "1 m 30 s left"]),
    ],
)  # fmt: skip
def test_progress_words(values: dict[str, str], how: dict[str, Any], words: list[str]) -> None:
    assert progress_words(values, **how) == words


@pytest.mark.parametrize(
    ("done", "first", "who"),
    [
        ([10, 100, 101], (), "a"), ([96, 100, 101], (), ""), ([2, 6, 6], (1.0, 2.0, 3.0), ""),
        ([81, 100], (1.0,), ""), ([300, 400, 400], (100.0,), ""), ([79, 100], (1.0,), "a"),
    ],
)  # fmt: skip
def test_who_is_behind(done: list[float], first: tuple[float, ...], who: str) -> None:
    reached = dict(zip("abc", done, strict=False))
    assert (steps.behind(reached, first) or ("",))[0] == who


@pytest.mark.parametrize(
    ("reports", "of_epoch"),
    [
        ([(1, 10), (1, 20)], False), ([(1, 90), (2, 10)], True), ([(2, 10), (2, 20)], True),
        ([(2, 110), (2, 120)], False), ([(2, 100)], True), ([(1, 100)], False),
        ([(0, 10), (1, 110), (2, 290)], False), ([(1, 120), (2, 220)], False),
        ([(1, 120), (2, 241), (3, 300)], False), ([(1, 30), (2, 40), (3, 50)], True),
        ([(1, 100), (2, 100)], True),
    ],
)  # fmt: skip
def test_steps_of_an_epoch(reports: list[tuple[int, int]], of_epoch: bool) -> None:
    total = {"EPOCHS": 3.0, "STEPS": 100.0 if of_epoch else 300.0}
    found = [{"EPOCH": float(epoch), "STEP": float(step), **total} for epoch, step in reports]
    assert steps.is_of_epoch(found) is of_epoch
