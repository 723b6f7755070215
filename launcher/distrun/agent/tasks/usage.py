"""What tasks use of the processor, of memory, files and GPUs, sampled while they run."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple, Union

from distrun.agent.linux import facts, processes
from distrun.agent.protocol import UsageSampled

if TYPE_CHECKING:
    from distrun.agent.linux.forked_call import ForkedCall
    from distrun.agent.linux.gpus import GpusUsed
    from distrun.agent.loop import Loop
    from distrun.agent.protocol import Cause, Message, Report
    from distrun.agent.tasks.task import Task

    Totals = Tuple[float, Optional[int], Optional[int], Optional[int]]
    """Seconds of processor time, the peak of memory in bytes, bytes read, bytes written. None:
    unknown."""

_FIRST_INTERVAL = 2.0
_SAMPLES_PER_AGE = 100
"""The interval is the time since the last start, divided by this, and a minute at most."""
_LONGEST_IDLE_INTERVAL = 10.0
"""While no task uses the processor, the interval doubles up to this."""
_LONGEST_INTERVAL = 60.0
_TREE_SECONDS = 30.0
"""How long the ids of a task's processes are used again: listing them reads every thread."""
_GPU_INTERVAL = 10.0
"""Seconds. nvidia-smi takes up to half a second of a core."""
_GPU_SECONDS = 20.0
_PAGE = resource.getpagesize()
_TICKS = float(os.sysconf("SC_CLK_TCK"))


