"""Notices that no task of a job does anything: a job that hangs without `timeouts.stall`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from distrun.agent.loop import Loop

QUIET_SECONDS = 120.0
"""A job is quiet after this time without any sign of its tasks."""
SUSPECT_SECONDS = 20.0
"""The same for a job with a task that serves at another address than TF_CONFIG's."""
_CHECKS = 8
"""How many checks there are in that time. A quiet job is noticed at most two checks late."""
_IDLE_SHARE = 0.01
"""Of a core. A TensorFlow task that waits for others uses 0.002 (measured, version 2.21)."""


class QuietWatch:
    """Compares what tasks print, report and use of the processor from check to check.

    Processor time is measured only while nothing else shows that a task does something.

    Args:
        size_of_log: returns the size of a task's log in bytes.
        measure: has all hosts report the processor time of their tasks, to :meth:`record_cpu`.
        list_running: returns the tasks that run; none if the job is not running, or a link is lost.
    """

    def __init__(
        self,
        loop: Loop,
        size_of_log: Callable[[str], int],
        measure: Callable[[], None],
        list_running: Callable[[], Collection[str]],
    ) -> None:
        self._loop = loop
        self._size_of_log, self._measure, self._list_running = size_of_log, measure, list_running
        self._seconds = QUIET_SECONDS
        self._last_sign = self._measured_at = loop.now()
        self._sizes: dict[str, int] = {}
        self._running: Collection[str] = ()
        self._used: dict[str, tuple[float, float]] = {}
        """The processor time that each task had used, and when that was measured."""
        self._idle: set[str] = set()
        """The tasks that have used none since the last sign of any task."""
        self._next = loop.call_at(loop.now() + QUIET_SECONDS / _CHECKS, self._check)
        self.is_quiet = False

    @property
    def since(self) -> float:
        """The time of the last sign, by the clock."""
        return self._last_sign

    def limit(self, seconds: float) -> None:
        """Call the job quiet after this time."""
        if seconds != self._seconds:
            self._seconds = seconds
            self._next.move(self._loop.now() + seconds / _CHECKS)

    def record_sign(self) -> None:
        """Note that a task does something."""
        self._last_sign = self._loop.now()
        self._used, self._idle = {}, set()
        self.is_quiet = False

    def _check(self) -> None:
        now, running = self._loop.now(), self._list_running()
        self._next.move(now + self._seconds / _CHECKS)
        sizes = {task: self._size_of_log(task) for task in running}
        if not running or sizes != self._sizes:
            self._sizes, self._running = sizes, running
            self.record_sign()
        elif not self._used or now - self._measured_at >= self._seconds * (1 - 1 / _CHECKS):
            self._measured_at = now
            self._measure()

    def record_cpu(self, seconds: Mapping[str, float]) -> None:
        """Note the processor time in seconds that the tasks of a host have used."""
        now = self._loop.now()
        for task, used in seconds.items():
            before, measured_at = self._used.get(task, (used, now))
            passed = now - measured_at
            if abs(used - before) > _IDLE_SHARE * passed:
                self.record_sign()
            elif passed >= self._seconds / 2:
                self._idle.add(task)
            if passed == 0 or passed >= self._seconds / 2:
                self._used[task] = used, now
        is_long = now - self._last_sign >= self._seconds
        self.is_quiet = is_long and bool(self._running) and self._idle.issuperset(self._running)
