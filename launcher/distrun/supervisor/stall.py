"""Tells when nothing has come of a job's tasks for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_LOOKS = 4
"""In each `timeouts.stall`: a stall is noticed after at most a quarter of it more."""


class StallWatch:
    """What a job's tasks have come to, looked at now and then.

    Progress is a step that a task tells of and has not told of before. Of tasks that have told
    of none it is whatever they print: they may have no steps, or not have come to the first.

    Args:
        seconds: how long there may be no progress.
        log_of: where a task's log is, by the task's name.
        clock: seconds, which do not pass while the machine sleeps.
    """

    def __init__(
        self, seconds: float, log_of: Callable[[str], Path], clock: Callable[[], float]
    ) -> None:
        self._seconds, self._log_of, self._clock = seconds, log_of, clock
        self._last_progress = clock()
        self._steps: dict[str, str] = {}
        self._has_stepped = False
        self._sizes: dict[str, int] = {}

    def begin(self, tasks: Iterable[str]) -> float:
        """Wait anew, for those tasks; returns the seconds until the first look."""
        self._steps, self._has_stepped = {}, False
        self._sizes = {task: self._size_of_log(task) for task in tasks}
        self._last_progress = self._clock()
        return self._seconds / _LOOKS

    def take(self, task: str, step: str | None) -> None:
        """What a task has told of itself."""
        if step is not None and task in self._sizes and self._steps.get(task) != step:
            self._steps[task] = step
            self._has_stepped = True
            self._last_progress = self._clock()

    def look(self, *, are_known: bool = True) -> float | None:
        """The seconds until the next look; None where the tasks stall.

        Args:
            are_known: whether what the tasks do can be known; else all of their time is given anew.
        """
        sizes = {task: self._size_of_log(task) for task in self._sizes}
        if not are_known or (sizes != self._sizes and not self._has_stepped):
            self._last_progress = self._clock()
        self._sizes = sizes
        left = self._last_progress + self._seconds - self._clock()
        return min(left, self._seconds / _LOOKS) if left > 0 else None

    def _size_of_log(self, task: str) -> int:
        try:
            return self._log_of(task).stat().st_size
        except OSError:
            return 0
