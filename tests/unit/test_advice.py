"""What is said unasked of a slow job, and of no other."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.histories import MWM, Job, running
from harness.parts.advice import Advice, Symptom, advise, find_slowdown
from harness.parts.cli import print_messages
from harness.parts.formats import advice_text, format_short, slowdown_text
from harness.parts.job import Job as ReadJob
from harness.parts.job import events, failure_report, job_notes
from harness.parts.profile import Slowdown
from harness.parts.records import HistoryLog, JobFolder, Sample
from harness.parts.top import replace
from harness.values import not_none

RETRACES = (
    "WARNING:tensorflow:5 out of the last 5 calls to <function train_step at 0x7f1> triggered "
    "tf.function retracing. Tracing is expensive\n"
)
RETRACES_ON = RETRACES + RETRACES.replace("5 out of the last 5", "6 out of the last 6")
EPOCHS: dict[str, Any] = {"epoch": 30, "STEPS": 30, "EPOCHS": 1000}


def sampled(
    rate: float, *, cores: float = 0.5, seconds: int = 90, epoch: int = 1000, **known: float
) -> Sequence[Sample]:
    """Every two seconds, a sample of a task that counts the steps of each epoch."""
    return [
        Sample(
            at=1000.0 + at, attempt=0, cpu_seconds=cores * at, memory_bytes=1,
            peak_memory_bytes=1, processes=1, read_bytes=0, written_bytes=0,
            host_idle_seconds=at, progress={"STEP": int(rate * at) % epoch, **known}
            | ({"EPOCH": int(rate * at) // epoch + 1} if known else {}),
        )
        for at in range(0, seconds, 2)
    ]  # fmt: skip


def hung(rate: float) -> Sequence[Sample]:
    """As of a task that reports every 15th step, and takes no more than 30."""
    told = ((each, each.progress["STEP"] // 15 * 15) for each in sampled(rate, seconds=62))
    return [replace(each, progress={"STEP": min(30.0, step)}) for each, step in told]


@pytest.mark.parametrize(
    ("samples", "log", "symptom"),
    [
        ([hung(4), hung(4), hung(2)], "", None),  # that all have reached the same shows later
        ([sampled(2), sampled(2), sampled(1.2)], "", Symptom.BEHIND),
        ([sampled(2), sampled(1.2)], RETRACES_ON, Symptom.BEHIND),  # at most one thing
        ([sampled(1.8), sampled(1.8), sampled(0.1)], "", Symptom.BEHIND),
        # Between two samples, more than an epoch passes.
        ([sampled(15.8, **EPOCHS), sampled(14.3, **EPOCHS)], "", None),
        ([sampled(15.8, **EPOCHS), sampled(8.2, **EPOCHS)], "", Symptom.BEHIND),
        ([sampled(15.8, epoch=30), sampled(14.3, epoch=30)], "", None),
        ([sampled(2), sampled(2), sampled(2, epoch=50)], "", None),  # its steps begin anew
        ([sampled(2), sampled(1.2, seconds=50)], "", None),  # it has just begun
        ([sampled(0.08), sampled(0.04)], "", None),  # too few steps to tell
        ([sampled(2), sampled(2)], RETRACES_ON, Symptom.RETRACING),
        ([sampled(2), sampled(2)], RETRACES, None),  # TensorFlow warns twice if it goes on
        ([sampled(2, cores=0.1)], RETRACES_ON, Symptom.IDLE),  # that may have ended long ago
        ([sampled(2)], RETRACES.replace("5 out of the last 5", "2 out of the last 9"), None),
        ([sampled(2, cores=0.1), sampled(2, cores=0.2)], "", Symptom.IDLE),
        ([sampled(2, cores=0.1), sampled(2, cores=0.4)], "", None),
        ([[replace(each, host_idle_seconds=9e5) for each in sampled(2, cores=0.1)]], "", None),
        ([sampled(2, cores=0.1), sampled(0, cores=0.9)], "", None),  # only the first one reports
        ([sampled(0, cores=0.1)], "", None),  # takes no steps
    ],
)
def test_each_rule_shows_its_case_and_no_healthy_job(
    samples: list[Sequence[Sample]], log: str, symptom: Symptom | None
) -> None:
    named = {f"worker:{n}": each for n, each in enumerate(samples)}
    found = advise(named, {"worker:0": log.encode()}, {})
    assert (found and found.symptom) == symptom
    if symptom is Symptom.BEHIND and found is not None:
        assert found.task == f"worker:{len(samples) - 1}"


def with_gpu(percent: float | None = None, *, cores: float = 0.5) -> list[Sample]:
    samples = sampled(2, cores=cores)
    return [replace(each, gpu_memory_bytes=1 << 30, gpu_percent=percent) for each in samples]


def test_gpus_leave_cores_idle_and_idle_gpus_and_slow_checkpoints_are_told() -> None:
    assert advise({"worker:0": with_gpu(cores=0.1)}, {}, {}) is None
    idle = not_none(advise({"worker:0": with_gpu(12.0), "worker:1": with_gpu(20.0)}, {}, {}))
    assert (idle.symptom, idle.amount) == (Symptom.GPU_IDLE, 0.2)
    assert advise({"worker:0": with_gpu(12.0), "worker:1": with_gpu(60.0)}, {}, {}) is None
    saving = {"worker:0": 0.02, "worker:1": 0.3}
    slow = not_none(advise({"worker:0": sampled(2)}, {}, saving))
    assert (slow.symptom, slow.task, slow.amount) == (Symptom.SAVING, "worker:1", 0.3)
    assert advise({"worker:0": sampled(2)}, {}, {"worker:0": 0.05}) is None
    assert advise({"worker:0": sampled(2), "evaluator:0": sampled(0.5)}, {}, {}) is None


def test_status_ps_and_json_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = running(MWM, "worker:0", "worker:1")
    folder = JobFolder(tmp_path)
    for task, rate in (("worker:0", 2.0), ("worker:1", 1.0)):
        for sample in sampled(rate):
            HistoryLog(folder).append(task, sample)
    view = ReadJob(folder, job.state)
    view.supervisor = 1
    # What a look has found was later withdrawn.
    found = Advice(symptom=Symptom.INPUT, task="", amount=0.7), None
    view.history = [events.JobAdvised(at=time.time(), finding=each) for each in found]
    told = view.to_json()["advice"]
    assert (told["symptom"], told["task"]) == ("behind", "worker:1")
    assert told["text"] in job_notes(view)
    print_messages([view])
    assert f"{folder.job_id}: {view.to_json()['behind']}\n" in capsys.readouterr().err
    assert f"distrun profile {folder.job_id}" in told["text"]
    job.gone("worker:0")
    half = ReadJob(folder, job.state)
    half.supervisor = 1
    assert half.progress == half.tasks[1].progress, "of the one that runs"
    job.stop()
    job.gone("worker:1")
    job.finish()
    ended = ReadJob(folder, replace(job.state, ended_at=time.time()))
    assert f"  slow          {ended.advice_words}" in failure_report(ended)
    assert "while it runs" not in ended.advice_words
    assert ended.advice_words in job_notes(ended)


@pytest.mark.parametrize(("age", "symptom"), [(100.0, Symptom.SAVING), (10.0, None)])
def test_nothing_is_said_at_the_begin(age: float, symptom: Symptom | None, tmp_path: Path) -> None:
    job = Job(now=time.time() - 300.0)
    job.created(MWM)
    job.planned("worker:0")
    job.now = time.time() - age
    job.started("worker:0")
    job(events.SavingStarted, task="worker:0", attempt=0)
    job.now += age / 3
    job(events.SavingEnded, task="worker:0", attempt=0)
    view = ReadJob(JobFolder(tmp_path), job.state)
    view.supervisor = 1
    view.__dict__["history"] = job.history
    assert (view.advice and view.advice.symptom) == symptom


def test_since_when_a_task_is_slower() -> None:
    fast, slow = sampled(10.0), sampled(4.0)
    later = [replace(e, at=e.at + 90, progress={"STEP": 900 + e.progress["STEP"]}) for e in slow]
    found = not_none(find_slowdown([*fast, *later]))
    assert 1085.0 < found.at < 1096.0
    shown = map(format_short, (0.04, 0.346, 4.21, found.before, 144.1, 12345.0))  # no exponents
    assert " ".join(shown) == "0.04 0.35 4.2 10 144 12,345"
    assert slowdown_text(found).endswith(": 4 steps a second, before that 10")
    assert find_slowdown(fast) == Slowdown(at=1002.0, rate=10.0)
    assert slowdown_text(Slowdown(at=1002.0, rate=10.0)).startswith("since its first step, at ")
    # It has become faster; it reports hardly any step; an earlier attempt was faster.
    faster = [replace(e, at=e.at + 90, progress={"STEP": 400 + e.progress["STEP"]}) for e in fast]
    assert not_none(find_slowdown([*slow, *faster])).before == 0
    assert find_slowdown([*slow, *(replace(e, at=e.at + 90) for e in fast)]) is None  # anew
    assert find_slowdown(sampled(10.0, seconds=20)) is None
    odd = [replace(each, at=1000.0, progress={"STEP": each.at * 1e300}) for each in fast]
    assert find_slowdown(odd) is None
    assert find_slowdown([replace(each, at=e.at) for each, e in zip(odd, fast, strict=True)])
    restarted = [replace(each, attempt=1) for each in later]
    assert not_none(find_slowdown([*fast, *restarted])).before == 0


def test_nothing_is_more_than_zero() -> None:
    for symptom, least in ((Symptom.IDLE, "more than 0.01 of"), (Symptom.GPU_IDLE, "more than 1%")):
        assert least in advice_text(Advice(symptom=symptom, task="", amount=0.0), "mnist")
