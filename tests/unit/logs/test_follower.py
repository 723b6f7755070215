"""Following logs, on real files: nothing lost, nothing doubled."""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrun.agent.linux.syscalls import Inotify
from distrun.logs import Follower, View, line_ends
from distrun.logs.line_buffer import LONGEST_LINE, LineBuffer
from harness.logs import PLAIN, T0, Follow, Job, caught_up, readable


class TestFollower:
    def test_timestamps_are_of_the_writing_not_of_a_copys_coming(
        self, job: Job, follow: Follow
    ) -> None:
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

    def test_a_log_that_was_cut_off_is_read_from_its_beginning(
        self, job: Job, follow: Follow
    ) -> None:
        follower = follow(job.logs)
        job.write("worker:0", b"a\nb\n")
        caught_up(follower)
        os.truncate(job.logs[0].path, 0)
        caught_up(follower)
        job.write("worker:0", b"c\n")
        assert caught_up(follower) == b"worker:0 | c\n"

    def test_a_task_that_writes_all_the_time_is_polled_until_it_pauses(
        self, job: Job, follow: Follow
    ) -> None:
        follower = follow(job.logs)

        def is_polled() -> bool:
            return follower.wait is not None

        caught_up(follower)
        written: list[bytes] = []
        seen: list[bytes] = []
        deadline = time.monotonic() + 60
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

    def test_what_is_written_while_watching_begins_is_seen(self, job: Job, follow: Follow) -> None:
        class Late(Inotify):
            def watch_folder(self, path: str) -> int:
                job.write("worker:0", b"b\n")
                return super().watch_folder(path)

        job.write("worker:0", b"a\n")
        assert caught_up(follow(job.logs, make_inotify=Late)) == b"worker:0 | a\nworker:0 | b\n"

    def test_without_inotify_it_is_to_be_polled(self, job: Job, follow: Follow) -> None:
        def used_up() -> Inotify:
            raise OSError(24, "inotify_init1: Too many open files")

        follower = follow(job.logs, make_inotify=used_up)
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
        self,
        tmp_path_factory: pytest.TempPathFactory,
        written: Any,
        last: int,
        since: int | None,
    ) -> None:
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
    @given(st.binary(), st.booleans())
    def test_whatever_is_written_the_cursor_stays(
        self, tmp_path_factory: pytest.TempPathFactory, text: bytes, colour: bool
    ) -> None:
        job = Job(tmp_path_factory.mktemp("job"), tasks=("worker:0",))
        job.write("worker:0", text)
        shown = job.shown(View((), colour=colour))
        assert not re.search(rb"\x1b(?!\[[0-9;:]*m)|[\r\x08\x0b\x0c\x0e\x0f]", shown)
        assert shown.count(b"\n") == len(lines_written(text))
