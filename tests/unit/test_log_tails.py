"""Which parts of logs the supervisor reads, and when."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from harness.loops import SimulatedLoop
from harness.parts.linux import Inotify
from harness.parts.protocol import Cause, Code
from harness.parts.records import JobFolder
from harness.parts.supervisor import LineSearch, LogTails, TailedLog

BAR = "\r  0%|          | {step}/100000 [00:01<00:09, 1.00it/s]"


class Job:
    """Two tasks, their logs, and a time of their own."""

    names = ("worker:0", "worker:1")

    def __init__(self, folder: Path) -> None:
        self.folder = JobFolder(folder)
        self.folder.logs.mkdir()
        self.loop = SimulatedLoop()
        self.found: list[tuple[str, dict[str, str], bool]] = []
        self.served: set[str] = set()
        self.tails = LogTails(self.loop, self.folder, lambda: None)

    def start(self, task: str = "worker:0", start: int = 0) -> None:
        tail = TailedLog(
            *(self.folder, task, start),
            lambda values, by: self.found.append((task, dict(values), by.is_moving)),
            self.served.update,
        )
        self.tails.start(task, tail)

    def log_of(self, task: str) -> Path:
        return self.folder.log_of(task)

    def write(self, text: str | bytes, task: str = "worker:0") -> None:
        with self.log_of(task).open("ab") as log:
            log.write(text.encode() if isinstance(text, str) else text)

    @property
    def last(self) -> dict[str, str]:
        return self.found[-1][1]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.tails.close()
    assert not job.loop.has_descriptors
    job.loop.close()


def test_nothing_is_done_while_no_log_grows(job: Job) -> None:
    for name in job.names:
        job.start(name)
    job.loop.run(10.0)
    assert job.loop.next_call is None
    assert job.loop.run(1e6) == 0
    for line in ("[9]\ttest-rmse:0.4\n", "[10]\ttest-rmse:0.3\n"):  # XGBoost's
        job.write(line)
        assert 0 < job.loop.run(10.0) < 5
    assert job.last["STEP"] == "10"
    assert job.loop.run(1e6) == 0


@pytest.mark.parametrize("lines", [0, 5_000])
def test_a_bar_that_is_erased(job: Job, lines: int) -> None:
    job.start()
    job.write(BAR.format(step=14))
    job.loop.run(10.0)
    assert job.found[-1][2]
    job.write("\r" + " " * 60 + "\r" + "evaluated a shard\n" * lines)
    job.loop.run(10.0)
    assert job.last["STEP"] == "14"
    assert not job.found[-1][2]


def test_only_the_end_of_fast_output_is_read(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.start()
    sizes: list[int] = []
    pread = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        job.loop.time += 1.0  # tasks use all cores
        return pread(file, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    job.write("Epoch 3/9\n" + "x" * 50_000_000 + "\n")
    job.write("Epoch 4/9\n" + "some output\n" * 10_000 + BAR.format(step=7))
    job.loop.run(10.0)
    assert (job.last["STEP"], job.last["EPOCH"]) == ("7", "4")
    job.write(BAR.format(step=8))
    job.loop.run(10.0)
    assert job.last["STEP"] == "8", "the next read comes soon all the same"
    for step in (1, 2):
        job.write(f"\nepoch 5, step {step}, loss: 0.3\n" + "debug 0.25\n" * 200_000)
        job.loop.run(10.0)
    assert (job.last["STEP"], job.last["EPOCH"]) == ("2", "5"), "no bar is last"
    assert sum(sizes) < 20_000_000


def test_a_search_that_dies_begins_again(job: Job) -> None:
    answers, found = [Cause(Code.PROBE_DIED), b"true"], mock.Mock()

    def begin(_: object, answer: Callable[[object], None], **__: object) -> mock.Mock:
        job.loop.call_at(job.loop.now(), lambda: answer(answers.pop(0)))
        return mock.Mock()

    calls = mock.Mock(begin=begin)
    LineSearch(job.loop, calls, job.log_of("worker:0"), 0, "ready", found)
    job.loop.run(2.0)
    assert len(answers) == 2, "there is no log yet"
    job.write("ready\n")
    job.loop.run(2.0)
    found.assert_called_once()


def test_a_new_attempt_begins_at_its_offset(job: Job) -> None:
    job.start()
    job.write(BAR.format(step=900))
    job.loop.run(10.0)
    job.tails.stop("worker:0")
    rest = BAR.format(step=901) + "\n--- attempt 1, now: printed by the program ---\n"
    begins = job.log_of("worker:0").stat().st_size + len(rest.encode())
    job.start(start=begins)  # the rest of a copy may arrive after the start
    job.loop.run(10.0)
    job.write(rest)
    job.loop.run(10.0)
    assert job.last["STEP"] == "900"
    job.write("Epoch 1/9\n" + BAR.format(step=3))
    job.loop.run(10.0)
    assert job.last == {"STEP": "3", "STEPS": "100000", "ETA": "9", "EPOCH": "1", "EPOCHS": "9"}


def test_a_log_that_its_task_cuts_off_or_replaces(job: Job) -> None:
    job.start()
    job.write("x" * 1000 + BAR.format(step=3))
    job.loop.run(10.0)
    os.truncate(job.log_of("worker:0"), 0)
    job.write(BAR.format(step=4))
    job.loop.run(10.0)
    assert job.last["STEP"] == "4"
    job.log_of("worker:0").unlink()
    os.mkfifo(job.log_of("worker:0"))
    job.loop.run(10.0)
    job.log_of("worker:0").unlink()
    job.loop.run(10.0)
    assert job.last["STEP"] == "4"


def test_without_inotify_logs_are_polled(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Inotify) -> None:
        raise OSError

    monkeypatch.setattr(Inotify, "__init__", fail)
    job.start()
    job.loop.run(10.0)
    job.write(BAR.format(step=5))
    assert job.loop.run(100.0) <= 55
    assert job.last["STEP"] == "5"
