"""Detects that a job's tasks make no progress (`timeouts.stall`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_CHECKS = 4
"""How many checks there are in each `timeouts.stall`: a stall is noticed a quarter late at most."""


class StallWatch:
    """Compares the progress of a job's tasks from check to check.

    Progress is a step that a task reports for the first time. Until any task has reported a step,
    all output counts as progress: the tasks may have no steps, or not have reached the first.

    Args:
        seconds: how long there may be no progress.
        log_of: returns the path of a task's log.
        clock: in seconds; it stops while the machine sleeps.
    """

    def __init__(
        self, seconds: float, log_of: Callable[[str], Path], clock: Callable[[], float]
    ) -> None:
        self._seconds, self._log_of, self._clock = seconds, log_of, clock
        self._last_progress = clock()
        self._steps: dict[str, str] = {}
        self._has_stepped = False
        self._sizes: dict[str, int] = {}

    def start(self, tasks: Iterable[str]) -> float:
        """Start again with those tasks. Returns the seconds until the first check."""
        self._steps, self._has_stepped = {}, False
        self._sizes = {task: self._size_of_log(task) for task in tasks}
        self._last_progress = self._clock()
        return self._seconds / _CHECKS

    def record(self, task: str, step: str | None) -> None:
        """Note the step that a task has reported."""
        if step is not None and task in self._sizes and self._steps.get(task) != step:
            self._steps[task] = step
            self._has_stepped = True
            self._last_progress = self._clock()

    def check(self, *, are_linked: bool = True) -> float | None:
        """Return the seconds until the next check; None if the tasks stall.

        Args:
            are_linked: whether all hosts can report progress. If not, the time starts again.
        """
        sizes = {task: self._size_of_log(task) for task in self._sizes}
        if not are_linked or (sizes != self._sizes and not self._has_stepped):
            self._last_progress = self._clock()
        self._sizes = sizes
        left = self._last_progress + self._seconds - self._clock()
        return min(left, self._seconds / _CHECKS) if left > 0 else None

    def _size_of_log(self, task: str) -> int:
        try:
            return self._log_of(task).stat().st_size
        except OSError:
            return 0
