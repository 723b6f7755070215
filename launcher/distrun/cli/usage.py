"""CPU, memory and GPU memory of tasks' whole process trees on this machine."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass

import psutil

_SAMPLE_SECONDS = 0.1
_NVIDIA_SMI_SECONDS = 10


@dataclass(frozen=True)
class Usage:
    """What a task's processes use together. Memory is resident, in bytes."""

    cpu_percent: float
    cpu_seconds: float
    memory_bytes: int
    gpu_memory_bytes: int | None
    """None where the machine has no nvidia-smi."""
    processes: int


def usages(pids: list[int]) -> dict[int, Usage]:
    """The usage of each process and all below it; those that have gone are left out.

    Looks twice, 100 ms apart, to tell how busy they are now.
    """
    if not pids:
        return {}
    before = {pid: _cpu_seconds(_tree(pid)) for pid in pids}
    began = time.monotonic()
    gpu = _gpu_memory()
    time.sleep(max(0.0, _SAMPLE_SECONDS - (time.monotonic() - began)))
    elapsed = time.monotonic() - began
    found = {}
    for pid in pids:
        processes = _tree(pid)
        if processes:
            cpu = _cpu_seconds(processes)
            found[pid] = Usage(
                cpu_percent=round(100 * max(0.0, cpu - before[pid]) / elapsed, 1),
                cpu_seconds=round(cpu, 2),
                memory_bytes=sum(map(_memory, processes)),
                gpu_memory_bytes=(
                    None if gpu is None else sum(gpu.get(each.pid, 0) for each in processes)
                ),
                processes=len(processes),
            )
    return found


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _gpu_memory() -> dict[int, int] | None:
    """Bytes on GPUs by process id, as nvidia-smi tells."""
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
        rows = [line.split(",") for line in answer.stdout.splitlines() if "," in line]
        used: dict[int, int] = {}
        for pid, mebibytes in rows:
            used[int(pid)] = used.get(int(pid), 0) + int(mebibytes) * 1024 * 1024
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return used
