"""What tasks use of the processor, of memory, files and GPUs, sampled while they run."""

from __future__ import annotations

import os
import resource
import selectors
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Set, Tuple

from distrun.agent.linux import facts, processes
from distrun.agent.protocol import UsageSampled

if TYPE_CHECKING:
    from distrun.agent.protocol import Report
    from distrun.agent.tasks.gpu_usage import GpuUsage
    from distrun.agent.tasks.task import Task

    Totals = Tuple[float, int, int, int]
    """Seconds of processor time, the peak of memory in bytes, bytes read, bytes written."""

_FIRST_INTERVAL = 2.0
_SAMPLES_PER_AGE = 100
"""The interval is the time since the last start, divided by this: 700 samples a day."""
_LONGEST_IDLE_INTERVAL = 10.0
"""While no task uses the processor, the interval doubles up to this."""
_TREE_SECONDS = 30.0
"""How long the ids of a task's processes are used again: listing them reads every thread."""
_PAGE = resource.getpagesize()
_TICKS = float(os.sysconf("SC_CLK_TCK"))


class _Record:
    """What is known of the usage of one attempt."""

    def __init__(self) -> None:
        self.pids: List[int] = []
        self.load = (-1, 0, 0)
        """The processes, the clock ticks and the pages of memory that they had used at last."""
        self.tree_due = 0.0
        self.last: Optional[UsageSampled] = None
        self.skipped_at = 0.0
        """When it was sampled after that without any difference; 0: never."""
        self.peak = 0


class UsageSampler:
    """Reports what tasks use: every 2 s at first, and ever more rarely the older they are.

    A task that has used no processor time since its last sample is not sampled in full: its
    processes are only looked at.

    Args:
        report: sends a report, which is kept until the supervisor has it.
    """

    def __init__(self, selector: selectors.BaseSelector, report: Callable[[Report], None]) -> None:
        self._selector, self._report = selector, report
        self._records: Dict[str, _Record] = {}
        self._last_start = 0.0
        self._idle_rounds = 0
        """How many times in turn no task had used any time."""
        self._gpus: Optional[GpuUsage] = None
        self._has_gpus: Optional[bool] = None
        """Whether this host has nvidia-smi; None: not known yet."""
        self.due: Optional[float] = None
        """When :meth:`sample` is due, by the monotonic clock."""

    @property
    def children(self) -> Set[int]:
        """The children of this process that belong to no task, and end by themselves."""
        return set() if self._gpus is None else self._gpus.children

    def start(self, task: Task, now: float) -> None:
        """Sample a task from now on. `now` is monotonic, in seconds."""
        self._records[task.name] = _Record()
        self._last_start, self._idle_rounds = now, 0
        first = now + _FIRST_INTERVAL
        self.due = first if self.due is None else min(self.due, first)

    def sample(self, tasks: List[Task], now: float, at: float) -> None:
        """Report what these tasks use now. `now` is monotonic, `at` is Unix time, in seconds."""
        interval = max(_FIRST_INTERVAL, (now - self._last_start) / _SAMPLES_PER_AGE)
        is_idle = [self._sample_task(task, now, at) for task in tasks]
        self._idle_rounds = self._idle_rounds + 1 if all(is_idle) else 0
        longest = max(interval, _LONGEST_IDLE_INTERVAL)
        interval = min(interval * 2 ** min(self._idle_rounds, 3), longest)
        self.due = now + interval if self._records else None
        if self._has_gpus is None:
            self._has_gpus = facts.find_nvidia_smi() is not None
        if self._has_gpus:
            self._ask_gpus(now, interval)

    def _sample_task(self, task: Task, now: float, at: float) -> bool:
        """Report what a task uses, unless it has used no time since; returns whether that is so."""
        record = self._records[task.name]
        if now >= record.tree_due:
            record.pids = [process.pid for process in task.members()]
            record.tree_due = now + _TREE_SECONDS
        count = ticks = pages = 0
        for pid in record.pids:
            used = processes.load(pid)
            if used is not None:
                count, ticks, pages = count + 1, ticks + used[0], pages + used[1]
        last = record.last
        if last is not None and record.load == (count, ticks, pages):
            record.skipped_at = at
            return True
        if last is not None and record.skipped_at:  # the change began after that
            self._report(last._replace(at=record.skipped_at))
        record.load, record.skipped_at = (count, ticks, pages), 0.0
        record.last = self._measure(task, record, at)
        self._report(record.last)
        return False

    def _ask_gpus(self, now: float, interval: float) -> None:
        if self._gpus is None:
            # Imported here because few hosts have GPUs.
            from distrun.agent.tasks.gpu_usage import GpuUsage

            self._gpus = GpuUsage(self._selector)
        self._gpus.ask(now, interval)

    def end(self, task: Task, used: resource.struct_rusage, files: Tuple[int, int]) -> Totals:
        """Forget a task that has ended, and return what it has used in all.

        Args:
            task: its first process has been reaped.
            used: by its first process, and by those that were waited for.
            files: the bytes that these have read and written.
        """
        record = self._records.pop(task.name, None) or _Record()
        if not self._records:
            self.due = None
            if self._gpus is not None:
                self._gpus.close()
        last = record.last
        # The kernel counts the memory of the agent, too, from which the process was forked.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = used.ru_maxrss * 1024 if used.ru_maxrss > own else 0
        seconds = used.ru_utime + used.ru_stime
        if last is None:
            return seconds, peak, files[0], files[1]
        return (
            max(seconds, last.cpu_seconds),
            max(peak, record.peak),
            max(files[0], last.read_bytes),
            max(files[1], last.written_bytes),
        )

    def _measure(self, task: Task, record: _Record, at: float) -> UsageSampled:
        count, ticks, pages = record.load
        last = record.last
        record.peak = max(record.peak, pages * _PAGE)
        # The time of processes that nobody has waited for is lost with them.
        seconds = max(ticks / _TICKS, 0.0 if last is None else last.cpu_seconds)
        files = (0, 0) if last is None else (last.read_bytes, last.written_bytes)
        gpus = None if self._gpus is None else self._gpus.latest
        return UsageSampled(
            *(task.name, task.attempt, at, seconds, pages * _PAGE, record.peak, count),
            *file_bytes(record.pids, files),
            None if gpus is None else gpus.memory_of(record.pids),
            None if gpus is None else gpus.percent_of(record.pids),
            dict(task.progress),
        )


def file_bytes(pids: List[int], at_least: Tuple[int, int] = (0, 0)) -> Tuple[int, int]:
    """Return the bytes that processes have read and written, by read and write calls."""
    read = written = 0
    for pid in pids:
        try:
            with open("/proc/{}/io".format(pid), "rb") as file:
                lines = file.read().split()
        except OSError:
            continue
        read += int(lines[1])
        written += int(lines[3])
    return max(read, at_least[0]), max(written, at_least[1])
