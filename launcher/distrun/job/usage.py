"""The CPU, memory and GPU memory that tasks use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.codec import field_names
from distrun.frozen import Frozen
from distrun.job.history import last

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder
    from distrun.lifecycle import TaskState


class Usage(Frozen):
    """The sum over a task's process tree at the moment `at` (Unix time). None: unknown.

    Memory is resident memory, in bytes. `cpu_seconds` is that of its present attempt.
    """

    at: float
    cpu_percent: float | None
    """Since the sample before, or since the task has started."""
    cpu_seconds: float | None
    memory_bytes: int | None
    gpu_memory_bytes: int | None
    """None also if the machine has no nvidia-smi."""
    processes: int | None


def sampled(folder: JobFolder, task: TaskState) -> Usage | None:
    """The usage of a task when it was sampled last.

    None if its present attempt was not sampled yet.
    """
    samples = [each for each in last(folder, task.name, 2) if each.attempt == task.attempt]
    if not samples:
        return None
    first, now = samples[0], samples[-1]
    at, used = (first.at, first.cpu_seconds) if len(samples) > 1 else (task.started_at, 0.0)
    percent = None
    if used is not None and now.cpu_seconds is not None:
        seconds = max(0.1, now.at - (at or now.at))
        percent = round(100 * max(0.0, now.cpu_seconds - used) / seconds, 1)
    same = {name: getattr(now, name) for name in field_names(Usage) if name != "cpu_percent"}
    return Usage(cpu_percent=percent, **same)
