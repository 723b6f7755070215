"""The CPU, memory and GPU memory that tasks use."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import psutil

from distrun.agent.linux import processes
from distrun.frozen import Frozen
from distrun.history import last

if TYPE_CHECKING:
    from distrun.jobstore import JobFolder
    from distrun.lifecycle import TaskState

_SAMPLE_SECONDS = 0.1
_NVIDIA_SMI_SECONDS = 10


class Usage(Frozen):
    """The sum over a task's process tree at the moment `at` (Unix time).

    Memory is resident memory, in bytes. `cpu_seconds` is that of its present attempt.
    """

    at: float
    cpu_percent: float
    cpu_seconds: float
    memory_bytes: int
    gpu_memory_bytes: int | None
    """None if the machine has no nvidia-smi."""
    processes: int


def sampled(folder: JobFolder, task: TaskState) -> Usage | None:
    """The usage of a task that runs on another machine, when it was sampled last there.

    None if its present attempt was not sampled yet.
    """
    samples = [each for each in last(folder, task.name, 2) if each.attempt == task.attempt]
    if not samples:
        return None
    first, now = samples[0], samples[-1]
    before = (first.at, first.cpu_seconds) if len(samples) > 1 else (task.started_at or now.at, 0.0)
    seconds = max(now.at - before[0], _SAMPLE_SECONDS)
    return Usage(
        at=now.at,
        cpu_percent=round(100 * max(0.0, now.cpu_seconds - before[1]) / seconds, 1),
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
    gpu = _gpu_memory()
    time.sleep(max(0.0, _SAMPLE_SECONDS - (time.monotonic() - started)))
    elapsed = time.monotonic() - started
    found = {}
    for pid, members in _trees(pids).items():
        cpu = _cpu_seconds(members)
        found[pid] = Usage(
            at=time.time(),
            cpu_percent=round(100 * max(0.0, cpu - before.get(pid, cpu)) / elapsed, 1),
            cpu_seconds=round(cpu, 2),
            memory_bytes=sum(map(_memory, members)),
            gpu_memory_bytes=(
                None if gpu is None else sum(gpu.get(each.pid, 0) for each in members)
            ),
            processes=len(members),
        )
    return found


def _trees(pids: Sequence[int]) -> dict[int, list[psutil.Process]]:
    trees = {pid: [each.pid for each in processes.tree(pid)] for pid in pids}
    return {pid: list(_processes(members)) for pid, members in trees.items() if members}


def _processes(pids: list[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def _cpu_seconds(members: list[psutil.Process]) -> float:
    total = 0.0
    for process in members:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _gpu_memory() -> dict[int, int] | None:
    """Bytes of GPU memory by process id, from nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = "--query-compute-apps=pid,used_gpu_memory"
    try:
        answer = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SMI_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    used: dict[int, int] = {}
    for line in answer.stdout.splitlines():
        pid, _, mebibytes = line.partition(",")
        # Some drivers report `[N/A]`.
        if pid.strip().isdigit() and mebibytes.strip().isdigit():
            used[int(pid)] = used.get(int(pid), 0) + int(mebibytes) * 1024 * 1024
    return used
