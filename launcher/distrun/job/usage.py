"""The CPU, memory and GPU memory that tasks use."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from distrun.agent.linux import facts, processes
from distrun.codec import field_names
from distrun.frozen import Frozen
from distrun.job.history import last

if TYPE_CHECKING:
    from distrun.agent.linux.gpus import GpusUsed
    from distrun.job.folder import JobFolder
    from distrun.job.history import Sample
    from distrun.lifecycle import TaskState

_SAMPLE_SECONDS = 0.1
_PAGE = resource.getpagesize()
_TICKS = float(os.sysconf("SC_CLK_TCK"))


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
    same = {name: getattr(now, name) for name in field_names(Usage) if name != "cpu_percent"}
    return Usage(cpu_percent=_percent(used, now.cpu_seconds, now.at - (at or now.at)), **same)


def measure(
    pids: Sequence[int], samples: Mapping[int, Sequence[Sample]] = MappingProxyType({})
) -> dict[int, Usage]:
    """The usage of each process with its descendants. Processes that have ended are left out.

    The CPU load is that since the newest of its samples that is 1 to 60 s old, or in the 100 ms
    that this takes, in which the kernel counts one tick, 10% of a core, or none.
    """
    if not pids:
        return {}
    started = time.monotonic()
    before = {pid: _loads(pid) for pid in pids}
    gpus = _gpus_used()
    time.sleep(max(0.0, _SAMPLE_SECONDS - (time.monotonic() - started)))
    elapsed = time.monotonic() - started
    found = {}
    for pid in pids:
        # To look for processes takes longer than to look at them. New ones are 100 ms old at most.
        now = ((each, processes.load(each)) for each in before[pid])
        loads = {each: load for each, load in now if load is not None}
        if any(map(processes.is_hidden, loads)):
            found[pid] = Usage(time.time(), None, None, None, None, None)
        elif loads:
            earlier, used = (
                sum(each for each, _ in of.values()) / _TICKS for of in (before[pid], loads)
            )
            at, seconds = time.time(), elapsed
            for each in samples.get(pid, ()):
                before_used = used + 1 if each.cpu_seconds is None else each.cpu_seconds
                if before_used <= used and 1 <= at - each.at <= 60:
                    earlier, seconds = before_used, at - each.at
            found[pid] = Usage(
                at=at,
                cpu_percent=_percent(earlier, used, seconds),
                cpu_seconds=round(used, 2),
                memory_bytes=_PAGE * sum(pages for _, pages in loads.values()),
                gpu_memory_bytes=None if gpus is None else gpus.memory_of(list(loads)),
                processes=len(loads),
            )
    return found


def _percent(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None:
        return None
    return round(100 * max(0.0, after - before) / max(seconds, _SAMPLE_SECONDS), 1)


def _loads(pid: int) -> dict[int, tuple[int, int]]:
    """What each process of a tree has used: clock ticks, and pages of memory."""
    loads = ((each.pid, processes.load(each.pid)) for each in processes.tree(pid))
    return {each: load for each, load in loads if load is not None}


def _gpus_used() -> GpusUsed | None:
    if facts.find_nvidia_smi() is None:
        return None
    from distrun.agent.linux.gpus import gpus_used

    try:
        return gpus_used(with_load=False)
    except OSError:
        return None
