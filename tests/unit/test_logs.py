"""Merging, prefixing and following logs, on real files."""

from __future__ import annotations

import contextlib
import os
import re
import select
import struct
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrun.logs import Follower, TaskLog, View, line_ends, merged
from distrun.logs.lines import LONGEST_LINE, Lines

T0 = 1_700_000_000.0
PLAIN = View(("worker:0", "worker:1", "ps:0"))


class Job:
    """A folder of logs, written as the agent would."""

    def __init__(self, folder: Path, tasks=PLAIN.tasks):
        self.folder = folder
        self.logs = [self._log(task) for task in tasks]

    def _log(self, task: str) -> TaskLog:
        base = str(self.folder / task.replace(":", "-"))
        return TaskLog(task, base + ".log", base + ".idx")

    def write(self, task: str, text: bytes, at: float | None = None) -> None:
        log = self._log(task)
        with open(log.path, "ab") as file:
            file.write(text)
            size = file.tell()
        if at is not None:
            with open(log.index_path, "ab") as file:
                file.write(struct.pack("<dQ", T0 + at, size))
            os.utime(log.path, (T0 + at, T0 + at))

    def shown(self, view: View = PLAIN, **which) -> bytes:
        return b"".join(merged(self.logs, view, **which))


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def follow():
    with contextlib.ExitStack() as stack:

        def start(logs, view=PLAIN, **how) -> Follower:
            follower = Follower(logs, view, **how)
            stack.callback(follower.close)
            return follower

        yield start


def readable(follower: Follower, seconds: float = 5) -> bool:
    return bool(select.select([follower], [], [], seconds)[0])


def caught_up(follower: Follower) -> bytes:
    shown = b""
    while readable(follower, 0):
        shown += b"".join(follower.read())
    return shown


class TestPrefix:
    def test_bars_align_over_all_tasks_of_the_job_whichever_are_shown(self, job):
        job.write("ps:0", b"a\nb\n")
        assert job.shown() == b"ps:0     | a\nps:0     | b\n"

    def test_a_colour_follows_from_the_place_in_the_job(self, job):
        job.write("worker:1", b"x\n")
        view = replace(PLAIN, colour=True)
        everything = job.shown(view)
        job.logs = job.logs[1:2]
        assert job.shown(view) == everything
        assert re.fullmatch(rb"\x1b\[38;5;\d+mworker:1 \|\x1b\[0m x\n", everything)

    def test_neighbours_differ_in_colour(self, job):
        for task in PLAIN.tasks:
            job.write(task, b"x\n", at=0)
        colours = re.findall(rb"38;5;(\d+)", job.shown(replace(PLAIN, colour=True)))
        assert len(set(colours)) == 3

    def test_empty_lines_have_a_prefix_too(self, job):
        job.write("ps:0", b"\n\n")
        assert job.shown() == b"ps:0     | \n" * 2

    def test_bytes_that_are_no_text_pass(self, job):
        junk = bytes(set(range(256)) - set(b"\n\r\x1b\x08\x0b\x0c\x0e\x0f"))
        job.write("worker:0", junk + b"\n")
        assert job.shown() == b"worker:0 | " + junk + b"\n"

    def test_a_missing_final_newline_is_added(self, job):
        job.write("worker:0", b"no end", at=1)
        job.write("worker:1", b"next\n", at=2)
        assert job.shown() == b"worker:0 | no end\nworker:1 | next\n"

    def test_timestamps_are_local_time_of_writing(self, job):
        job.write("worker:0", b"a\nb\n", at=0.25)
        local = datetime.fromtimestamp(T0 + 0.25, tz=timezone.utc).astimezone()
        stamp = local.isoformat(timespec="milliseconds").encode()
        expected = stamp + b" worker:0 | a\n" + stamp + b" worker:0 | b\n"
        assert job.shown(replace(PLAIN, timestamps=True)) == expected


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
        ],
    )
    def test_only_what_a_line_says_is_left(self, job, written, seen):
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
    def test_colours_of_tasks_stay_on_their_line(self, job, written, seen):
        job.write("worker:0", written + b"next\n")
        lines = job.shown(View(("other",), colour=True)).split(b"\n")
        assert lines == [b"worker:0 | " + seen, b"worker:0 | next", b""]

    def test_raw_changes_nothing(self, job):
        job.write("worker:0", b"1%\r2%\x1b[2J\r\nno end")
        job.logs = job.logs[:1]
        assert job.shown(replace(PLAIN, raw=True)) == b"1%\r2%\x1b[2J\r\nno end"

    def test_raw_keeps_the_lines_of_several_tasks_apart(self, job):
        job.write("worker:0", b"no end", at=1)
        job.write("worker:1", b"next\r\n", at=2)
        assert job.shown(replace(PLAIN, raw=True)) == b"no end\nnext\r\n"


