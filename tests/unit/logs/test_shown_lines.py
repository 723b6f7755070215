"""Which lines are shown: those that several tasks print alike, finished bars, start-up lines."""

import io
import random
import re
import sys
from pathlib import Path

import pytest

from harness.parts.cli import terminal
from harness.parts.logs import Formatter, LineBuffer, RepeatFolder, StartupFilter, View

TASKS = ["chief:0", "worker:0", "worker:1", "worker:2"]


class Folder(RepeatFolder):
    """Of the lines of four tasks, with a time of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        super().__init__(View(TASKS), TASKS, lambda: self.now)

    def print(self, task: str, lines: str) -> str:
        return b"".join(self.add(task, lines.encode())).decode()

    def after(self, seconds: float) -> str:
        """What is shown after a while."""
        self.now += seconds
        return b"".join(self.due()).decode()


CASES: dict[str, tuple[list[tuple[str, str]], str, str]] = {
    "a line of all is shown at once and once": (
        [(task, "Epoch 1/3\n") for task in TASKS[1:]], "worker:* | Epoch 1/3 (3 tasks)\n", ""),
    "a line of some waits for a moment only": (
        [("worker:0", "one\n"), ("worker:1", "one\n")], "", "worker:* | one (2 tasks)\n"),
    "roles are not mixed": (
        [("worker:0", "one\n"), ("chief:0", "one\n")], "", "worker:0 | one\nchief:0  | one\n"),
    "a role with one task waits for nobody": ([("chief:0", "one\n")], "chief:0  | one\n", ""),
    "what one task prints twice is shown twice": (
        [("worker:0", ".\n.\n"), ("worker:1", ".\n.\n.\n")], "",
        "worker:* | . (2 tasks)\nworker:* | . (2 tasks)\nworker:1 | .\n"),
    "of two lines in another order only one is joined": (
        [("worker:0", "a\nb\n"), ("worker:1", "b\na\n")], "",
        "worker:0 | a\nworker:* | b (2 tasks)\nworker:1 | a\n"),
}  # fmt: skip
"""What is printed; what is shown at once, and what after a moment."""


@pytest.mark.parametrize("case", CASES)
def test_what_is_shown_of_lines_that_tasks_print(case: str) -> None:
    printed, at_once, later = CASES[case]
    folder = Folder()
    for task, lines in printed:
        assert folder.after(0.0) == ""
        folder.print(task, lines)
    assert folder.after(0.0) == at_once
    assert (folder.wait is None) is (later == "")
    assert (folder.wait or 0.0) <= 0.3
    assert folder.after(folder.wait or 0.0) == later
    folder.print("worker:2", "one\n")
    assert folder.after(0.3) == "worker:2 | one\n", "it is too late to be joined"


def test_much_output_passes_without_waiting() -> None:
    folder = Folder()
    folder.print("worker:0", "first\n")
    shown = folder.print("worker:1", "a line\n" * 10_000)
    assert shown == "worker:0 | first\n" + "worker:1 | a line\n" * 10_000
    assert folder.wait is None
    for _ in range(300):
        shown = "".join(folder.print(task, "x" * 99 + "\n") for task in TASKS[1:]) + folder.after(
            0.3
        )
    assert shown.endswith(" (3 tasks)\n"), "what was shown is held back no more"


def test_no_line_is_lost_and_each_tasks_lines_keep_their_order() -> None:
    chance = random.Random(7)
    folder = Folder()
    printed: dict[str, list[str]] = {task: [] for task in TASKS}
    shown = ""
    for _ in range(5000):
        task = chance.choice(TASKS)
        lines = [chance.choice("abcd") for _ in range(chance.randrange(1, 4))]
        printed[task] += lines
        shown += folder.print(task, "".join(f"{line}\n" for line in lines))
        shown += folder.after(chance.random() / 20)
    shown += b"".join(folder.flush()).decode()
    seen: dict[str, int] = dict.fromkeys(TASKS, 0)
    counts = 0
    for line in shown.splitlines():
        name, _, text = line.partition("|")
        text, _, tasks = text.strip().partition(" ")
        counts += int(tasks[1]) if tasks else 1
        if not tasks:
            assert text in printed[name.strip()]
            seen[name.strip()] += 1
    assert counts == sum(map(len, printed.values()))
    assert all(seen.values())


# Output that keeps its reader busy: each block takes linear time, or the limit of time ends it


LOGGED = b"I0000 00:00:1795377989.000138    1575 "


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line",
    [
        LOGGED + b"cuda_platform.cc:1] failed call to cuInit: INTERNAL: " + b" " * 800_000,
        LOGGED + b"eager_service_impl.cc:1] SessionOptions: goo.gle/debugonly" + b" " * 800_000,
        b"To enable the following instructions: " + b"a " * 400_000,
    ],
)
def test_a_line_that_begins_like_a_start_up_line(line: bytes) -> None:
    block = line + b"x\n"
    assert StartupFilter().select("worker:0", block) == block


@pytest.mark.timeout(60)
def test_equal_lines_of_one_task() -> None:
    folder = RepeatFolder(View(tasks=("worker:0", "worker:1")), ("worker:0", "worker:1"))
    shown = b"".join([*folder.add("worker:0", b"\n" * 32_000), *folder.flush()])
    assert shown == b"worker:0 | \n" * 32_000


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pattern", [rb"(?is).*zzz", rb"[\t-~]*zzz"])
def test_a_pattern_that_can_cross_lines(pattern: bytes) -> None:
    view = View((), grep=re.compile(pattern))
    assert Formatter(view, "worker:0").select(b"step 1 loss 0.5\n" * 100_000) == b""


# Progress bars ------------------------------------------------------------------------------------


def shown(data: bytes, size: int, *, colour: bool = False) -> list[str]:
    """The lines that a follower shows which reads so many bytes at a time."""
    lines, formatter = LineBuffer(), Formatter(View(("w",), colour=colour), "w")
    output = b""
    for start in range(0, len(data), size):
        output += formatter.select(lines.feed(data[start : start + size]))
    return (output + formatter.select(lines.flush())).decode().splitlines()


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("keras_2_verbose_1", ["10/10 ["] * 3 + ["Epoch 1/3", "15/15 ["]),
        ("keras_3_verbose_1", ["10/10 ━"] * 3 + ["Epoch 1/3", "15/15 ━"]),
        ("tqdm_plain", ["100%|██████████| 25/25 "]),
        ("tqdm_epochs", [f"Epoch {number}/3: 100%|██████████| 25/25 " for number in (1, 2, 3)]),
        ("tqdm_endless", ["25it ["]), ("tqdm_narrow", ["train: 100%|█| 25/25 "]),
        ("tqdm_nested", [*["100%|██████████| 10/10 "] * 3, "epochs: 100%|██████████| 3/3 "]),
        ("tqdm_nested_colour", [*["100%|██████████| 10/10 "] * 3, "epochs: 100%|██████████| 3/3 "]),
        ("tqdm_nested_gone", ["epochs: 100%|██████████| 3/3 "]),
        ("tqdm_text",
         ["hello 0", "a line above the bar 4", "hello 8", "a line above the bar 12", "hello 16"]),
    ],
)  # fmt: skip
def test_one_finished_line_for_each_bar(name: str, expected: list[str], size: int) -> None:
    data = (Path(__file__).parents[1] / "printed" / f"{name}.txt").read_bytes()
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
    assert LineBuffer().feed(text) == text


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
@pytest.mark.parametrize("part", [b"\n", b"\r", b"\r%|\n", b"\n\r\x1b[A"])
def test_the_time_is_linear(part: bytes) -> None:
    data = part * (500_000 // len(part))
    lines, formatter = LineBuffer(), Formatter(View(("w",)), "w")
    for start in range(0, len(data), 1 << 16):
        formatter.select(lines.feed(data[start : start + (1 << 16)]))


# Start-up lines -----------------------------------------------------------------------------------


STARTUP = Path(__file__).parent / "startup"
CPU = (STARTUP / "cpu.txt").read_text()
"""As TensorFlow 2.21 printed them on a machine without a GPU: two workers, parameter servers and
tf.data's service."""
REPORTED = (STARTUP / "reported.txt").read_text()
"""As people with GPUs, and with earlier versions, have reported them."""
SHOWN = (STARTUP / "shown.txt").read_text()
"""They say something that a user may need, or they are a program's own."""


