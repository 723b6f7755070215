"""The memory and the load of this host's GPUs, as nvidia-smi shows them."""

from __future__ import annotations

import os
from typing import Dict, Iterable, List, Optional

from distrun.agent.linux import facts
from distrun.agent.protocol import Report

_MEBIBYTE = 1 << 20
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h."""


class GpusUsed(Report):
    """What one call of nvidia-smi has shown. No agent sends it.

    `memory`: the bytes of each process; None: unknown. `processes`: the GPUs of each process.
    `percent`: the load of each GPU. Processes are by their ids, as text. `has_all`: whether a
    process that is not among them uses no GPU.
    """

    memory: Dict[str, Optional[int]]
    processes: Dict[str, List[str]]
    percent: Dict[str, float]
    has_all: bool

    def memory_of(self, pids: Iterable[int]) -> Optional[int]:
        """Return the bytes that these processes use; None: unknown."""
        names = set(map(str, pids))
        used = [self.memory[name] for name in names.intersection(self.memory)]
        known = [each for each in used if each is not None]
        is_unknown = len(known) < len(used) or not (used or self.has_all)
        return None if is_unknown else sum(known)

    def percent_of(self, pids: Iterable[int]) -> Optional[float]:
        """Return the mean load of the GPUs that these processes use; None if they use none."""
        used = {gpu for pid in pids for gpu in self.processes.get(str(pid), ())}
        loads = [self.percent[gpu] for gpu in used if gpu in self.percent]
        return round(sum(loads) / len(loads), 1) if loads else None


def gpus_used() -> GpusUsed:
    """Ask nvidia-smi. May block for 20 s a question. Raises OSError: it does not answer."""
    memory: Dict[str, Optional[int]] = {}
    gpus: Dict[str, List[str]] = {}
    for row in query("--query-compute-apps=pid,gpu_uuid,used_gpu_memory"):
        if len(row) == 3 and row[0].isdigit():
            gpus.setdefault(row[0], []).append(row[1])
            # Some drivers report `[N/A]`.
            more, known = row[2], memory.get(row[0], 0)
            is_known = more.isdigit() and known is not None
            memory[row[0]] = (known or 0) + int(more) * _MEBIBYTE if is_known else None
    loads = query("--query-gpu=uuid,utilization.gpu")
    percent = {row[0]: float(row[1]) for row in loads if len(row) == 2 and row[1].isdigit()}
    return GpusUsed(memory, gpus, percent, _sees_all_ids())


def _sees_all_ids() -> bool:
    """Whether process ids are the machine's. In a container nvidia-smi shows others, or none."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def query(values: str, seconds: float = facts.NVIDIA_SMI_SECONDS) -> List[List[str]]:
    """Return the rows of an answer of nvidia-smi. Raises OSError, as :func:`gpus_used`."""
    text = facts.ask_nvidia_smi(values, "nounits", seconds=seconds)
    return [[word.strip() for word in line.split(",")] for line in text.splitlines()]
