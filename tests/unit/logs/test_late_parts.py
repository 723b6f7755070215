"""A log with parts that arrived late, or from several hosts, reads as if it was written here."""

import itertools
import random
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.logs import T0, Job, append
from harness.parts.agent import LogStreamer
from harness.parts.hosts import LogMirror
from harness.parts.linux import syscalls
from harness.parts.logs import JoinedLog, LatePart, TaskLog, View, merged
from harness.parts.protocol import FollowLogs, LogData
from harness.parts.records import JobFolder, followed, joined_logs, late_log_name, task_of_log

WHOLE = "".join(f"line {number}\n" for number in range(60)).encode()


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    (tmp_path / "logs").mkdir()
    return JobFolder(tmp_path)


def split(folder: JobFolder, cuts: list[int]) -> JoinedLog:
    """WHOLE, written in seconds 0 to 59, without what lies between each pair of cuts, in parts."""
    own = Job(folder.logs, ("worker:0",)).logs[0]
    logs = [own] * len(WHOLE)
    missing = 0
    for number, (first, last) in enumerate(zip(cuts[::2], cuts[1::2], strict=True)):
        path = folder.logs / late_log_name("worker-0.log", first - missing, 1000 + number)
        part = TaskLog("worker:0", str(path), str(path.with_suffix(".idx")))
        logs[first:last] = [part] * (last - first)
        missing += last - first
    at = 0
    for second, line in enumerate(WHOLE.splitlines(keepends=True)):
        found = zip(line, logs[at : at + len(line)], strict=True)
        for _, group in itertools.groupby(found, lambda byte: byte[1].path):
            text, (log, *_) = zip(*group, strict=True)
            append(log, bytes(text), second)
        at += len(line)
    assert own.extent().size == len(WHOLE) - missing
    parts = []
    for offset, path, index in folder.late_logs()[folder.log_of("worker:0")]:
        part = TaskLog("worker:0", str(path), str(index))
        parts.append(LatePart(offset, part, part.extent().size))
    return JoinedLog(own.task, own.path, own.index_path, tuple(parts))


@pytest.mark.parametrize("seed", range(10))
def test_all_ways_to_read_show_the_whole(seed: int, folder: JobFolder) -> None:
    draw = random.Random(seed)
    cuts = sorted(draw.sample(range(1, len(WHOLE)), draw.choice((2, 4, 6))))
    log = split(folder, cuts)
    view = View(("worker:0",), raw=True)
    lines = WHOLE.splitlines(keepends=True)
    assert log.extent().size == len(WHOLE)
    assert b"".join(merged([log], view)) == WHOLE
    assert b"".join(merged([log], view, last=7)) == b"".join(lines[-7:])
    for _ in range(20):
        offset, size = draw.randrange(len(WHOLE)), draw.randrange(200)
        assert log.read(offset, size) == WHOLE[offset : offset + size]
        second = draw.randrange(60)
        assert b"".join(merged([log], view, since=T0 + second)) == b"".join(lines[second:])
        assert b"".join(merged([log], view, until=T0 + second)) == b"".join(lines[:second])
    last = log.parts[-1].offset
    assert log.own.read(log.own_offset(len(WHOLE)), 1) == b""
    assert log.own_offset(0) == last


def test_late_output_is_followed_once(folder: JobFolder) -> None:
    log = split(folder, [50, 90])

    def has_ended() -> bool:
        append(log.parts[0].log, b"later\n")
        return True

    watch: Any = SimpleNamespace(polls=True, descriptor=None, has_ended=has_ended)
    view = View(("worker:0",), raw=True)
    shown = b"".join(followed(folder, [log], view, watch, last=None, since=None))
    assert shown == WHOLE + b"later\n"


@pytest.mark.parametrize(
    ("dropped", "dropped_of_part", "first"),
    [(0, 0, 0), (8192, 0, 820), (20480, 0, 3049), (0, 8192, 1820), (8192, 4096, 1410)],
)
def test_what_precedes_dropped_output_is_dropped_too(
    dropped: int, dropped_of_part: int, first: int, folder: JobFolder
) -> None:
    """Of lines of 10 bytes, 1000 are in the log before the part, 1000 in it, 4000 after it."""
    lines = [b"%09d\n" % number for number in range(6000)]
    own = folder.log_of("worker:0")
    part = folder.logs / late_log_name(own.name, 10000, 5)
    for path, text, hole in (
        (own, lines[:1000] + lines[2000:], dropped),
        (part, lines[1000:2000], dropped_of_part),
    ):
        path.write_bytes(b"".join(text))
        with path.open("r+b") as file:
            if hole:
                syscalls.punch_start(file.fileno(), hole)
    late = LatePart(10000, TaskLog("worker:0", str(part), ""), 10000)
    log = JoinedLog("worker:0", str(own), "", (late,))
    view = View(("worker:0",), raw=True)
    assert b"".join(merged([log], view)) == b"".join(lines[first:])
    assert b"".join(merged([log], view, last=6000)) == b"".join(lines[first:])