def select(text: str, *gpu_tasks: str) -> tuple[str, int]:
    """What is shown, and how many lines are left out."""
    shown = StartupFilter(gpu_tasks).select("worker:0", text.encode()).decode()
    return shown, text.count("\n") - shown.count("\n")


def test_each_line_is_left_out_in_any_place() -> None:
    assert select(CPU + REPORTED) == ("", (CPU + REPORTED).count("\n"))
    for line in (CPU + REPORTED).splitlines():
        if not re.match(r"[IWE]\d|2|To |WARN", line):
            continue  # a part of the message above it
        text = f"before\n{line}\n\nafter\n{line}  \n"
        shown, left_out = select(text)
        assert (shown, left_out) == ("before\n\nafter\n", 2), line


def test_other_lines_stay_as_they_are() -> None:
    assert select(SHOWN) == (SHOWN, 0)
    own, known = SHOWN.splitlines(keepends=True), REPORTED.splitlines(keepends=True)
    mixed = "".join(f"{first}{second}" for first, second in zip(own, known, strict=False))
    assert select(mixed)[0] == "".join(own[: len(known)])


def test_on_a_host_with_gpus_a_missing_one_is_shown() -> None:
    shown, left_out = select(CPU, "worker:0")
    assert [line.split("] ")[1][:20] for line in shown.splitlines()] == [
        "Could not find cuda ",
        "failed call to cuIni",
    ]
    assert left_out == len(CPU.splitlines()) - 2


MODULES = "Extension modules: numpy._core._multiarray_umath, google._upb._message (total: 219)\n"


def test_the_modules_that_a_crash_lists_are_left_out() -> None:
    crashed = "Fatal Python error: Segmentation fault\n\n  File x\n"
    assert select(crashed + MODULES)[0] == crashed


def test_what_is_left_out_is_counted() -> None:
    startup = StartupFilter()
    for task, text in (("worker:0", MODULES), ("worker:1", "x\n" + MODULES), ("ps:0", "")):
        startup.select(task, text.encode(), counted=True)
    startup.select("worker:2", MODULES.encode())
    assert (startup.count, startup.silent) == (2, {"worker:0"})
    startup.select("worker:0", b"y\n", counted=True)
    assert startup.silent == set()


def test_a_live_line_that_has_not_changed_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminal, "can_redraw", lambda _: True)
    output = io.BytesIO()
    shown = terminal.Terminal(output, sys.stdout)
    for text, count in (("1/2 up", 1), ("1/2 up", 1), ("2/2 up", 2)):
        shown.show_status(text)
        assert output.getvalue().count(b" up") == count