class TestMerge:
    def test_by_time_of_writing_then_by_task(self, job):
        job.write("worker:1", b"a\n", at=0.21)
        job.write("worker:0", b"b\n", at=0.29)
        job.write("ps:0", b"c\n", at=0.1)
        job.write("worker:0", b"d\n", at=0.5)
        job.write("worker:1", b"e\n", at=0.4)
        assert b"".join(re.findall(rb"\| (.)", job.shown())) == b"cbaed"

    def test_a_line_belongs_where_it_was_finished(self, job):
        job.write("worker:0", b"be", at=0)
        job.write("worker:1", b"x\n", at=1)
        job.write("worker:0", b"gun\n", at=2)
        assert job.shown() == b"worker:1 | x\nworker:0 | begun\n"

    def test_bytes_newer_than_the_index_come_at_the_log_s_last_growth(self, job):
        job.write("worker:0", b"a\n", at=0)
        job.write("worker:0", b"late\n")
        os.utime(job.logs[0].path, (T0 + 9, T0 + 9))
        job.write("worker:1", b"x\n", at=5)
        assert job.shown() == b"worker:0 | a\nworker:1 | x\nworker:0 | late\n"

    def test_a_torn_index_record_is_left_out(self, job):
        job.write("worker:0", b"a\n", at=0)
        with open(job.logs[0].index_path, "ab") as index:
            index.write(struct.pack("<dQ", T0 + 1, 7)[:11])
        job.write("worker:1", b"b\n", at=1)
        assert job.shown() == b"worker:0 | a\nworker:1 | b\n"
        assert job.shown(since=T0 + 0.5) == b"worker:1 | b\n"

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(st.binary(max_size=100))
    def test_a_damaged_index_loses_no_line(self, tmp_path_factory, junk):
        job = Job(tmp_path_factory.mktemp("job"))
        Path(job.logs[0].index_path).write_bytes(junk)
        job.write("worker:0", b"a\nb\n")
        assert job.shown() == b"worker:0 | a\nworker:0 | b\n"
        job.shown(replace(PLAIN, timestamps=True), since=T0, last=1)

    def test_no_index_and_no_log(self, job):
        assert job.shown() == b""
        job.write("worker:0", b"a\n")
        assert job.shown(since=T0) == b"worker:0 | a\n"

    def test_a_clock_that_is_set_back_keeps_the_order(self, job):
        job.write("worker:0", b"a\n", at=5)
        job.write("worker:0", b"b\n", at=1)
        job.write("worker:1", b"c\n", at=2)
        assert job.shown() == b"worker:1 | c\nworker:0 | a\nworker:0 | b\n"

    def test_a_line_without_end_comes_in_pieces(self, job):
        job.write("worker:0", b"x" * (3 * LONGEST_LINE) + b"\nend\n")
        pieces = job.shown().split(b"\n")
        assert b"".join(p.removeprefix(b"worker:0 | ") for p in pieces[:-2]) == b"x" * 3 * (1 << 20)
        assert pieces[-2:] == [b"worker:0 | end", b""]


