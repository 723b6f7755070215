"""The memory and the load of this host's GPUs, by nvidia-smi."""

from __future__ import annotations

import selectors
from typing import Dict, Iterable, List, Optional, Set

from distrun.agent.linux import facts
from distrun.agent.probe.forked_call import ForkedCall
from distrun.agent.protocol import Report

_INTERVAL = 10.0
"""Seconds. nvidia-smi takes up to half a second of a core."""
_SECONDS = 20.0
_MEBIBYTE = 1 << 20


class GpusUsed(Report):
    """What one call of nvidia-smi has shown. No agent sends it.

    `memory`: the bytes of each process. `processes`: the GPUs of each process. `percent`: the load
    of each GPU. Processes are by their ids, as text.
    """

    memory: Dict[str, int]
    processes: Dict[str, List[str]]
    percent: Dict[str, float]

    def memory_of(self, pids: Iterable[int]) -> int:
        """Return the bytes that these processes use."""
        return sum(self.memory.get(str(pid), 0) for pid in pids)

    def percent_of(self, pids: Iterable[int]) -> Optional[float]:
        """Return the mean load of the GPUs that these processes use; None if they use none."""
        used = {gpu for pid in pids for gpu in self.processes.get(str(pid), ())}
        loads = [self.percent[gpu] for gpu in used if gpu in self.percent]
        return round(sum(loads) / len(loads), 1) if loads else None


class GpuUsage:
    """Asks nvidia-smi from time to time, in a child: it may take long, or hang."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._call: Optional[ForkedCall] = None
        self._next = 0.0
        self.latest: Optional[GpusUsed] = None
        """The last answer; None: there was none yet."""

    @property
    def children(self) -> Set[int]:
        """The child that asks, if there is one."""
        return set() if self._call is None else {self._call.pid}

    def ask(self, now: float, interval: float) -> None:
        """Ask, unless the last question was less than an interval ago (seconds)."""
        if self._call is not None and self._call.due <= now:
            self.close()
        if self._call is None and now >= self._next:
            self._next = now + max(_INTERVAL, interval)
            try:
                self._call = ForkedCall(_gpus_used, now + _SECONDS)
            except OSError:
                return  # no process can be made now
            self._selector.register(self._call, selectors.EVENT_READ, self._on_readable)

    def close(self) -> None:
        """End a question that has not been answered."""
        if self._call is not None:
            self._selector.unregister(self._call)
            self._call.close()
            self._call = None

    def _on_readable(self) -> None:
        call = self._call
        if call is not None and call.read():
            answer = call.result()
            self.close()
            if isinstance(answer, GpusUsed):
                self.latest = answer


def _gpus_used() -> GpusUsed:
    memory: Dict[str, int] = {}
    gpus: Dict[str, List[str]] = {}
    for row in _query("--query-compute-apps=pid,gpu_uuid,used_gpu_memory"):
        if len(row) == 3 and row[0].isdigit():
            gpus.setdefault(row[0], []).append(row[1])
            if row[2].isdigit():  # some drivers report `[N/A]`
                memory[row[0]] = memory.get(row[0], 0) + int(row[2]) * _MEBIBYTE
    loads = _query("--query-gpu=uuid,utilization.gpu")
    percent = {row[0]: float(row[1]) for row in loads if len(row) == 2 and row[1].isdigit()}
    return GpusUsed(memory, gpus, percent)


def _query(query: str) -> List[List[str]]:
    text = facts.ask_nvidia_smi(query, "nounits") or ""
    return [[word.strip() for word in line.split(",")] for line in text.splitlines()]
