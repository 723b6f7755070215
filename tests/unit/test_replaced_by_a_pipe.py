"""Files that a loop opens and that have become named pipes: an error at once, never a wait."""

import errno
import os
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.parts.agent import BlobCache, program, protocol, stacks
from harness.parts.hosts import LogMirror, bootstrap
from harness.parts.job import history, record
from harness.parts.linux import facts, open_to_append
from harness.parts.records import EventLog, JobFolder, spec_of
from harness.parts.supervisor import stack_collector
from harness.parts.top import HostError
from harness.parts.words import cause_text

DIGEST = "0" * 64


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    def fail(*_: Any) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, 10)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def cached(path: Path) -> None:
    os.rename(path, path.with_name(DIGEST))
    if BlobCache(os.fsencode(path.parent)).open(DIGEST, 0) is None:
        raise OSError(errno.ENXIO, "it is not taken")


OPENS: dict[str, Callable[[Path], object]] = {
    "record": lambda path: EventLog(str(path)), "log": lambda path: open_to_append(str(path)),
    "marker": lambda path: program.write_marker(str(path), "x"),
    "samples": lambda path: history._append(path, "x\n"),
    "script": lambda path: facts.file_digest(str(path)),
    "py-spy": lambda path: stacks._in_memory(str(path)),
    "py-spy to send": lambda path: stack_collector._read(str(path)),
    "packed modules": bootstrap._read, "blob": cached,
}  # fmt: skip


@pytest.mark.parametrize("name", OPENS)
def test_what_is_opened_is_a_regular_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    os.mkfifo(path)
    with pytest.raises(OSError, match=r".") as error:
        OPENS[name](path)
    assert error.value.errno == errno.ENXIO


@pytest.mark.parametrize("name", ["worker-0.log", "worker-0.idx"])
def test_a_copy_that_is_a_pipe_is_a_failure_of_the_copy(tmp_path: Path, name: str) -> None:
    mirror = LogMirror(tmp_path)
    mirror.add("worker-0.log")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    assert not mirror.write(protocol.LogData(name, 0, bytes(16)))
    assert mirror.failure is not None
    assert "named pipe" in cause_text(mirror.failure)


def test_the_copy_of_a_log_is_there_before_its_task_prints(tmp_path: Path) -> None:
    LogMirror(tmp_path).add("worker-0.log")
    assert (tmp_path / "worker-0.log").read_bytes() == b""


def test_a_huge_script_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "train.py").open("w") as script:
        script.truncate(1 << 40)
    with pytest.raises(OSError, match="File too large"):
        facts.file_digest(str(tmp_path / "train.py"))


def test_a_record_with_a_huge_hole_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with path.open("w") as holed:
        holed.truncate(1 << 40)
    assert record.read(str(path)) == []
    assert record.beginning_fault(str(path)) == "is damaged"
    path.write_text("[" + "[]," * 3_000_000 + "[]]\n")
    tracemalloc.start()
    assert record.read(str(path)) == []
    assert tracemalloc.get_traced_memory()[1] < 50_000_000, "a stranger's line fills no memory"
    tracemalloc.stop()


@pytest.mark.parametrize(
    "make", [lambda path: path.write_text("[" * 100_000), os.mkfifo, Path.mkdir]
)
def test_an_unreadable_spec_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    folder = JobFolder(tmp_path)
    make(folder.resolved_spec_file)
    with pytest.raises(HostError, match=r"has a damaged spec\.json"):
        spec_of(folder, ())