class TestSelection:
    @pytest.fixture
    def spread(self, job):
        """Lines 0 to 39999, a tenth of a second each, in turn by three tasks."""
        for number in range(300):
            text = b"".join(b"%05d\n" % i for i in range(number * 100, number * 100 + 100))
            job.write(PLAIN.tasks[number % 3], text, at=number / 10)
        return job

    def numbers(self, shown: bytes) -> list[int]:
        return [int(line.partition(b"| ")[2]) for line in shown.splitlines()]

    @pytest.mark.parametrize("last", [0, 1, 10, 99, 100, 101, 250, 12345, 30000, 99999])
    def test_the_last_lines_over_all_tasks(self, spread, last):
        assert (
            self.numbers(spread.shown(last=last)) == list(range(30000))[30000 - min(last, 30000) :]
        )

    @pytest.mark.parametrize("last", [1, 3, 17])
    def test_the_last_lines_that_match(self, spread, last):
        view = replace(PLAIN, grep=re.compile(rb"^\d*0{3}$"))
        assert self.numbers(spread.shown(view, last=last)) == list(range(0, 30000, 1000))[-last:]

    def test_the_last_of_an_unfinished_line(self, job):
        job.write("worker:0", b"a\nb\nc")
        assert job.shown(last=2) == b"worker:0 | b\nworker:0 | c\n"

    def test_few_lines_of_a_large_log_read_only_its_end(self, job, monkeypatch):
        job.write("worker:0", b"0123456789abcde\n" * 500_000, at=1)
        read = []
        whole = TaskLog.read
        monkeypatch.setattr(
            TaskLog, "read", lambda log, at, size: read.append(size) or whole(log, at, size)
        )
        assert job.shown(last=10).count(b"\n") == 10
        assert sum(read) < 300_000

    def test_paging_begins_at_once(self, job, monkeypatch):
        job.write("worker:0", b"0123456789abcde\n" * 500_000, at=1)
        read = []
        whole = TaskLog.read
        monkeypatch.setattr(
            TaskLog, "read", lambda log, at, size: read.append(size) or whole(log, at, size)
        )
        assert next(merged(job.logs, PLAIN))
        assert sum(read) < 300_000

    def test_since(self, spread):
        assert self.numbers(spread.shown(since=T0 + 20)) == list(range(20000, 30000))
        assert spread.shown(since=T0 + 999) == b""
        assert len(spread.shown(since=T0 - 999).splitlines()) == 30000

    def test_since_and_last(self, spread):
        assert self.numbers(spread.shown(since=T0 + 29.9, last=300)) == list(range(29900, 30000))
        assert self.numbers(spread.shown(since=T0 + 20, last=3)) == [29997, 29998, 29999]

    def test_since_shows_the_whole_of_a_line_that_was_finished_then(self, job):
        job.write("worker:0", b"a\nbe", at=0)
        job.write("worker:0", b"gun\n", at=5)
        assert job.shown(since=T0 + 4) == b"worker:0 | begun\n"

    def test_grep_sees_the_line_as_it_is_shown(self, job):
        job.write("worker:0", b"\x1b[31mERROR\x1b[0m a\nno ERROR\n10%\rERROR b\nworker\n", at=0)
        view = replace(PLAIN, grep=re.compile(rb"^ERROR"))
        assert job.shown(view) == b"worker:0 | ERROR a\nworker:0 | ERROR b\n"
        assert job.shown(replace(PLAIN, grep=re.compile(rb"worker|\|"))) == b"worker:0 | worker\n"

    def test_grep_keeps_the_colours_of_what_it_finds(self, job):
        job.write("worker:0", b"\x1b[31mERROR\x1b[0m\n")
        view = View((), colour=True, grep=re.compile(rb"^ERROR$"))
        assert job.shown(view) == b"worker:0 | \x1b[31mERROR\x1b[0m\n"


