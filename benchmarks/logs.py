"""What is measured of logs: how fast they are prefixed and followed, next to cat and sed."""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from measures import LINE as TASK_LINE
from measures import SINGLE_LINES

from distrun.agent.protocol import INDEX_RECORD
from distrun.logs import Follower, StartupFilter, TaskLog, View, merged

TASKS = [f"worker:{i}" for i in range(4)]
LINE = b"step %07d loss 0.12345 accuracy 0.98765 images/s 1843.2 and some more text\n"
SIZE = 128 << 20  # bytes over all tasks
UNREAD = "4 tasks that write single lines, nobody reads"
_LINES = 200_000
REPEATS = 5
# Appends the block on its standard input, argument times, as a task's writes would.
WRITER = """
import os, sys
block = sys.stdin.buffer.read()
for _ in range(int(sys.argv[1])):
    os.write(1, block)
"""


def block(size: int = 1 << 16) -> bytes:
    lines = b"".join(LINE % i for i in range(size // len(LINE % 0)))
    assert len(lines) <= size
    return lines


def rate(size: int, run) -> float:
    """The median of several runs, in MB/s."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return size / statistics.median(times) / 1e6


def task_logs(folder: str) -> list[TaskLog]:
    return [TaskLog(task, f"{folder}/{i}.log", f"{folder}/{i}.idx") for i, task in enumerate(TASKS)]


def fill(logs: list[TaskLog]) -> int:
    lines = block()
    count = SIZE // len(lines) // len(logs)
    for log in logs:
        with open(log.path, "wb") as file:
            file.writelines(lines for _ in range(count))
    return count * len(lines) * len(logs)


def ended_job(folder: str) -> tuple[list[TaskLog], int]:
    """16 logs of 42 MB in all, and their bytes: each grew by a dozen lines every 100 ms."""
    logs, lines = [], 42_000_000 // 16 // len(LINE % 0)
    for number in range(16):
        log = TaskLog(f"worker:{number}", f"{folder}/{number}.log", f"{folder}/{number}.idx")
        size = 0
        with open(log.path, "wb") as file, open(log.index_path, "wb") as index:
            for tick, first in enumerate(range(0, lines, 12)):
                size += file.write(b"".join(LINE % each for each in range(first, first + 12)))
                index.write(INDEX_RECORD.pack(1.7e9 + 0.1 * tick, size))
        logs.append(log)
    return logs, sum(log.extent().size for log in logs)


def show(logs: list[TaskLog], view: View, sink: int) -> None:
    for shown in merged(logs, view):
        os.write(sink, shown)


def start_writers(outputs: list[int], count: int) -> list[subprocess.Popen[bytes]]:
    writers = []
    for output in outputs:
        writer = subprocess.Popen(
            [sys.executable, "-S", "-c", WRITER, str(count)], stdin=subprocess.PIPE, stdout=output
        )
        writers.append(writer)
    for writer in writers:
        assert writer.stdin
        writer.stdin.write(block())
        writer.stdin.close()
    return writers


def follow(sink: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logs = task_logs(folder)
        count = SIZE // len(block()) // len(logs)
        outputs = [os.open(log.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND) for log in logs]
        with contextlib.closing(Follower(logs, View(TASKS, startup=StartupFilter()))) as follower:
            writers = start_writers(outputs, count)

            def ended() -> bool:
                return all(writer.poll() is not None for writer in writers)

            for shown in follower.until(ended):
                os.write(sink, shown)
        for output in outputs:
            os.close(output)


def pipe_each(command: list[str], sink: int) -> None:
    count = SIZE // len(block()) // len(TASKS)
    relays = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink) for _ in TASKS]
    outputs = [relay.stdin.fileno() for relay in relays if relay.stdin]
    writers = start_writers(outputs, count)
    for relay in relays:
        assert relay.stdin
        relay.stdin.close()
    for process in (*writers, *relays):
        assert process.wait() == 0


def write_unread() -> None:
    """Four tasks write line by line into files, without any launcher."""
    script = SINGLE_LINES.format(lines=_LINES)
    with tempfile.TemporaryDirectory() as folder:
        writers = []
        for log in task_logs(folder):
            with open(log.path, "ab") as output:
                writers.append(subprocess.Popen(["sh", "-c", script], stdout=output))
        for writer in writers:
            assert writer.wait() == 0


def measure() -> dict[str, float]:
    """MB/s of each way to prefix output."""
    sink = os.open(os.devnull, os.O_WRONLY)
    whole, plain = View(TASKS), View(TASKS, startup=StartupFilter())
    colour = View(TASKS, colour=True, startup=StartupFilter())
    grep = View(TASKS, grep=re.compile(rb"step \d*77 "))
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        logs = task_logs(folder)
        size = fill(logs)
        paths = [log.path for log in logs]
        null = subprocess.DEVNULL
        figures["cat, 4 files"] = rate(
            size, lambda: subprocess.run(["cat", *paths], stdout=null, check=True)
        )
        figures["sed s/^/prefix/, 4 files"] = rate(
            size,
            lambda: subprocess.run(["sed", "s/^/worker:0 | /", *paths], stdout=null, check=True),
        )
        figures["merged, prefix, all output"] = rate(size, lambda: show(logs, whole, sink))
        figures["merged, prefix"] = rate(size, lambda: show(logs, plain, sink))
        figures["merged, prefix, colour"] = rate(size, lambda: show(logs, colour, sink))
        figures["merged, grep"] = rate(size, lambda: show(logs, grep, sink))
    with tempfile.TemporaryDirectory() as folder:
        logs, size = ended_job(folder)
        names = [log.task for log in logs]
        command = ["grep", "-c", "step [0-9]*77 ", *(log.path for log in logs)]
        figures["grep, 16 files"] = rate(
            size, lambda: subprocess.run(command, stdout=null, check=True)
        )
        for name, view in (
            ("16 logs of an ended job, merged", View(names, startup=StartupFilter())),
            ("16 logs of an ended job, grep", View(names, grep=re.compile(rb"step \d*77 "))),
        ):
            figures[name] = rate(size, lambda view=view: show(logs, view, sink))
    figures["4 writers, a cat each"] = rate(SIZE, lambda: pipe_each(["cat"], sink))
    figures["4 writers, a sed each"] = rate(
        SIZE, lambda: pipe_each(["sed", "s/^/worker:0 | /"], sink)
    )
    figures["4 writers, Follower"] = rate(SIZE, lambda: follow(sink))
    figures[UNREAD] = rate(len(TASKS) * _LINES * (len(TASK_LINE) + 1), write_unread)
    return figures
