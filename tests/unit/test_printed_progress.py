"""Progress that is read from what Keras and tqdm print.

The files in `printed` were recorded through a pipe, with Keras 3.15, tf_keras 2.21 and tqdm 4.70:
`python tests/e2e/plain/keras_bars.py 3-1 2>&1 | cat > keras_3_verbose_1.txt`. Each ends with the
values that the program expects. `tests/e2e/test_bars.py` runs the same programs.
"""

import json
import random
from pathlib import Path

import pytest

from harness.parts.job import PrintedProgress, Reading, plain_text, read_line
from harness.tables import read_table
from harness.values import not_none

PRINTED = sorted(Path(__file__).parent.joinpath("printed").glob("*.txt"))
BAR3 = "━" * 20
TABLE = Path(__file__).with_name("progress_forms.txt")
FORMS, ENDS = read_table(TABLE, "bars"), read_table(TABLE, "whether it moves")


def read(text: str) -> Reading | None:
    return read_line(plain_text(text))


@pytest.mark.parametrize("text", FORMS)
def test_a_form(text: str) -> None:
    found = not_none(read(text))
    assert found.values == dict(each.split("=") for each in FORMS[text].split())
    assert found.end == len(plain_text(text))


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize("after", ["hello 8", "2026-01-01 10:00: W x"])
def test_other_output_may_follow_at_once(text: str, after: str) -> None:
    if text.startswith("Epoch 3/10"):
        return  # Keras ends this line itself
    found, alone = not_none(read(text + after)), not_none(read(text))
    numbers = {key: value for key, value in found.values.items() if key not in ("LOSS", "MAE")}
    assert numbers.items() <= alone.values.items()
    assert found.end <= len(plain_text(text)) + len(after)


@pytest.mark.parametrize("text", ["", *read_table(TABLE, "no bars")])
def test_prose_is_no_progress(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize("path", PRINTED, ids=lambda path: path.stem)
def test_what_the_libraries_printed(path: Path) -> None:
    *output, last = path.read_bytes().decode().splitlines(keepends=True)
    text, expected = "".join(output), json.loads(last)
    whole, in_pieces = PrintedProgress(), PrintedProgress()
    assert whole.read(text) is bool(expected)
    check(whole, expected)
    # The unfinished line is read again with its rest, as the supervisor does.
    at, pieces = 0, random.Random(1)
    while at < len(text):
        end = at + pieces.randint(100, 4000)
        in_pieces.read(text[at:end])
        at = max(at + 1, text.rfind("\r", at, end), text.rfind("\n", at, end) + 1)
        at = len(text) if end >= len(text) else at
    check(in_pieces, expected)


def check(printed: PrintedProgress, expected: dict[str, float | str]) -> None:
    values = {key: printed.values.get(key) for key in expected}
    assert not printed.is_moving or "STEPS" not in values or values["STEP"] != values["STEPS"]
    for key, value in expected.items():
        found = not_none(values[key])
        if isinstance(value, str):
            assert found == value
        else:
            assert float(found) == pytest.approx(value, abs=6e-5), key


@pytest.mark.parametrize("output", ENDS)
def test_whether_a_bar_moves(output: str) -> None:
    printed = PrintedProgress()
    assert printed.read(output)
    for more in ("", "other output\n"):
        printed.read(more)
        assert printed.is_moving is (ENDS[output] == "moves")


TQDM = " 20%|██        | 1/5 [00:01<00:04, 1.00it/s]"


@pytest.mark.parametrize(
    ("after", "is_moving"),
    [(" " * 44 + "\r", False), ("evaluated shard 10%\n", False),  # leave=False, and a line
     (" " * 44 + "\ra line\n\r" + TQDM, True),  # tqdm.write
     ("\b" * 44 + "\r", True)],  # Keras moves the cursor before each state
)  # fmt: skip
def test_a_bar_that_is_overwritten_has_ended(after: str, is_moving: bool) -> None:
    whole, in_pieces = PrintedProgress(), PrintedProgress()
    assert whole.read(f"\r{TQDM}\r{after}")
    assert in_pieces.read("\r" + TQDM)
    assert in_pieces.is_moving
    in_pieces.read(TQDM + "\r")
    assert in_pieces.read(after) is (not is_moving or TQDM in after)
    for printed in (whole, in_pieces):
        assert printed.is_moving is is_moving
        printed.read("\r" + TQDM)
        assert printed.is_moving


def test_a_download_by_keras_is_not_the_first_step() -> None:
    printed = PrintedProgress()
    printed.read((PRINTED[0].parent / "keras_3_download.txt").read_bytes().decode())
    assert (printed.first_step["STEP"], printed.first_step["ETA"]) == ("1", "1")


def test_the_number_of_metrics_is_limited() -> None:
    printed = PrintedProgress()
    for step in range(100):
        metrics = ", ".join(f"m{step}_{each}={each}" for each in range(30))
        printed.read(f"\r  1%|          | {step}/10000 [00:01<00:04, 1.0it/s, {metrics}]")
        printed.read("Epoch 1/2\n")
    assert len(printed.values) <= 32
    assert printed.values["EPOCH"] == "1"


def test_a_new_epoch_has_no_step_yet() -> None:
    printed = PrintedProgress()
    printed.read(f"Epoch 1/2\n\r5/5 {BAR3} 1s 2ms/step - loss: 0.5000 - val_loss: 0.4000\n")
    assert printed.values["STEP"] == "5"
    printed.read("Epoch 2/2\n")
    assert printed.values == {"EPOCH": "2", "EPOCHS": "2", "LOSS": "0.5000", "VAL_LOSS": "0.4000"}
