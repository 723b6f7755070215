"""Merging, prefixing and choosing from logs, on real files."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrun.logs import TaskLog, View, merged
from harness.logs import PLAIN, T0, Job


class TestPrefix:
    def test_a_colour_follows_from_the_place_in_the_job(self, job: Job) -> None:
        job.write("worker:1", b"x\n")
        view = replace(PLAIN, colour=True)
        everything = job.shown(view)
        job.logs = job.logs[1:2]
        assert job.shown(view) == everything
        assert re.fullmatch(rb"\x1b\[38;5;\d+mworker:1 \|\x1b\[0m x\n", everything)

    def test_bytes_that_are_no_text_pass(self, job: Job) -> None:
        harmful = {*b"\n\r\x1b\0\x05\x08\x0b\x0c\x0e\x0f", *range(0x80, 0xA0)}
        junk = bytes(set(range(256)) - harmful)
        job.write("worker:0", junk + b"\n")
        assert job.shown() == b"worker:0 | " + junk + b"\n"

    def test_timestamps_are_local_time_of_writing(self, job: Job) -> None:
        job.write("worker:0", b"a\nb\n", at=0.25)
        job.write("worker:0", b"c\n", at=7)
        times = [T0 + 0.25, T0 + 0.25, T0 + 7]
        local = [datetime.fromtimestamp(t, tz=timezone.utc).astimezone() for t in times]
        expected = [
            f"{when.isoformat(timespec='milliseconds')} worker:0 | {text}"
            for when, text in zip(local, "abc", strict=True)
        ]
        view = replace(PLAIN, timestamps=True)
        assert job.shown(view).decode().splitlines() == expected
        assert job.shown(replace(view, raw=True)).startswith(expected[0].encode()[:30] + b"a\n")


class TestTerminal:
    @pytest.mark.parametrize(
        ("written", "seen"),
        [
            (b"10%\r20%\r100%\n", b"100%"),
            (b"\r10%\r100%\r\n", b"100%"),
            (b"windows\r\n", b"windows"),
            (b"\r     \rdone\n", b"done"),
            (b"\r\r\n", b""),
            (b"\x1b[2K\x1b[1Gtext\x1b[3A\n", b"text"),
            (b"100%\r\x1b[K\n", b"100%"),
            (b"\x1b[2J\x1b[H\x1b[?25lclear\x1bc\n", b"clear"),
            (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", b"textlink"),
            (b"\x1bPdevice\x1b\\text\n", b"text"),
            (b"cut \x1b]0;off\n", b"cut 0;off"),
            (b"cut \x1b[1\n", b"cut 1"),
            (b"cut \x1b\n", b"cut "),
            (b"ab\x08\x08\x0e\x0ccd\n", b"abcd"),
            (b"\x1b[31mred\x1b[0m\n", b"red"),
            # OSC 52 writes the clipboard; C1 characters introduce it as ESC ] does.
            ("\x9d52;c;eA==\x9c\n".encode(), b"52;c;eA=="),
            (b"\x9d52;c;eA==\x9c\n", b"52;c;eA=="),
            (b"\xe9t\xe9 \x9b2J\n", b"\xe9t\xe9 2J"),
            ("é \x9b2J 日本 \x80\n".encode(), "é 2J 日本 ".encode()),
            (b"\xc2\x05\x9b2J\n", b"2J"),
            (b"\xc2\x1b[m\x9b2J\n", b"\xc2" + b"2J"),
            (b"\xe2\x80\x1b[m\xae.\n", b"\xe2\xae."),
            (b"\xc2\xc2\x9b\x9b2J\n", b"\xc2" + b"2J"),
            (b"a\0b\x05c\n", b"abc"),
            ("x\u202egnp.exe\u2066y\u2069\n".encode(), b"xgnp.exey"),
            ("naïve “quotes” € \U0001f600\n".encode(), "naïve “quotes” € \U0001f600".encode()),
        ],
    )
    def test_only_what_a_line_says_is_left(self, job: Job, written: Any, seen: Any) -> None:
        job.write("worker:0", written)
        assert job.shown() == b"worker:0 | " + seen + b"\n"

    @pytest.mark.parametrize(
        ("written", "seen"),
        [
            (b"\x1b[31mred\x1b[0m\n", b"\x1b[31mred\x1b[0m"),
            (b"\x1b[1mk\x1b[m\n", b"\x1b[1mk\x1b[m"),
            (b"\x1b[38;5;9mleft on\n", b"\x1b[38;5;9mleft on\x1b[0m"),
            (b"\x1b[31mdos\r\n", b"\x1b[31mdos\x1b[0m"),
            (b"\x1b[31m1%\r\x1b[32m2%\x1b[K\n", b"\x1b[32m2%\x1b[0m"),
        ],
    )
    def test_colours_of_tasks_stay_on_their_line(self, job: Job, written: Any, seen: Any) -> None:
        job.write("worker:0", written + b"next\n")
        lines = job.shown(View(("other",), colour=True)).split(b"\n")
        assert lines == [b"worker:0 | " + seen, b"worker:0 | next", b""]

    def test_raw_keeps_the_lines_of_several_tasks_apart(self, job: Job) -> None:
        job.write("worker:0", b"no end", at=1)
        job.write("worker:1", b"next\r\n", at=2)
        assert job.shown(replace(PLAIN, raw=True)) == b"no end\nnext\r\n"


def read_sizes(job: Job) -> list[int]:
    """The sizes of all reads of the job's logs from now on."""
    sizes = []

    class CountingLog(TaskLog):
        def read(self, offset: int, size: int) -> bytes:
            sizes.append(size)
            return super().read(offset, size)

    job.logs = [CountingLog(log.task, log.path, log.index_path) for log in job.logs]
    return sizes


