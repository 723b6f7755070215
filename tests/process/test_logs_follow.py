"""Following the logs of processes that are still writing."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from distrun.logs import Follower, TaskLog, View, line_ends, merged
from harness.waiting import wait_until

LINES = 50_000
# Writes numbered lines as tasks do, in pieces that end anywhere.
WRITER = """
import os, random, sys
seed, lines = int(sys.argv[1]), int(sys.argv[2])
text = b"".join(b"%d:%d:%s\\n" % (seed, i, b"x" * (i % 90)) for i in range(lines))
pieces = random.Random(seed)
at = 0
while at < len(text):
    at += os.write(1, text[at : at + pieces.choice((1, 7, 80, 900, 9000, 90000))])
"""


def task_logs(folder: Path, count: int) -> list[TaskLog]:
    return [
        TaskLog(f"worker:{i}", str(folder / f"worker-{i}.log"), str(folder / f"worker-{i}.idx"))
        for i in range(count)
    ]


def view_of(logs: list[TaskLog]) -> View:
    return View([log.task for log in logs])


def start_writers(logs: list[TaskLog], lines: int) -> list[subprocess.Popen[bytes]]:
    writers = []
    for seed, log in enumerate(logs):
        with open(log.path, "ab") as output:
            command = [sys.executable, "-S", "-c", WRITER, str(seed), str(lines)]
            writers.append(subprocess.Popen(command, stdout=output))
    return writers


def expected(seed: int, lines: int) -> list[bytes]:
    return [b"worker:%d | %d:%d:%s" % (seed, seed, i, b"x" * (i % 90)) for i in range(lines)]


def check(shown: bytes, writers: int, lines: int) -> None:
    by_task: dict[bytes, list[bytes]] = {}
    every = shown.split(b"\n")
    assert every.pop() == b""
    for line in every:
        by_task.setdefault(line[:8], []).append(line)
    for seed in range(writers):
        assert by_task.pop(b"worker:%d" % seed) == expected(seed, lines)
    assert not by_task


def exited(writers: list[subprocess.Popen[bytes]]) -> bool:
    return all([writer.poll() is not None for writer in writers])  # noqa: C419 - reap each


def test_no_line_of_four_writers_is_damaged(tmp_path: Path) -> None:
    logs = task_logs(tmp_path, 4)
    with contextlib.closing(Follower(logs, view_of(logs))) as follower:
        writers = start_writers(logs, LINES)
        shown = b"".join(follower.until(lambda: exited(writers)))
    check(shown, 4, LINES)


def test_the_last_lines_and_what_follows_them_are_complete(tmp_path: Path) -> None:
    logs = task_logs(tmp_path, 4)
    writers = start_writers(logs, LINES)
    with contextlib.closing(Follower(logs, view_of(logs))) as begun:
        select.select([begun], [], [], 10)
        while not any(begun.read()):  # some have written, and go on
            select.select([begun], [], [], 10)
    ends = line_ends(logs)
    shown = b"".join(merged(logs, view_of(logs), ends=ends))
    with contextlib.closing(Follower(logs, view_of(logs), starts=ends)) as follower:
        shown += b"".join(follower.until(lambda: exited(writers)))
    check(shown, 4, LINES)


def test_each_line_is_noticed(tmp_path: Path) -> None:
    """The writer prints each line after the one before has been seen."""
    logs = task_logs(tmp_path, 16)
    writer = "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)\n"
    with contextlib.closing(Follower(logs, View([]))) as follower:
        with open(logs[7].path, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", writer], stdin=subprocess.PIPE, stdout=output
            )
        assert process.stdin
        assert follower.poll_interval is None
        for number in range(20):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            blocks: list[bytes] = []
            deadline = time.monotonic() + 30
            while not blocks:
                assert time.monotonic() < deadline
                select.select([follower], [], [], follower.poll_interval or 30)
                blocks = follower.read()
            assert blocks == [b"worker:7 | %d\n" % number]
        process.stdin.close()
        assert process.wait(30) == 0


def test_idle_tasks_cost_nothing(tmp_path: Path) -> None:
    logs = task_logs(tmp_path, 16)
    for log in logs:
        Path(log.path).write_bytes(b"started\n")
    with contextlib.closing(Follower(logs, view_of(logs))) as follower:
        while select.select([follower], [], [], 0)[0]:
            follower.read()
        before = resource.getrusage(resource.RUSAGE_THREAD)
        assert follower.poll_interval is None
        assert select.select([follower], [], [], 1) == ([], [], [])
        after = resource.getrusage(resource.RUSAGE_THREAD)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.005


@pytest.mark.parametrize("signal_from", ["pipe", "time"])
def test_following_ends_although_nothing_is_written(tmp_path: Path, signal_from: str) -> None:
    logs = task_logs(tmp_path, 1)
    reading, writing = os.pipe()
    ended = threading.Event()

    def end() -> None:
        ended.set()
        os.write(writing, b".")

    timer = threading.Timer(0.05, end)
    with contextlib.closing(Follower(logs, view_of(logs))) as follower:
        timer.start()
        wake = reading if signal_from == "pipe" else None
        assert list(follower.until(ended.is_set, wake=wake)) == []
    timer.join()
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("most_open", [100, 1])
def test_logs_that_are_open_are_followed_after_their_removal(
    tmp_path: Path, most_open: int
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    logs = task_logs(folder, 2)
    outputs = [open(log.path, "ab", buffering=0) for log in logs]  # noqa: SIM115
    with contextlib.closing(Follower(logs, view_of(logs), most_open=most_open)) as follower:
        blocks: list[bytes] = []

        def has_shown(count: int) -> bool:
            select.select([follower], [], [], follower.poll_interval)
            blocks.extend(follower.read())
            return len(blocks) == count

        for output in outputs:
            output.write(b"before\n")
        wait_until(lambda: has_shown(2), timeout=30)
        assert not follower.has_lost_output
        shutil.rmtree(folder)
        wait_until(lambda: has_shown(2) and follower.poll_interval is not None, timeout=30)
        for output in outputs:
            output.write(b"after\n")
            output.close()
        wait_until(lambda: has_shown(4 if most_open > 1 else 3), timeout=30)
        assert list(follower.finish()) == []
        assert follower.has_lost_output == (most_open == 1)


def test_a_log_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    logs = task_logs(tmp_path, 1)
    path = Path(logs[0].path)
    path.write_bytes(b"the first line\n")
    with contextlib.closing(Follower(logs, view_of(logs))) as follower:
        assert follower.read() == [b"worker:0 | the first line\n"]
        path.with_suffix(".new").write_bytes(b"anew\n")
        path.with_suffix(".new").rename(path)
        assert list(follower.finish()) == [b"worker:0 | anew\n"]