def test_a_hole_after_a_part_hides_no_line_of_it(folder: JobFolder) -> None:
    """A program has truncated its log, and printed on where it was."""
    lines = [b"%07d\n" % number for number in range(2100)]
    own = folder.log_of("worker:0")
    part = folder.logs / late_log_name(own.name, 8192, 5)
    own.write_bytes(b"".join(lines[:1024]))
    part.write_bytes(b"".join(lines[1024:2000]))
    with own.open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"an incomplete line\n" + b"".join(lines[2000:]))
    late = LatePart(8192, TaskLog("worker:0", str(part), ""), part.stat().st_size)
    log = JoinedLog("worker:0", str(own), "", (late,))
    view = View(("worker:0",), raw=True)
    assert b"".join(merged([log], view, last=151)) == b"".join(lines[-150:])


def test_other_files_are_no_parts(folder: JobFolder) -> None:
    for name in ("worker-0.late", "worker-0.x-1.late", "worker-0.1-.late", "worker-0.²-1.late"):
        (folder.logs / name).touch()
    assert folder.late_logs() == {}
    for offset in (900, 1000, 20):
        (folder.logs / late_log_name("worker-1.log", offset, 5)).touch()
    found = folder.late_logs()
    assert list(found) == [folder.log_of("worker:1")]
    assert [offset for offset, _, _ in found[folder.log_of("worker:1")]] == [20, 900, 1000]
    assert task_of_log("my-role-12.log") == "my-role:12"


# Copies -------------------------------------------------------------------------------------------


LOG, INDEX = "worker-0.log", "worker-0.idx"


class Sender:
    """A host that prints lines, and sends them and its index, whose records it sends whole."""

    def __init__(self, mirror: LogMirror) -> None:
        self.mirror = mirror
        self._log = self._index = b""
        self._sent = 0

    def print(self, line: bytes, at: float) -> None:
        self._log += line + b"\n"
        self._index += struct.pack("<dQ", at, len(self._log))

    def send(self, keep: int = 0) -> None:
        """Send what is printed, without the last `keep` bytes of the log and the last record."""
        end, end_of_index = len(self._log) - keep, len(self._index) - (16 if keep else 0)
        sizes = self.mirror.sizes
        assert self.mirror.write(LogData(LOG, sizes[LOG], self._log[sizes[LOG] : end]))
        while sizes[INDEX] < end_of_index:
            part = self._index[sizes[INDEX] : sizes[INDEX] + 16]
            assert self.mirror.write(LogData(INDEX, sizes[INDEX], part))


def shown(folder: Path, *, since: float | None = None) -> list[bytes]:
    job = JobFolder(folder)
    logs = joined_logs(job, [TaskLog("worker:0", str(job.logs / LOG), str(job.logs / INDEX))])
    return b"".join(merged(logs, View(["worker:0"], raw=True), since=since)).splitlines()


@pytest.mark.parametrize("keep", [0, 3])
@pytest.mark.parametrize("limit", [None, 1_000_000])
def test_output_of_a_moved_task_is_in_order(tmp_path: Path, keep: int, limit: int | None) -> None:
    """`keep` bytes arrive only after the task has started on the next host."""
    (tmp_path / "logs").mkdir()
    first, second = LogMirror(tmp_path / "logs", limit), LogMirror(tmp_path / "logs", limit)
    here, there = Sender(first), Sender(second)
    first.add(LOG)
    here.print(b"one", 100.0)
    here.send(keep)
    first.set_aside(LOG, 110.0)
    second.add(LOG)
    there.print(b"two", 200.0)
    there.send()
    here.send()
    assert first.is_complete is second.is_complete is False
    second.set_aside(LOG, 210.0)
    first.add(LOG)
    here.print(b"three", 300.0)
    here.send()
    assert shown(tmp_path) == [b"one", b"two", b"three"]
    torn = [b"one"] if keep else []  # its start had no time yet when the next host continued
    assert shown(tmp_path, since=150.0) == [*torn, b"two", b"three"]
    assert shown(tmp_path, since=250.0) == [b"three"]


def test_where_an_attempt_begins_is_counted_in_the_copy(tmp_path: Path) -> None:
    """The host's log begins anew on each host, the copy does not."""
    mirror = LogMirror(tmp_path)
    assert mirror.offset_in_copy("worker:0", 7) == 7, "a host that writes into the job's folder"
    (tmp_path / LOG).write_bytes(b"of another host\n")
    mirror.add(LOG)
    assert mirror.offset_in_copy("worker:0", 0) == 16
    assert mirror.write(LogData(LOG, 0, b"attempt 1\n"))
    mirror.add(LOG)
    assert mirror.offset_in_copy("worker:0", 10) == 26


def test_a_part_after_a_gap_is_a_failure_and_a_repeated_one_is_none(tmp_path: Path) -> None:
    mirror = LogMirror(tmp_path)
    mirror.add(LOG)
    for _ in range(2):
        assert mirror.write(LogData(LOG, 0, b"one\n"))
    assert not mirror.write(LogData(LOG, 9, b"three\n"))
    assert (tmp_path / LOG).read_bytes() == b"one\n"


def test_output_that_was_dropped_is_not_sent(tmp_path: Path) -> None:
    log, sent = tmp_path / "worker-0.log", list[LogData]()
    log.write_bytes(b"\0" * 8192 + b"line\n")
    streamer = LogStreamer(str(tmp_path))
    streamer.add(str(log))
    streamer.dropped[str(log)] = 8192
    streamer.execute(FollowLogs({}, 1 << 16))
    channel: Any = SimpleNamespace(flush=int, pending=False, broken=False, send=sent.append)
    streamer.send(channel)
    assert [(each.offset, each.data) for each in sent] == [(8192, b"line\n")]