class TestFollower:
    def test_silent_until_something_is_written(self, job, follow):
        follower = follow(job.logs)
        assert caught_up(follower) == b""
        assert not readable(follower, 0)
        job.write("worker:0", b"a\n")
        assert readable(follower)
        assert caught_up(follower) == b"worker:0 | a\n"
        assert not readable(follower, 0)

    def test_a_log_that_comes_later(self, job, follow):
        follower = follow(job.logs)
        caught_up(follower)
        job.write("ps:0", b"later\n")
        assert readable(follower)
        assert caught_up(follower) == b"ps:0     | later\n"

    def test_an_unfinished_line_waits_for_its_end(self, job, follow):
        follower = follow(job.logs)
        job.write("worker:0", b"be")
        assert caught_up(follower) == b""
        job.write("worker:1", b"x\n")
        assert caught_up(follower) == b"worker:1 | x\n"
        job.write("worker:0", b"gun\nnext")
        assert caught_up(follower) == b"worker:0 | begun\n"
        assert b"".join(follower.finish()) == b"worker:0 | next\n"

    def test_finish_reads_what_nobody_has_read(self, job, follow):
        follower = follow(job.logs)
        job.write("worker:0", b"a\n" * 200_000 + b"b")
        shown = b"".join(follower.finish())
        assert shown == b"worker:0 | a\n" * 200_000 + b"worker:0 | b\n"

    def test_one_task_s_raw_bytes_come_as_they_are_written(self, job, follow):
        follower = follow(job.logs[:1], replace(PLAIN, raw=True))
        job.write("worker:0", b"50%\r")
        assert caught_up(follower) == b"50%\r"
        job.write("worker:0", b"100%")
        assert caught_up(follower) == b"100%"
        assert b"".join(follower.finish()) == b""

    @pytest.mark.parametrize("last", [None, 0, 2])
    def test_continues_where_the_tail_ended(self, job, follow, last):
        job.write("worker:0", b"a\nb\nc\nunfin", at=1)
        job.write("worker:1", b"x", at=1)
        ends = line_ends(job.logs)
        job.write("worker:0", b"ished\nd\n", at=2)
        tail = job.shown(ends=ends, last=last)
        assert tail == b"".join(
            b"worker:0 | %c\n" % c for c in b"abc"[3 if last == 0 else last and -last :]
        )
        follower = follow(job.logs, starts=ends)
        assert caught_up(follower) == b"worker:0 | unfinished\nworker:0 | d\n"
        assert b"".join(follower.finish()) == b"worker:1 | x\n"

    def test_a_flood_does_not_starve_the_others(self, job, follow):
        job.write("worker:0", b"flood\n" * 500_000)
        job.write("worker:1", b"here\n")
        follower = follow(job.logs)
        first = b"".join(follower.read())
        assert b"worker:1 | here\n" in first
        assert len(first) < 1_000_000
        assert readable(follower, 0)
        assert (first + caught_up(follower)).count(b"flood\n") == 500_000

    def test_a_log_that_was_cut_off_is_read_from_its_beginning(self, job, follow):
        follower = follow(job.logs)
        job.write("worker:0", b"a\nb\n")
        caught_up(follower)
        os.truncate(job.logs[0].path, 0)
        caught_up(follower)
        job.write("worker:0", b"c\n")
        assert caught_up(follower) == b"worker:0 | c\n"

    def test_without_inotify_it_is_to_be_polled(self, job, follow, monkeypatch):
        def used_up() -> None:
            raise OSError(24, "inotify_init1: Too many open files")

        monkeypatch.setattr("distrun.logs.follow.Inotify", used_up)
        follower = follow(job.logs)
        assert follower.poll_interval == 0.1
        assert follower.read() == []
        job.write("worker:0", b"a\n")
        assert follower.read() == [b"worker:0 | a\n"]
        job.write("worker:0", b"b\n")
        asked = iter([False, False, True])
        assert list(follower.until(lambda: next(asked))) == [b"worker:0 | b\n"]

    def test_a_folder_that_is_not_there_yet_is_polled(self, tmp_path, follow):
        job = Job(tmp_path / "later")
        follower = follow(job.logs)
        assert follower.poll_interval is not None
        job.folder.mkdir()
        job.write("worker:0", b"a\n")
        assert follower.read() == [b"worker:0 | a\n"]

    def test_until_asks_when_it_is_woken(self, job, follow):
        reading, writing = os.pipe()
        follower = follow(job.logs)
        job.write("worker:0", b"a\n")

        def ended() -> bool:
            return bool(select.select([reading], [], [], 0)[0]) and bool(os.read(reading, 1))

        shown = []
        for block in follower.until(ended, wake=reading):
            shown.append(block)
            job.write("worker:0", b"unfinished")
            os.write(writing, b".")
        os.close(reading)
        os.close(writing)
        assert shown[0] == b"worker:0 | a\n"
        assert b"".join(shown).count(b"worker:0 | ") == 2

    def test_leaves_no_descriptor_open(self, job):
        before = os.listdir("/proc/self/fd")
        Follower(job.logs, PLAIN).close()
        assert os.listdir("/proc/self/fd") == before


