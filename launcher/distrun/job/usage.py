"""The CPU, memory and GPU memory that tasks use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import psutil

from distrun.agent.linux import facts, processes
from distrun.frozen import Frozen
from distrun.job.history import last

if TYPE_CHECKING:
    from distrun.agent.linux.gpus import GpusUsed
    from distrun.job.folder import JobFolder
    from distrun.lifecycle import TaskState

_SAMPLE_SECONDS = 0.1


class Usage(Frozen):
    """The sum over a task's process tree at the moment `at` (Unix time). None: unknown.

    Memory is resident memory, in bytes. `cpu_seconds` is that of its present attempt.
    """

    at: float
    cpu_percent: float | None
    cpu_seconds: float | None
    memory_bytes: int | None
    gpu_memory_bytes: int | None
    """None also if the machine has no nvidia-smi."""
    processes: int | None


def sampled(folder: JobFolder, task: TaskState) -> Usage | None:
    """The usage of a task that runs on another machine, when it was sampled last there.

    None if its present attempt was not sampled yet.
    """
    samples = [each for each in last(folder, task.name, 2) if each.attempt == task.attempt]
    if not samples:
        return None
    first, now = samples[0], samples[-1]
    at, used = (first.at, first.cpu_seconds) if len(samples) > 1 else (task.started_at, 0.0)
    return Usage(
        at=now.at,
        cpu_percent=_percent(used, now.cpu_seconds, now.at - (at or now.at)),
        cpu_seconds=now.cpu_seconds,
        memory_bytes=now.memory_bytes,
        gpu_memory_bytes=now.gpu_memory_bytes,
        processes=now.processes,
    )


def measure(pids: Sequence[int]) -> dict[int, Usage]:
    """The usage of each process with its descendants. Processes that have ended are left out.

    This takes 100 ms: the CPU load is measured between two samples.
    """
    if not pids:
        return {}
    started = time.monotonic()
    before = {pid: _cpu_seconds(tree) for pid, tree in _trees(pids).items()}
    gpus = _gpus_used()
    time.sleep(max(0.0, _SAMPLE_SECONDS - (time.monotonic() - started)))
    elapsed = time.monotonic() - started
    found = {}
    for pid, members in _trees(pids).items():
        ids = [each.pid for each in members]
        if any(map(processes.is_hidden, ids)):
            found[pid] = Usage(time.time(), None, None, None, None, None)
            continue
        cpu = _cpu_seconds(members)
        found[pid] = Usage(
            at=time.time(),
            cpu_percent=_percent(before.get(pid, cpu), cpu, elapsed),
            cpu_seconds=None if cpu is None else round(cpu, 2),
            memory_bytes=_memory(members),
            gpu_memory_bytes=None if gpus is None else gpus.memory_of(ids),
            processes=len(members),
        )
    return found


def _percent(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None:
        return None
    return round(100 * max(0.0, after - before) / max(seconds, _SAMPLE_SECONDS), 1)


def _trees(pids: Sequence[int]) -> dict[int, list[psutil.Process]]:
    trees = {pid: [each.pid for each in processes.tree(pid)] for pid in pids}
    return {pid: list(_processes(members)) for pid, members in trees.items() if members}


def _processes(pids: list[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def _cpu_seconds(members: list[psutil.Process]) -> float | None:
    used = 0.0
    for process in members:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        except psutil.Error:
            return None
        used += times.user + times.system
    return used


def _memory(members: list[psutil.Process]) -> int | None:
    used = 0
    for process in members:
        try:
            used += int(process.memory_info().rss)
        except psutil.NoSuchProcess:
            continue
        except psutil.Error:
            return None
    return used


def _gpus_used() -> GpusUsed | None:
    if facts.find_nvidia_smi() is None:
        return None
    from distrun.agent.linux.gpus import gpus_used

    try:
        return gpus_used(with_load=False)
    except OSError:
        return None
