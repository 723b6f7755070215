"""Detects that a job's tasks make no progress (`timeouts.stall`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CHECKS = 4
"""How many checks there are in each `timeouts.stall`: a stall is noticed a quarter late at most."""


class StallWatch:
    """Compares the progress of a job's tasks from check to check.

    Progress is a step that a task has not reported before. Until any task has reported a step, all
    output counts as progress: the tasks may have no steps, or not have reached the first. The same
    is true of tasks whose bars show their steps, unless a bar moves: only its steps count then.
    The steps and the bar of a task that has exited do not matter any more.

    Args:
        seconds: how long there may be no progress.
        size_of_log: returns the size of a task's log in bytes.
        clock: in seconds; it stops while the machine sleeps.
    """

    def __init__(
        self, seconds: float, size_of_log: Callable[[str], int], clock: Callable[[], float]
    ) -> None:
        self._seconds, self._size_of_log, self._clock = seconds, size_of_log, clock
        self._last_progress = clock()
        self._steps: dict[str, str] = {}
        self._stepping: set[str] = set()
        """The tasks that are to report another step."""
        self._sizes: dict[str, int] = {}

    def start(self, tasks: Iterable[str]) -> float:
        """Start again with those tasks. Returns the seconds until the first check."""
        self._steps, self._stepping = {}, set()
        self._sizes = {task: self._size_of_log(task) for task in tasks}
        self._last_progress = self._clock()
        return self._seconds / _CHECKS

    def record(self, task: str, step: str | None, *, is_moving: bool = True) -> None:
        """Note the step that a task has reported.

        Args:
            task: its name.
            step: None if it has reported other progress.
            is_moving: whether another step is to follow.
        """
        if task not in self._sizes:
            return
        if step is not None and self._steps.get(task) != step:
            self._steps[task] = step
            self._last_progress = self._clock()
        if step is not None and is_moving:
            self._stepping.add(task)
        elif not is_moving and task in self._stepping:
            self._stepping.remove(task)
            self._last_progress = self._clock()

    def forget(self, task: str) -> None:
        """Forget the steps of a task that has exited: no other step is to follow."""
        if task in self._sizes:
            self._steps.pop(task, None)
            self._stepping.discard(task)
            self._last_progress = self._clock()

    def check(self, *, are_linked: bool = True) -> float | None:
        """Return the seconds until the next check; None if the tasks stall.

        Args:
            are_linked: whether all hosts can report progress. If not, the time starts again.
        """
        sizes = {task: self._size_of_log(task) for task in self._sizes}
        if not are_linked or (sizes != self._sizes and not self._stepping):
            self._last_progress = self._clock()
        self._sizes = sizes
        left = self._last_progress + self._seconds - self._clock()
        return min(left, self._seconds / _CHECKS) if left > 0 else None