class _Record:
    """What is known of the usage of one attempt."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.pids: List[int] = []
        self.is_hidden = False
        """Whether it has processes that this user cannot see, see `hidepid` in proc(5)."""
        self.load: Tuple[int, int, int, Optional[int]] = (-1, 0, 0, None)
        """The processes, the clock ticks and pages that they had used at last, and one's id that
        was suspended."""
        self.printed = 0
        """The size of its log then."""
        self.tree_due = 0.0
        self.last: Optional[UsageSampled] = None
        self.skipped_at = 0.0
        """When it was sampled after that without any difference; 0: never."""
        # The highest that were seen. What processes have used that nobody has waited for is lost
        # with them.
        self.peak = 0
        self.seconds = 0.0
        self.read = 0
        self.written = 0


class UsageSampler:
    """Reports what tasks use: every 2 s at first, and more rarely the older they are.

    A task that has used no processor time, and reported and printed nothing since its last sample,
    is sampled in full once a minute: its processes are only looked at.
    """

    def __init__(self, loop: Loop, report: Callable[[Report], None]) -> None:
        self._loop, self._report = loop, report
        self._records: Dict[str, _Record] = {}
        self._last_start = 0.0
        self._idle_rounds = 0
        """How many times in turn no task had used any time."""
        self._has_gpus: Optional[bool] = None
        """Whether this host has nvidia-smi; None: not known yet."""
        self._gpus_due = 0.0
        self._gpu_call: Optional[ForkedCall] = None
        self._gpus_used: Optional[GpusUsed] = None
        """The last answer; None: there was none yet, or the last question failed."""
        self._host_idle: Optional[float] = None
        self._next = loop.call_at(None, self._sample)

    def start(self, task: Task) -> None:
        self._records[task.name] = _Record(task)
        self._last_start, self._idle_rounds = self._loop.now(), 0
        self._next.move_forward(self._last_start + _FIRST_INTERVAL)

    def _sample(self) -> None:
        now, at = self._loop.now(), time.time()
        age = now - self._last_start
        interval = min(max(_FIRST_INTERVAL, age / _SAMPLES_PER_AGE), _LONGEST_INTERVAL)
        running = [each for each in self._records.values() if each.task.is_running]
        with contextlib.suppress(OSError):
            self._host_idle = processes.core_seconds()[1]
        is_idle = [self._sample_task(each, now, at) for each in running]
        self._idle_rounds = self._idle_rounds + 1 if all(is_idle) else 0
        longest = max(interval, _LONGEST_IDLE_INTERVAL)
        interval = min(interval * 2 ** min(self._idle_rounds, 3), longest)
        self._next.move(now + interval if self._records else None)
        if self._has_gpus is None:
            self._has_gpus = facts.find_nvidia_smi() is not None
        if self._has_gpus:
            self._ask_gpus(now, interval)

    def _sample_task(self, record: _Record, now: float, at: float) -> bool:
        """Report what a task uses, unless it has used no time since; returns whether that is so."""
        if now >= record.tree_due:
            record.pids = [process.pid for process in record.task.members()]
            record.is_hidden = any(map(processes.is_hidden, [record.task.pid, *record.pids]))
            record.tree_due = now + _TREE_SECONDS
        record.task.note_programs()
        count, ticks, pages, suspended = 0, 0, 0, None
        for pid in record.pids:
            used = processes.find(pid)
            if used is not None and not used.is_zombie:
                count, ticks, pages = count + 1, ticks + used.ticks, pages + used.pages
                suspended = pid if used.state == "T" else suspended  # not while a debugger looks
        last = record.last
        is_same = last is not None and last.progress == dict(record.task.progress)
        before, record.printed = record.printed, _size(record.task.log)
        is_same = is_same and before == record.printed
        is_same = is_same and last is not None and at - last.at < _LONGEST_INTERVAL
        load = (count, ticks, pages, suspended)
        if (is_same and record.load == load) or (record.pids and not count):
            record.skipped_at = at
            return True
        if last is not None and record.skipped_at:  # the change began after that
            self._report(last._replace(at=record.skipped_at))
        record.load, record.skipped_at = load, 0.0
        record.last = self._measure(record, at)
        self._report(record.last)
        return False

    def _ask_gpus(self, now: float, interval: float) -> None:
        """Ask nvidia-smi from time to time, in a child: it may take long, or hang."""
        # Imported here because few hosts have GPUs.
        from distrun.agent.linux.forked_call import report_call
        from distrun.agent.linux.gpus import GpusUsed, gpus_used

        def follow(answer: Union[Message, Cause]) -> None:
            self._gpu_call = None
            self._gpus_used = answer if isinstance(answer, GpusUsed) else None

        if self._gpu_call is None and now >= self._gpus_due:
            self._gpus_due = now + max(_GPU_INTERVAL, interval)
            self._gpu_call = report_call(self._loop, gpus_used, _GPU_SECONDS, follow)

    def end(self, task: Task, spent: List[processes.ChildUsage]) -> Totals:
        """Forget a task that was reaped, and return what it has used in all."""
        record = self._records.pop(task.name, None) or _Record(task)
        if not self._records:
            self._next.cancel()
            if self._gpu_call is not None:
                self._gpu_call.close()
                self._gpu_call = None
        peaks = [each.peak for each in spent if each.peak is not None]
        return (
            max(sum(each.seconds for each in spent), record.seconds),
            max([*peaks, record.peak]) or None,
            _total([each.read for each in spent], record.read),
            _total([each.written for each in spent], record.written),
        )

    def _measure(self, record: _Record, at: float) -> UsageSampled:
        task, progress = record.task, dict(record.task.progress)
        if record.is_hidden:
            nothing = (None, None, None, None, None, None, None, None, None)
            return UsageSampled(task.name, task.attempt, at, *nothing, progress)
        count, ticks, pages, suspended = record.load
        record.peak = max(record.peak, pages * _PAGE)
        record.seconds = max(record.seconds, ticks / _TICKS)
        read, written = _file_bytes(record.pids)
        record.read, record.written = max(record.read, read or 0), max(record.written, written or 0)
        gpus = self._gpus_used
        return UsageSampled(
            *(task.name, task.attempt, at, record.seconds),
            *(pages * _PAGE, record.peak, count),
            None if read is None else record.read,
            None if written is None else record.written,
            None if gpus is None else gpus.memory_of(record.pids),
            None if gpus is None else gpus.percent_of(record.pids),
            self._host_idle,
            progress,
            suspended,
        )


def _total(counts: List[Optional[int]], at_least: int) -> Optional[int]:
    """Return the sum, which was once at least so much; None if a part of it is unknown."""
    known = [each for each in counts if each is not None]
    return max(sum(known), at_least) if len(known) == len(counts) else None


def _file_bytes(pids: List[int]) -> Tuple[Optional[int], Optional[int]]:
    """Return the bytes that processes have read and written; None: unknown."""
    read = written = 0
    for pid in pids:
        try:
            words = processes.read_short("/proc/{}/io".format(pid)).split()
        except OSError:
            process = processes.find(pid)
            if process is not None and not process.is_zombie:
                return None, None
            continue
        read += int(words[1])
        written += int(words[3])
    return read, written


def _size(path: str) -> int:
    """Return the size of a file in bytes; 0 if there is none."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0
