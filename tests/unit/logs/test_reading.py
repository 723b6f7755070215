"""Merging, prefixing, choosing from and following logs, on real files: nothing lost or doubled."""

import contextlib
import os
import re
import select
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.logs import PLAIN, T0, Follow, Job, caught_up, readable
from harness.parts.linux import Inotify
from harness.parts.logs import LONGEST_LINE, Follower, LineBuffer, TaskLog, View, line_ends, merged
from harness.parts.logs import follower as follower_module
from harness.tables import read_table


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

    @pytest.mark.parametrize(
        ("zone", "ahead", "shown"), [("XXX-5:30", 19800, "+05:30"), ("XXX+24", -86400, "-24:00")]
    )
    def test_timestamps_are_local_time_of_writing(
        self, job: Job, monkeypatch: pytest.MonkeyPatch, zone: str, ahead: int, shown: str
    ) -> None:
        job.write("worker:0", b"a\n", at=0.25)
        job.write("worker:0", b"b\n", at=7)
        view = replace(PLAIN, timestamps=True)
        with monkeypatch.context() as changed:
            changed.setenv("TZ", zone)
            time.tzset()
            lines, raw = job.shown(view).decode(), job.shown(replace(view, raw=True))
        time.tzset()
        a, b = (
            time.strftime(f"%Y-%m-%dT%H:%M:%S.{part}{shown}", time.gmtime(T0 + seconds + ahead))
            for seconds, part in ((0, "250"), (7, "000"))
        )
        assert lines == f"{a} worker:0 | a\n{b} worker:0 | b\n"
        assert raw == f"{a} a\n{b} b\n".encode()


def bytes_of(section: str) -> list[tuple[bytes, bytes]]:
    table = read_table(Path(__file__).with_name("on_a_terminal.txt"), section)
    seen = (each.encode().decode("unicode_escape").encode("latin-1") for each in table.values())
    return [*zip((each.encode("latin-1") for each in table), seen, strict=True)]


