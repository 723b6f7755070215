"""CPU and memory of a task's whole process tree on this machine."""

from __future__ import annotations

from typing import Any

import psutil


def task_usage(pid: int) -> dict[str, Any] | None:
    """CPU seconds, resident bytes and number of processes; None where it has gone."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    cpu = memory = 0.0
    count = 0
    for process in processes:
        try:
            with process.oneshot():
                times = process.cpu_times()
                cpu += times.user + times.system
                memory += process.memory_info().rss
                count += 1
        except psutil.Error:
            continue
    return {"cpu_seconds": round(cpu, 2), "memory_bytes": int(memory), "processes": count}
