"""Parts of logs that arrived late, or from several hosts, are shown in the order of writing."""

import random
import struct
from bisect import bisect
from pathlib import Path

import pytest

from distrun.agent.protocol import LogData
from distrun.job.chosen_logs import output_logs
from distrun.job.folder import JobFolder, late_log_name, task_of_log
from distrun.logs import TaskLog, View, merged
from distrun.supervisor.hosts.log_mirror import LogMirror
from harness.logs import T0, append


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    (tmp_path / "logs").mkdir()
    return JobFolder(tmp_path)


@pytest.mark.parametrize("seed", range(10))
def test_lines_that_arrived_late_are_shown_in_the_order_of_writing(
    seed: int, folder: JobFolder
) -> None:
    """A line a second; what lies between each pair of cuts is in a file of its own."""
    draw = random.Random(seed)
    lines = [b"line %d\n" % number for number in range(60)]
    cuts = sorted(draw.sample(range(1, 60), draw.choice((2, 4, 6))))
    own = TaskLog.of(folder, "worker:0")
    for second, line in enumerate(lines):
        part, is_late = divmod(bisect(cuts, second), 2)
        path = folder.logs / late_log_name("worker-0.log", 10 * part, 1000 + part)
        late = TaskLog("worker:0", str(path), str(path.with_suffix(".idx")))
        append(late if is_late else own, line, second)
    logs, view = output_logs(folder, ["worker:0"]), View(["worker:0"], raw=True)
    assert len(logs) == 1 + len(cuts) // 2
    assert b"".join(merged(logs, view)) == b"".join(lines)
    assert b"".join(merged(logs, view, last=7)) == b"".join(lines[-7:])
    assert b"".join(merged(logs, view, since=T0 + 31)) == b"".join(lines[31:])


def test_other_files_are_no_parts(folder: JobFolder) -> None:
    for name in ("worker-0.late", "worker-0.x-1.late", "worker-0.1-.late", "worker-0.²-1.late"):
        (folder.logs / name).touch()
    assert folder.late_logs() == {}
    for offset in (900, 1000, 20):
        (folder.logs / late_log_name("worker-1.log", offset, 5)).touch()
    found = folder.late_logs()
    assert list(found) == [folder.log_of("worker:1")]
    names = [file.name for file in found[folder.log_of("worker:1")]]
    assert names == [late_log_name("worker-1.log", offset, 5) for offset in (20, 900, 1000)]
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
    logs = output_logs(JobFolder(folder), ["worker:0"])
    return b"".join(merged(logs, View(["worker:0"], raw=True), since=since)).splitlines()


@pytest.mark.parametrize("keep", [0, 3])
@pytest.mark.parametrize("limit", [None, 1_000_000])
def test_output_of_a_task_that_moves_and_returns_stands_in_its_order(
    tmp_path: Path, keep: int, limit: int | None
) -> None:
    """`keep` bytes arrive only after the task has started on the next host."""
    (tmp_path / "logs").mkdir()
    first, second = LogMirror(tmp_path / "logs", limit), LogMirror(tmp_path / "logs", limit)
    here, there = Sender(first), Sender(second)
    first.add(LOG)
    here.print(b"one", 100.0)
    here.send(keep)
    first.set_aside(LOG, 110.0)
    JobFolder(tmp_path).end_line("worker:0")  # as a new plan does
    second.add(LOG)
    there.print(b"two", 200.0)
    there.send()
    here.send()
    assert first.is_complete is second.is_complete is False
    second.set_aside(LOG, 210.0)
    first.add(LOG)
    here.print(b"three", 300.0)
    here.send()
    torn = [b"o"] if keep else []  # it had no time yet when the next host continued
    assert shown(tmp_path) == [b"ne" if keep else b"one", *torn, b"two", b"three"]
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


def test_a_part_that_comes_after_a_gap_is_a_failure_and_one_that_came_before_is_none(
    tmp_path: Path,
) -> None:
    mirror = LogMirror(tmp_path)
    mirror.add(LOG)
    for _ in range(2):
        assert mirror.write(LogData(LOG, 0, b"one\n"))
    assert not mirror.write(LogData(LOG, 9, b"three\n"))
    assert (tmp_path / LOG).read_bytes() == b"one\n"