class TestTerminal:
    @pytest.mark.parametrize(("written", "seen"), bytes_of("plain"))
    def test_only_what_a_line_says_is_left(self, job: Job, written: bytes, seen: bytes) -> None:
        job.write("worker:0", written)
        assert job.shown() == b"worker:0 | " + seen + b"\n"

    @pytest.mark.parametrize(("written", "seen"), bytes_of("in colour"))
    def test_colours_of_tasks_stay_on_their_line(
        self, job: Job, written: bytes, seen: bytes
    ) -> None:
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
    "nothing": ([], None, b""), "no index": ([(W0, b"a\n", None)], 0, b"worker:0 | a\n"),
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
    def test_a_damaged_index(self, tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
        job = Job(tmp_path_factory.mktemp("job"))
        Path(job.logs[0].index_path).write_bytes(junk)
        job.write("worker:0", b"a\nb\n")
        assert job.shown() == b"worker:0 | a\nworker:0 | b\n"
        job.shown(replace(PLAIN, timestamps=True), since=T0, last=1)

    def test_of_a_long_bar_the_last_state_is_one_of_the_last_lines(self, job: Job) -> None:
        bar = b"".join(b"\r%7d/9999999" % number for number in range(200_000))
        job.write("worker:0", b"before\n" + bar + b"\n")
        shown = job.shown(last=2).splitlines()
        assert (len(shown), shown[0]) == (2, b"worker:0 | before")


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

    @pytest.mark.parametrize("last", [0, 1, 101, 12345, 99999])
    def test_the_last_lines_over_all_tasks(self, spread: Any, last: int) -> None:
        assert self.numbers(spread.shown(last=last)) == [*range(max(0, 30000 - last), 30000)]

    @pytest.mark.parametrize("last", [1, 3, 17])
    def test_the_last_lines_that_match(self, spread: Any, last: int) -> None:
        view = replace(PLAIN, grep=re.compile(rb"^\d*0{3}$"))
        assert self.numbers(spread.shown(view, last=last)) == list(range(0, 30000, 1000))[-last:]

    def test_few_lines_read_only_the_end_and_paging_begins_at_once(self, job: Job) -> None:
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
        job.write("worker:0", b"c\n")  # the disk of the index was full
        os.utime(job.logs[0].path, (T0 + 4, T0 + 4))
        assert job.shown(since=T0 + 5) == b""

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
            *("^step 1", r"9$", "(?i)LOSS|acc", "", "^$", r"\Astep 7", r"9\Z", r"9(?!\s)"),
            *(r"(?<!\s)step", r"s\s*$", "(?i-m:^STEP)", "(?is)STEP.*9$"),
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


# Following ----------------------------------------------------------------------------------------


class TestFollower:
    def test_timestamps_are_of_the_writing_not_of_the_copy(self, job: Job, follow: Follow) -> None:
        view = replace(PLAIN, timestamps=True)
        follower = follow(job.logs, view)
        caught_up(follower)
        for at, text in [(1, b"a\nb"), (2, b"b\nc\n"), (3.25, b"d\nun")]:
            job.write("worker:0", text, at=at)
        os.utime(job.logs[0].path, (T0 + 60, T0 + 60))
        seen = caught_up(follower)
        assert seen.count(b"\n") == 4
        assert seen == job.shown(view, ends=line_ends(job.logs)), "as without --follow"
        job.write("worker:0", b"finished\n")
        os.utime(job.logs[0].path, (T0 + 70, T0 + 70))
        late = caught_up(follower)
        assert late.endswith(b"worker:0 | unfinished\n")
        # What no index tells of counts as written when the log last grew.
        assert seen + late == job.shown(view)
        job.write("worker:0", b"end", at=71)
        assert caught_up(follower) == b""
        assert b"".join(follower.finish()) == job.shown(view).splitlines(keepends=True)[-1]

    def test_one_task_s_raw_bytes_come_as_they_are_written(self, job: Job, follow: Follow) -> None:
        follower = follow(job.logs[:1], replace(PLAIN, raw=True))
        job.write("worker:0", b"50%\r")
        assert caught_up(follower) == b"50%\r"
        job.write("worker:0", b"100%")
        assert caught_up(follower) == b"100%"
        assert b"".join(follower.finish()) == b""

    def test_a_flood_does_not_starve_the_others(self, job: Job, follow: Follow) -> None:
        job.write("worker:0", b"flood\n" * 500_000)
        job.write("worker:1", b"here\n")
        follower = follow(job.logs)
        first = b"".join(follower.read())
        assert b"worker:1 | here\n" in first
        assert len(first) < 1_000_000
        assert follower.wait == 0.0
        assert (first + caught_up(follower)).count(b"flood\n") == 500_000

    def test_a_log_that_was_cut_is_read_from_its_beginning(self, job: Job, follow: Follow) -> None:
        follower = follow(job.logs)
        job.write("worker:0", b"a\nb\n")
        caught_up(follower)
        os.truncate(job.logs[0].path, 0)
        caught_up(follower)
        job.write("worker:0", b"c\n")
        assert caught_up(follower) == b"worker:0 | c\n"
        polled = follow(job.logs, polls=True)
        for text in (b"c\n", b"c\nd\n"):  # its task may also replace it
            (job.folder / "new").write_bytes(text)
            os.replace(job.folder / "new", job.logs[0].path)
            assert b"".join(polled.read()) == b"worker:0 | %s" % text[-2:]

    def test_a_task_that_always_writes_is_polled(self, job: Job, follow: Follow) -> None:
        follower = follow(job.logs)

        def is_polled() -> bool:
            return follower.wait is not None

        caught_up(follower)
        written: list[bytes] = []
        seen: list[bytes] = []
        deadline = time.monotonic() + 60
        while not is_polled():  # on a busy machine, it may have paused before all was read
            while not is_polled():
                assert time.monotonic() < deadline
                written.append(b"worker:0 | %d\n" % len(written))
                job.write("worker:0", b"%d\n" % (len(written) - 1))
                seen += follower.read()
            seen.append(caught_up(follower))
        job.write("worker:0", b"unseen\n")
        assert not readable(follower, 0), "nothing is watched"
        seen += follower.read()
        while is_polled():
            assert time.monotonic() < deadline
            readable(follower, follower.wait or 0)
            seen += follower.read()
        job.write("ps:0", b"watched\n")
        assert readable(follower)
        seen.append(caught_up(follower))
        assert b"".join(seen) == b"".join(written) + b"worker:0 | unseen\nps:0     | watched\n"

    def test_what_is_written_while_watching_begins_is_seen(
        self, job: Job, follow: Follow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Late(Inotify):
            def watch_folder(self, path: str) -> int:
                job.write("worker:0", b"b\n")
                return super().watch_folder(path)

        monkeypatch.setattr(follower_module, "Inotify", Late)
        job.write("worker:0", b"a\n")
        assert caught_up(follow(job.logs)) == b"worker:0 | a\nworker:0 | b\n"

    def test_without_inotify_it_is_to_be_polled(
        self, job: Job, follow: Follow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def used_up() -> Inotify:
            raise OSError(24, "inotify_init1: Too many open files")

        monkeypatch.setattr(follower_module, "Inotify", used_up)
        follower = follow(job.logs)
        assert follower.read() == []
        assert 0 < (follower.wait or 0) <= 0.1
        job.write("worker:0", b"a\n")
        assert follower.read() == [b"worker:0 | a\n"]
        job.write("worker:0", b"b\n")
        asked = iter([False, False, True])
        assert list(follower.until(lambda: next(asked))) == [b"worker:0 | b\n"]

    def test_until_asks_when_it_is_woken(self, job: Job, follow: Follow) -> None:
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

    def test_a_folder_that_is_not_there_yet_is_polled(self, tmp_path: Path, follow: Follow) -> None:
        job = Job(tmp_path / "later")
        follower = follow(job.logs)
        assert follower.wait is not None
        job.folder.mkdir()
        job.write("worker:0", b"a\n")
        assert follower.read() == [b"worker:0 | a\n"]


class TestLines:
    def test_a_long_line_is_cut_between_characters(self) -> None:
        lines = LineBuffer()
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
FOLDERS = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


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
    def test_followed_in_any_chunks(
        self, tmp_path_factory: pytest.TempPathFactory, written: Any, data: st.DataObject
    ) -> None:
        written = [
            (t, re.sub(rb"[\0\x05\r\x1b\x08\x0b-\x0f\x80-\x9f]", b"?", text), at)
            for t, text, at in written
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
    def test_the_tail_is_the_end_of_the_whole(
        self, tmp_path_factory: pytest.TempPathFactory, written: Any, last: int, since: int | None
    ) -> None:
        job = Job(tmp_path_factory.mktemp("job"))
        for task, text, at in sorted(written, key=lambda write: write[2]):
            job.write(task, text, at=at)
        when = None if since is None else T0 + since
        whole = job.shown(since=when).splitlines(keepends=True)
        tail = whole[len(whole) - min(last, len(whole)) :]
        assert job.shown(since=when, last=last) == b"".join(tail)

    @FOLDERS
    @given(st.binary(), st.booleans())
    def test_whatever_is_written_the_cursor_stays(
        self, tmp_path_factory: pytest.TempPathFactory, text: bytes, colour: bool
    ) -> None:
        job = Job(tmp_path_factory.mktemp("job"), tasks=("worker:0",))
        job.write("worker:0", text)
        shown = job.shown(View((), colour=colour))
        assert not re.search(rb"\x1b(?!\[[0-9;:]*m)|[\r\x08\x0b\x0c\x0e\x0f]", shown)
        assert shown.count(b"\n") == len(lines_written(text))
