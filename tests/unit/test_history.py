"""The samples of what tasks use, as they are kept and read."""

import itertools
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.histories import MWM, running
from harness.loops import SimulatedLoop
from harness.parts.agent import UsageSampler
from harness.parts.job import Job, history, steps
from harness.parts.linux import ChildUsage, processes
from harness.parts.records import MOST_SAMPLES, HistoryLog, JobFolder, Sample, sampled
from harness.parts.top import replace
from harness.values import not_none

FIRST = Sample(
    at=1000.0, attempt=0, cpu_seconds=0.5, memory_bytes=1 << 20, peak_memory_bytes=1 << 21,
    processes=2, read_bytes=10, written_bytes=20, progress={"STEP": 1.0},
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path)


def test_samples_are_read_as_they_were_written(folder: JobFolder) -> None:
    log = HistoryLog(folder)
    second = replace(FIRST, at=1002.0, gpu_memory_bytes=5, gpu_percent=40.0)
    for task in ("worker:0", "my-role:12"):
        log.append(task, FIRST)
        log.append(task, second)
    assert history.read(folder, ["my-role:12", "worker:0", "worker:1"]) == {
        "my-role:12": [FIRST, second],
        "worker:0": [FIRST, second],
    }
    assert history.last(folder, "worker:0", 1) == [second]
    assert history.last(folder, "worker:0", 9) == [FIRST, second]
    assert history.last(folder, "worker:1", 1) == []


def test_a_sample_of_an_earlier_attempt_is_not_of_this_one(folder: JobFolder) -> None:
    task = running(MWM, "worker:0").state.tasks["worker:0"]
    HistoryLog(folder).append("worker:0", replace(FIRST, attempt=1))
    assert sampled(folder, task) is None
    HistoryLog(folder).append("worker:0", replace(FIRST, processes=3))
    assert not_none(sampled(folder, task)).processes == 3


def test_progress_is_as_old_as_its_last_change(folder: JobFolder) -> None:
    log, state = HistoryLog(folder), running(MWM, "worker:0").state
    for at, attempt, step in (1, 0, 8), (2, 0, 9), (3, 0, 9), (4, 1, 7), (5, 0, 0):
        progress = {"STEP": float(step)} if step else {}
        sample = replace(FIRST, at=float(at), attempt=attempt, progress=progress)
        log.append("worker:0", replace(sample, ends_at=time.time() + 60))
    queued: Any = SimpleNamespace(is_active=True, state=state)
    job = Job(folder, queued=queued)  # its supervisor is elsewhere
    assert (job.progress, job.progress_at) == ({"STEP": "9"}, 2.0)
    assert job.time_left == pytest.approx(60.0, abs=10.0)
    folder.logs.mkdir()
    text = f"step 9 loss 1\n{'.' * 5000}\nstep 10 loss 1\nstep 11 loss 1\n"
    folder.log_of("worker:0").write_text(text)
    assert Job(folder, state).progress["STEP"] == "11", "it is further than it was sampled"
    task = replace(state.tasks["worker:0"], attempt=2, output_start=len(text))
    assert Job(folder, state.with_tasks([task])).progress == {}


def test_however_long_a_job_runs_about_a_thousand_samples_are_kept(folder: JobFolder) -> None:
    log = HistoryLog(folder)
    for second in range(4000):
        log.append("worker:0", replace(FIRST, at=float(second), attempt=second // 2000))
    kept = [sample.at for sample in history.read(folder, ["worker:0"])["worker:0"]]
    assert MOST_SAMPLES // 2 <= len(kept) <= MOST_SAMPLES
    assert kept == sorted(kept)
    assert {0.0, 1999.0, 3999.0} <= {*kept}
    gaps = [after - before for before, after in itertools.pairwise(kept)]
    assert max(gaps) <= 3 * 4000 / (MOST_SAMPLES // 2)
    for second in range(2000):
        log.append("worker:1", replace(FIRST, at=float(second), attempt=second))
    assert len(history.read(folder, ["worker:1"])["worker:1"]) <= MOST_SAMPLES


DAMAGED = (b"[" * 100_000, b"\xff\xfe", json.dumps({**vars(FIRST), "at": "soon"}).encode())


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_skipped(folder: JobFolder, line: bytes) -> None:
    HistoryLog(folder).append("worker:0", FIRST)
    path = folder.history_of("worker:0")
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert history.read(folder, ["worker:0"]) == {"worker:0": [FIRST]}


def test_what_is_no_file_is_not_written_or_waited_for(folder: JobFolder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    path = folder.history_of("worker:0")
    path.parent.mkdir()
    path.symlink_to(other)
    HistoryLog(folder).append("worker:0", FIRST)
    assert (other.read_text(), history.read(folder, ["worker:0"])) == ("mine", {})


def test_only_finite_numbers_are_kept_of_progress() -> None:
    values = {"STEP": "12", "LOSS": "1.5e-3", "A": "nan", "B": "inf", "C": "1_0", "D": "", "E": "x"}
    assert steps.numbers(values) == {"STEP": 12.0, "LOSS": 0.0015}


@pytest.mark.parametrize("prints", [False, True])
def test_a_task_that_reports_or_prints_and_uses_no_time_is_sampled_each_time(
    prints: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its steps would seem to stand, and then to be made at once."""
    loop, found, log = SimulatedLoop(), list[Any](), tmp_path / "log"
    task: Any = SimpleNamespace(name="worker:0", attempt=0, pid=0, is_running=True, members=list)
    task.note_programs = list
    task.progress, task.log = {}, str(log)
    monkeypatch.setattr(time, "time", loop.now)
    UsageSampler(loop, found.append).start(task)
    for step in range(1, 6):
        task.progress.update({} if prints else {"STEP": str(step)})
        log.write_text("." * step * prints)
        loop.call_next()
    loop.run(600)
    idle = [each.at for each in found[5:]]
    assert 9 <= len(idle) <= 20, "so that its curves do not end when it begins to hang"
    assert [each.progress.get("STEP") for each in found[:5]] == (
        [None] * 5 if prints else ["1", "2", "3", "4", "5"]
    )


def test_the_peak_of_memory_is_that_of_all_processes_together() -> None:
    loop, found, pids = SimulatedLoop(), list[Any](), [os.getpid(), os.getppid()]
    here = SimpleNamespace(is_running=True, members=lambda: map(processes.find, pids), progress={})
    here.note_programs = list
    task: Any = SimpleNamespace(name="worker:0", attempt=0, pid=pids[0], log="", **vars(here))
    task.note_programs = list
    sampler = UsageSampler(loop, found.append)
    sampler.start(task)
    loop.call_next()
    pids.pop()
    loop.run(60)
    assert found[-1].memory_bytes < found[0].memory_bytes <= found[-1].peak_memory_bytes
    of_the_largest = ChildUsage(0.0, 1 << 20, 0, 0)
    assert sampler.end(task, [of_the_largest])[1] == found[-1].peak_memory_bytes > 2 << 20
