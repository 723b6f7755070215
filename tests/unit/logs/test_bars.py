"""Progress bars in output: one finished line for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrun.logs.line_buffer import LineBuffer
from distrun.logs.view import Formatter, View

PRINTED = Path(__file__).parents[1] / "printed"


def shown(data: bytes, size: int, *, colour: bool = False) -> list[str]:
    """The lines that a follower shows which reads so many bytes at a time."""
    lines, formatter = LineBuffer(), Formatter(View(("w",), colour=colour), "w")
    output = b""
    for start in range(0, len(data), size):
        output += formatter.select(lines.feed(data[start : start + size]))
    return (output + formatter.select(lines.flush())).decode().splitlines()


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 16])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("keras_2_verbose_1", ["10/10 ["] * 3 + ["Epoch 1/3", "15/15 ["]),
        ("keras_3_verbose_1", ["10/10 ━"] * 3 + ["Epoch 1/3", "15/15 ━"]),
        ("tqdm_plain", ["100%|██████████| 25/25 "]),
        ("tqdm_epochs", [f"Epoch {number}/3: 100%|██████████| 25/25 " for number in (1, 2, 3)]),
        ("tqdm_endless", ["25it ["]),
        ("tqdm_narrow", ["train: 100%|█| 25/25 "]),
        ("tqdm_nested", [*["100%|██████████| 10/10 "] * 3, "epochs: 100%|██████████| 3/3 "]),
        ("tqdm_nested_colour", [*["100%|██████████| 10/10 "] * 3, "epochs: 100%|██████████| 3/3 "]),
        ("tqdm_nested_gone", ["epochs: 100%|██████████| 3/3 "]),
        (
            "tqdm_text",
            ["hello 0", "a line above the bar 4", "hello 8", "a line above the bar 12", "hello 16"],
        ),
    ],
)
def test_one_finished_line_for_each_bar(name: str, expected: list[str], size: int) -> None:
    data = (PRINTED / f"{name}.txt").read_bytes()
    lines = shown(data, size)
    if name.startswith("keras"):
        lines = [line for line in lines if line.startswith(("Epoch", "1"))]
    assert len(lines) >= len(expected)
    for line, start in zip(lines, expected, strict=False):
        assert line.startswith(start)
    if name.startswith("tqdm") and "text" not in name:
        assert len(lines) == len(expected) + 1  # the last one has the expected values
    assert not [line for line in lines if "%|" in line and "100%|" not in line]


def test_a_bar_that_is_not_finished_is_shown_at_the_end() -> None:
    assert shown(b"\r 20%|##   | 1/5 [00:01<00:04, 1.00it/s]\nerror\n", 5) == [
        " 20%|##   | 1/5 [00:01<00:04, 1.00it/s]",
        "error",
    ]
    assert shown(b"\r 20%|##   | 1/5 [00:01<00:04, 1.00it/s]", 5)


@pytest.mark.parametrize("text", [b"Epoch 1/2\n", b"a line\n", b"\r100%|##| 5/5 [00:01<00:00]\n"])
def test_a_line_is_shown_at_once(text: bytes) -> None:
    lines = LineBuffer()
    assert lines.feed(text) == text


def test_a_bar_that_moves_for_days_fits_into_memory_and_is_one_line() -> None:
    lines = LineBuffer()
    for step in range(30_000):
        assert lines.feed(b"\b" * 80 + b"\r%d/30000 [====] - ETA: 3s - loss: 0.1" % step) == b""
        assert len(lines._held) < 10_000
    assert lines.feed(b"\n").endswith(b"\r29999/30000 [====] - ETA: 3s - loss: 0.1\n")


def test_output_after_a_bar_keeps_its_colours() -> None:
    data = b"\r 20%|##   | 1/5 [00:01<00:04, 1.00it/s]\x1b[31mred\x1b[0m text\n"
    assert shown(data, 100, colour=True) == ["\x1b[31mred\x1b[0m text"]
    assert shown(data, 100) == ["red text"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part", [b"\n", b"\r", b"\n\r", b"\r%|\n", b"\x1b[A", b"\n\r\x1b[A", b"%|"]
)
def test_the_time_is_linear(part: bytes) -> None:
    data = part * (2_000_000 // len(part))
    lines, formatter = LineBuffer(), Formatter(View(("w",)), "w")
    for start in range(0, len(data), 1 << 16):
        formatter.select(lines.feed(data[start : start + (1 << 16)]))
