"""Lines that several tasks print alike."""

from __future__ import annotations

import random

import pytest

from distrun.logs.repeats import RepeatFolder
from distrun.logs.view import View

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