class TestLines:
    @given(st.lists(st.binary(max_size=20)))
    def test_whatever_the_chunks_the_lines_are_the_same(self, chunks):
        lines = Lines()
        out = b"".join(map(lines.feed, chunks)) + lines.flush()
        whole = b"".join(chunks)
        assert out == whole + (b"\n" if whole and not whole.endswith(b"\n") else b"")

    def test_a_long_line_is_cut_between_characters(self):
        lines = Lines()
        text = "x" + "\N{EURO SIGN}" * LONGEST_LINE
        out = b"".join(
            lines.feed(text.encode()[i : i + 100_000]) for i in range(0, len(text) * 3, 100_000)
        )
        out += lines.flush()
        pieces = out.split(b"\n")
        assert "".join(piece.decode() for piece in pieces) == text
        assert max(map(len, pieces)) <= LONGEST_LINE


texts = st.binary(max_size=40).map(lambda text: text.replace(b"~", b"\n")) | st.sampled_from(
    [b"\n", b"a\n", b"a", b"\xff\xfe\n", b"\n\n", b"tail"]
)
writes = st.lists(st.tuples(st.sampled_from(PLAIN.tasks), texts, st.integers(0, 30)), max_size=30)
FOLDERS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def lines_of(task: str, shown: bytes) -> list[bytes]:
    prefix = b"%-8s | " % task.encode()
    return [line.removeprefix(prefix) for line in shown.split(b"\n") if line.startswith(prefix)]


def lines_written(text: bytes) -> list[bytes]:
    kept = text.split(b"\n")
    return kept if kept[-1] else kept[:-1]


class TestNothingLost:
    """For any writes of several tasks, in raw terms: the bytes of each task, in order."""

    @FOLDERS
    @given(writes, st.data())
    def test_followed_in_any_chunks(self, tmp_path_factory, written, data):
        written = [
            (t, re.sub(rb"[\r\x1b\x08\x0b-\x0f]", b"?", text), at) for t, text, at in written
        ]
        job = Job(tmp_path_factory.mktemp("job"))
        texts = dict.fromkeys(PLAIN.tasks, b"")
        half = data.draw(st.integers(0, len(written)))
        for task, text, at in written[:half]:
            job.write(task, text, at=at)
            texts[task] += text
        ends = line_ends(job.logs)
        shown = job.shown(ends=ends)
        with contextlib.closing(Follower(job.logs, PLAIN, starts=ends)) as follower:
            for task, text, at in written[half:]:
                job.write(task, text, at=at)
                texts[task] += text
                if data.draw(st.booleans()):
                    shown += b"".join(follower.read())
            shown += b"".join(follower.finish())
        everything = job.shown()
        for task, text in texts.items():
            assert lines_of(task, shown) == lines_written(text)
            assert lines_of(task, everything) == lines_written(text)
        assert sorted(shown.split(b"\n")) == sorted(everything.split(b"\n"))

    @FOLDERS
    @given(writes, st.integers(0, 20), st.none() | st.integers(-1, 31))
    def test_the_tail_is_the_end_of_the_whole(self, tmp_path_factory, written, last, since):
        job = Job(tmp_path_factory.mktemp("job"))
        for task, text, at in sorted(written, key=lambda write: write[2]):
            job.write(task, text, at=at)
        when = None if since is None else T0 + since
        whole = job.shown(since=when).split(b"\n")[:-1]
        assert (
            job.shown(since=when, last=last).split(b"\n")[:-1]
            == whole[len(whole) - min(last, len(whole)) :]
        )

    @FOLDERS
    @given(st.binary())
    def test_one_task_raw(self, tmp_path_factory, text):
        job = Job(tmp_path_factory.mktemp("job"), tasks=("worker:0",))
        job.write("worker:0", text)
        assert job.shown(replace(PLAIN, raw=True)) == text

    @FOLDERS
    @given(st.binary(), st.booleans())
    def test_whatever_is_written_the_cursor_stays(self, tmp_path_factory, text, colour):
        job = Job(tmp_path_factory.mktemp("job"), tasks=("worker:0",))
        job.write("worker:0", text)
        shown = job.shown(View((), colour=colour))
        assert not re.search(rb"\x1b(?!\[[0-9;:]*m)|[\r\x08\x0b\x0c\x0e\x0f]", shown)
        assert shown.count(b"\n") == len(lines_written(text))
