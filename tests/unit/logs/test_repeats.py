"""Lines that several tasks print alike."""

from __future__ import annotations

import random

from distrun.logs.repeats import RepeatFolder
from distrun.logs.view import View


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


TASKS = ["chief:0", "worker:0", "worker:1", "worker:2"]


def folder(clock: Clock) -> RepeatFolder:
    return RepeatFolder(View(TASKS), TASKS, clock)


def add(folder: RepeatFolder, task: str, lines: str) -> str:
    return b"".join(folder.add(task, lines.encode())).decode()


def due(folder: RepeatFolder) -> str:
    return b"".join(folder.due()).decode()


def test_a_line_of_all_is_shown_at_once_and_once() -> None:
    made = folder(Clock())
    for task in TASKS[1:]:
        assert due(made) == ""
        add(made, task, "Epoch 1/3\n")
    assert due(made) == "worker:* | Epoch 1/3 (3 tasks)\n"
    assert made.wait is None


def test_a_line_of_some_waits_for_a_moment_only() -> None:
    clock = Clock()
    made = folder(clock)
    add(made, "worker:0", "one\n")
    add(made, "worker:1", "one\n")
    assert due(made) == ""
    assert made.wait is not None
    assert made.wait <= 0.3
    clock.now += made.wait
    assert due(made) == "worker:* | one (2 tasks)\n"
    add(made, "worker:2", "one\n")
    clock.now += 0.3
    assert due(made) == "worker:2 | one\n"


def test_roles_are_not_mixed() -> None:
    clock = Clock()
    made = folder(clock)
    add(made, "worker:0", "one\n")
    add(made, "chief:0", "one\n")
    clock.now += 0.3
    assert due(made) == "worker:0 | one\nchief:0  | one\n"


def test_what_one_task_prints_twice_is_shown_twice() -> None:
    clock = Clock()
    made = folder(clock)
    add(made, "worker:0", ".\n.\n")
    add(made, "worker:1", ".\n.\n.\n")
    clock.now += 0.3
    assert due(made) == "worker:* | . (2 tasks)\nworker:* | . (2 tasks)\nworker:1 | .\n"


def test_much_output_passes_without_waiting() -> None:
    made = folder(Clock())
    add(made, "worker:0", "first\n")
    shown = add(made, "worker:1", "a line\n" * 10_000)
    assert shown == "worker:0 | first\n" + "worker:1 | a line\n" * 10_000
    assert made.wait is None


def test_no_line_is_lost_and_each_tasks_lines_keep_their_order() -> None:
    chance = random.Random(7)
    clock = Clock()
    made = folder(clock)
    printed: dict[str, list[str]] = {task: [] for task in TASKS}
    shown = ""
    for _ in range(5000):
        task = chance.choice(TASKS)
        lines = [chance.choice("abcd") for _ in range(chance.randrange(1, 4))]
        printed[task] += lines
        shown += add(made, task, "".join(f"{line}\n" for line in lines))
        clock.now += chance.random() / 20
        shown += due(made)
    shown += b"".join(made.flush()).decode()
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


def test_order_of_one_task_among_joined_lines() -> None:
    """worker:1 prints the same two lines in the other order: only one of them can be joined."""
    clock = Clock()
    made = folder(clock)
    add(made, "worker:0", "a\nb\n")
    add(made, "worker:1", "b\na\n")
    clock.now += 0.3
    assert due(made) == "worker:0 | a\nworker:* | b (2 tasks)\nworker:1 | a\n"


def test_a_role_with_one_task_waits_for_nobody() -> None:
    made = folder(Clock())
    add(made, "chief:0", "one\n")
    assert due(made) == "chief:0  | one\n"