Lines = list[tuple[str, bytes, float | None]]
W0, W1, PS = PLAIN.tasks
MERGED: dict[str, tuple[Lines, float | None, bytes]] = {
    "by time of writing, then by task": (
        [(W1, b"a\n", 0.21), (W0, b"b\n", 0.29), (PS, b"c\n", 0.1), (W0, b"d\n", 0.5),
         (W1, b"e\n", 0.4)], None,
        b"ps:0     | c\nworker:0 | b\nworker:1 | a\nworker:1 | e\nworker:0 | d\n"),
    "a line belongs where it was finished": (
        [(W0, b"be", 0), (W1, b"x\n", 1), (W0, b"gun\n", 2)], None,
        b"worker:1 | x\nworker:0 | begun\n"),
    "a clock that is set back keeps the order": (
        [(W0, b"a\n", 5), (W0, b"b\n", 1), (W1, b"c\n", 2)], None,
        b"worker:1 | c\nworker:0 | a\nworker:0 | b\n"),
    "nothing": ([], None, b""),
    "no index": ([(W0, b"a\n", None)], 0, b"worker:0 | a\n"),
    "since shows the whole of a line that was finished then": (
        [(W0, b"a\nbe", 0), (W0, b"gun\n", 5)], 4, b"worker:0 | begun\n"),
}  # fmt: skip
"""What tasks write and when, since when it is shown, and what is shown."""


class TestMerge:
    @pytest.mark.parametrize("case", MERGED)
    def test_what_is_shown_of_several_tasks(self, job: Job, case: str) -> None:
        written, since, shown = MERGED[case]
        for task, text, at in written:
            job.write(task, text, at=at)
        assert job.shown(since=None if since is None else T0 + since) == shown

    def test_bytes_newer_than_the_index_come_at_the_log_s_last_growth(self, job: Job) -> None:
        job.write("worker:0", b"a\n", at=0)
        job.write("worker:0", b"late\n")
        os.utime(job.logs[0].path, (T0 + 9, T0 + 9))
        job.write("worker:1", b"x\n", at=5)
        assert job.shown() == b"worker:0 | a\nworker:1 | x\nworker:0 | late\n"

    def test_a_torn_index_record_is_left_out(self, job: Job) -> None:
        job.write("worker:0", b"a\n", at=0)
        with open(job.logs[0].index_path, "ab") as index:
            index.write(struct.pack("<dQ", T0 + 1, 7)[:11])
        job.write("worker:1", b"b\n", at=1)
        assert job.shown() == b"worker:0 | a\nworker:1 | b\n"
        assert job.shown(since=T0 + 0.5) == b"worker:1 | b\n"

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(st.binary(max_size=100))
    def test_a_damaged_index_loses_no_line(
        self, tmp_path_factory: pytest.TempPathFactory, junk: bytes
    ) -> None:
        job = Job(tmp_path_factory.mktemp("job"))
        Path(job.logs[0].index_path).write_bytes(junk)
        job.write("worker:0", b"a\nb\n")
        assert job.shown() == b"worker:0 | a\nworker:0 | b\n"
        job.shown(replace(PLAIN, timestamps=True), since=T0, last=1)


