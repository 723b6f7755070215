"""The record of a job of a day on many hosts, which nobody has time to run."""

from __future__ import annotations

import math
import random
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
_SAVE_EVERY = 600.0
_RESTARTS = 3


def write_long_job(path: Path, hosts: int = 16, tasks_a_host: int = 1) -> JobFolder:
    """Write the folder of a job that ran for a day, restarted three times and succeeded."""
    (path / "logs").mkdir(parents=True)
    folder = JobFolder(path)
    folder.spec_file.write_text(f"cluster: {{worker: {hosts * tasks_a_host}}}\n")
    names = [f"worker:{index}" for index in range(hosts * tasks_a_host)]
    host_of = {name: f"gpu{index // tasks_a_host}" for index, name in enumerate(names)}
    record = EventLog(str(folder.events_file))
    for event in _events(path.name, names, host_of):
        record.append(event)
    record.close()
    samples = HistoryLog(folder)
    chance = random.Random(5)
    for number, name in enumerate(names):
        for sample in _samples(number, chance):
            samples.append(name, sample)
        lines = (f"epoch {line}: loss {1 / (line + 1):.4f}, of {name}\n" for line in range(5000))
        folder.log_of(name).write_text("".join(lines))
    return folder


def _events(job_id: str, names: list[str], host_of: dict[str, str]) -> list[events.Event]:
    found: list[events.Event] = [
        events.JobCreated(
            at=BEGAN, job_id=job_id, name="long", strategy="multi_worker_mirrored",
            success=Success.CHIEF_AND_WORKERS, spec_file="long.yaml", supervisor_pid=1,
        )
    ]  # fmt: skip
    found += [
        events.HostReady(
            at=BEGAN + 2, host=host, agent_pid=2, hostname=host, python="3.11.7", cores=64.0,
            gpus=(0, 1), kind="ssh",
        )
        for host in dict.fromkeys(host_of.values())
    ]  # fmt: skip
    tasks = tuple(
        events.TaskRecord(name=name, role=Role.WORKER, index=index, host=host_of[name])
        for index, name in enumerate(names)
    )
    found.append(events.JobPlanned(at=BEGAN + 3, tasks=tasks))
    length = DAY / (_RESTARTS + 1)
    for attempt in range(_RESTARTS + 1):
        began, ended = BEGAN + attempt * length + 5, BEGAN + (attempt + 1) * length
        is_last = attempt == _RESTARTS
        found += [events.TaskStarted(at=began, task=name, attempt=attempt, pid=5) for name in names]
        found += [events.FirstStep(at=began + 20, task=name, attempt=attempt) for name in names]
        for save in range(1, int(length / _SAVE_EVERY)):
            at = began + save * _SAVE_EVERY
            found.append(events.SavingStarted(at=at, task=names[0], attempt=attempt))
            found.append(events.SavingEnded(at=at + 9, task=names[0], attempt=attempt))
        for name in names:
            step = str(round(ended - BEGAN))
            found.append(
                events.TaskReported(
                    at=ended, task=name, values={"STEP": step, "LOSS": "0.1"}, step_at=ended - 1
                )
            )
            code, signal = (0, None) if is_last else (None, 9 if name == names[0] else 15)
            found.append(
                events.TaskExited(at=ended, task=name, attempt=attempt, code=code, signal=signal)
            )
            found.append(
                events.TaskEnded(
                    at=ended, task=name, attempt=attempt, cpu_seconds=length * 8,
                    peak_memory_bytes=9_000_000_000, read_bytes=10**12, written_bytes=10**10,
                )
            )  # fmt: skip
        if not is_last:
            cause = Cause(Code.TASK_KILLED, task=names[0], signal=9)
            found.append(
                events.RestartPlanned(
                    at=ended, number=attempt + 1, tasks=tuple(names), cause=cause, delay=1.0,
                    is_free=False, left=_RESTARTS - attempt,
                )
            )  # fmt: skip
    outcome = events.Outcome(
        result=events.Result.SUCCEEDED,
        exit_code=0,
        origin=events.Origin.DISTRUN,
        cause=Cause(Code.JOB_SUCCEEDED),
    )
    return [
        *sorted(found, key=lambda event: event.at),
        events.JobEnded(at=BEGAN + DAY, outcome=outcome),
    ]


def _samples(number: int, chance: random.Random) -> list[Sample]:
    found = []
    length = DAY / (_RESTARTS + 1)
    for index in range(SAMPLES):
        after = DAY * (index + 1) / (SAMPLES + 1)
        attempt = int(after / length)
        found.append(
            Sample(
                at=BEGAN + after,
                attempt=attempt,
                cpu_seconds=(after - attempt * length) * 8 + 20 * chance.random(),
                memory_bytes=int(8e9 + 1e9 * chance.random()),
                peak_memory_bytes=9_000_000_000,
                processes=3,
                read_bytes=int(after * 1e7),
                written_bytes=int(after * 1e5),
                gpu_memory_bytes=int(30e9 + 1e9 * chance.random()),
                gpu_percent=90 + 10 * chance.random(),
                progress={
                    "STEP": float(round(after)),
                    "EPOCH": float(round(after / 3600)),
                    "LOSS": 2 * math.exp(-after / 2e4) + 0.05 * chance.random(),
                    "ACCURACY": 1 - math.exp(-after / 2e4) + 0.01 * chance.random(),
                    "LEARNING_RATE": 1e-3 * math.exp(-after / 3e4),
                    "EXAMPLES_PER_SEC": 5000 + 100 * chance.random() + number,
                },
            )
        )
    return found
