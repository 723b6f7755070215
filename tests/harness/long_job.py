"""The record of a job of a day on many hosts, which nobody has time to run."""

import math
import random
from collections.abc import Iterator
from pathlib import Path

from distrun.agent.protocol import Cause, Code
from distrun.job import events
from distrun.job.folder import JobFolder
from distrun.job.history import HistoryLog, Sample
from distrun.job.record import EventLog
from distrun.strategies import Role, Success

BEGAN = 1.79e9
DAY = 86400.0
SAMPLES = 1000
_SAVE_EVERY = 600
_RESTARTS = 3
_LENGTH = DAY / (_RESTARTS + 1)


def write_long_job(path: Path, hosts: int) -> JobFolder:
    """Write the folder of a job that ran for a day, restarted three times and succeeded."""
    (path / "logs").mkdir(parents=True)
    folder = JobFolder(path)
    folder.spec_file.write_text(f"cluster: {{worker: {hosts}}}\n")
    names = [f"worker:{index}" for index in range(hosts)]
    record = EventLog(str(folder.events_file))
    for event in _events(path.name, names):
        record.append(event)
    record.close()
    samples, chance = HistoryLog(folder), random.Random(5)
    for number, name in enumerate(names):
        for index in range(SAMPLES):
            samples.append(name, _sample(number, DAY * (index + 1) / (SAMPLES + 1), chance))
        lines = (f"epoch {line}: loss {1 / (line + 1):.4f}, of {name}\n" for line in range(5000))
        folder.log_of(name).write_text("".join(lines))
    return folder


def _events(job_id: str, names: list[str]) -> Iterator[events.Event]:
    yield events.JobCreated(
        at=BEGAN, job_id=job_id, name="long", strategy="multi_worker_mirrored",
        success=Success.CHIEF_AND_WORKERS, spec_file="long.yaml", supervisor_pid=1,
    )  # fmt: skip
    for host in (f"gpu{index}" for index in range(len(names))):
        yield events.HostReady(
            at=BEGAN + 2, host=host, agent_pid=2, hostname=host, python="3.11.7", cores=64.0,
            gpus=(0, 1), kind="ssh",
        )  # fmt: skip
    tasks = (
        events.TaskRecord(name=name, role=Role.WORKER, index=index, host=f"gpu{index}")
        for index, name in enumerate(names)
    )
    yield events.JobPlanned(at=BEGAN + 3, tasks=tuple(tasks))
    for attempt in range(_RESTARTS + 1):
        began, ended = BEGAN + attempt * _LENGTH + 5, BEGAN + (attempt + 1) * _LENGTH
        for name in names:
            yield events.TaskStarted(at=began, task=name, attempt=attempt, pid=5)
        for name in names:
            yield events.FirstStep(at=began + 20, task=name, attempt=attempt)
        for after in range(_SAVE_EVERY, int(_LENGTH), _SAVE_EVERY):
            yield events.SavingStarted(at=began + after, task=names[0], attempt=attempt)
            yield events.SavingEnded(at=began + after + 9, task=names[0], attempt=attempt)
        is_last = attempt == _RESTARTS
        for number, name in enumerate(names):
            values = {"STEP": str(round(ended - BEGAN)), "LOSS": f"0.{number + 1}"}
            yield events.TaskReported(at=ended, task=name, values=values, step_at=ended - 1)
            code, signal = (0, None) if is_last else (None, 9 if name == names[0] else 15)
            yield events.TaskExited(at=ended, task=name, attempt=attempt, code=code, signal=signal)
            yield events.TaskEnded(
                at=ended, task=name, attempt=attempt, cpu_seconds=_LENGTH * 8,
                peak_memory_bytes=9_000_000_000, read_bytes=10**12, written_bytes=10**10,
            )  # fmt: skip
        if not is_last:
            yield events.RestartPlanned(
                at=ended, number=attempt + 1, tasks=tuple(names), delay=1.0, is_free=False,
                cause=Cause(Code.TASK_KILLED, task=names[0], signal=9), left=_RESTARTS - attempt,
            )  # fmt: skip
    outcome = events.Outcome(
        result=events.Result.SUCCEEDED, exit_code=0, origin=events.Origin.DISTRUN,
        cause=Cause(Code.JOB_SUCCEEDED),
    )  # fmt: skip
    yield events.JobEnded(at=BEGAN + DAY, outcome=outcome)


def _sample(number: int, after: float, chance: random.Random) -> Sample:
    attempt = int(after / _LENGTH)
    progress = {
        "STEP": float(round(after)),
        "EPOCH": float(round(after / 3600)),
        "LOSS": 2 * math.exp(-after / 2e4) + 0.05 * chance.random(),
        "ACCURACY": 1 - math.exp(-after / 2e4) + 0.01 * chance.random(),
        "LEARNING_RATE": 1e-3 * math.exp(-after / 3e4),
        "EXAMPLES_PER_SEC": 5000 + 100 * chance.random() + number,
    }
    return Sample(
        at=BEGAN + after, attempt=attempt, processes=3, progress=progress,
        cpu_seconds=(after - attempt * _LENGTH) * 8 + 20 * chance.random(),
        memory_bytes=int(8e9 + 1e9 * chance.random()), peak_memory_bytes=9_000_000_000,
        read_bytes=int(after * 1e7), written_bytes=int(after * 1e5),
        gpu_memory_bytes=int(30e9 + 1e9 * chance.random()), gpu_percent=90 + 10 * chance.random(),
    )  # fmt: skip