class TestSelection:
    @pytest.fixture
    def spread(self, job: Job) -> Any:
        """Lines 0 to 39999, a tenth of a second each, in turn by three tasks."""
        for number in range(300):
            text = b"".join(b"%05d\n" % i for i in range(number * 100, number * 100 + 100))
            job.write(PLAIN.tasks[number % 3], text, at=number / 10)
        return job

    def numbers(self, shown: bytes) -> list[int]:
        return [int(line.partition(b"| ")[2]) for line in shown.splitlines()]

    @pytest.mark.parametrize("last", [0, 1, 10, 99, 100, 101, 250, 12345, 30000, 99999])
    def test_the_last_lines_over_all_tasks(self, spread: Any, last: int) -> None:
        assert (
            self.numbers(spread.shown(last=last)) == list(range(30000))[30000 - min(last, 30000) :]
        )

    @pytest.mark.parametrize("last", [1, 3, 17])
    def test_the_last_lines_that_match(self, spread: Any, last: int) -> None:
        view = replace(PLAIN, grep=re.compile(rb"^\d*0{3}$"))
        assert self.numbers(spread.shown(view, last=last)) == list(range(0, 30000, 1000))[-last:]

    def test_few_lines_of_a_large_log_read_only_its_end_and_paging_begins_at_once(
        self, job: Job
    ) -> None:
        job.write("worker:0", b"0123456789abcde\n" * 500_000, at=1)
        read = read_sizes(job)
        assert job.shown(last=10).count(b"\n") == 10
        assert sum(read) < 300_000
        read.clear()
        assert next(merged(job.logs, PLAIN))
        assert sum(read) < 300_000

    def test_since(self, spread: Any) -> None:
        assert self.numbers(spread.shown(since=T0 + 20)) == list(range(20000, 30000))
        assert spread.shown(since=T0 + 999) == b""
        assert len(spread.shown(since=T0 - 999).splitlines()) == 30000

    def test_since_shows_an_unfinished_line_only_if_it_has_grown_since(self, job: Job) -> None:
        job.write("worker:0", b"a\nb", at=1)
        assert job.shown(since=T0 + 0.5) == b"worker:0 | a\nworker:0 | b\n"
        assert job.shown(since=T0 + 2) == b""
        # A copy comes later than what it is a copy of.
        os.utime(job.logs[0].path, (T0 + 9, T0 + 9))
        assert job.shown(since=T0 + 2) == b""
        job.write("worker:0", b"b", at=3)
        assert job.shown(since=T0 + 2) == b"worker:0 | bb\n"

    def test_grep_sees_the_line_as_it_is_shown_and_keeps_its_colours(self, job: Job) -> None:
        job.write("worker:0", b"\x1b[31mERROR\x1b[0m a\nno ERROR\n10%\rERROR b\nworker\n", at=0)
        view = replace(PLAIN, grep=re.compile(rb"^ERROR"))
        assert job.shown(view) == b"worker:0 | ERROR a\nworker:0 | ERROR b\n"
        assert job.shown(replace(PLAIN, grep=re.compile(rb"worker|\|"))) == b"worker:0 | worker\n"
        view = View((), colour=True, grep=re.compile(rb"^ERROR a$"))
        assert job.shown(view) == b"worker:0 | \x1b[31mERROR\x1b[0m a\n"

    @pytest.mark.parametrize(
        "pattern",
        [
            *("loss", "^step 1", r"9$", r"\d+77 ", "(?i)LOSS|acc", "", "$", "^$", "x*"),
            *(r"\Astep 7", r"9\Z", r"9(?!\s)", r"(?<!\s)step", "[^ ]+ 0.1", r"s\s*$", r"\Bp"),
            *("(?i-m:^STEP)", "(?is)STEP.*9$"),
        ],
    )
    def test_grep_finds_in_blocks_what_it_finds_in_each_line(self, job: Job, pattern: str) -> None:
        lines = [b"step %d loss 0.%d" % (n, n) if n % 7 else b"" for n in range(3000)]
        job.write("worker:0", b"\n".join(lines[:1000]), at=1)
        job.write("worker:0", b"\n" + b"\n".join(lines[1000:]), at=2)
        grep = re.compile(pattern.encode())
        matching = [line for line in lines if grep.search(line)]
        view = replace(PLAIN, grep=grep, raw=True)
        assert job.shown(view).split(b"\n")[:-1] == matching
        assert job.shown(view, last=5).split(b"\n")[:-1] == matching[-5:]
