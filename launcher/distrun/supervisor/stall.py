"""Tells when nothing has come of a job's tasks for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LOOKS = 4
"""In each `timeouts.stall`: a stall is noticed after at most a quarter of it more."""


class StallWatch:
    """What a job's tasks have come to, looked at now and then.

    Progress is a step that a task tells of and has not told of before. Of tasks that have told
    of none it is whatever they print: they may have no steps, or not have come to the first.

    Args:
        seconds: how long there may be no progress.
        size_of_log: by the task's name, in bytes.
        clock: seconds, which do not pass while the machine sleeps.
    """

    def __init__(
        self, seconds: float, size_of_log: Callable[[str], int], clock: Callable[[], float]
    ) -> None:
        self._seconds, self._size_of_log, self._clock = seconds, size_of_log, clock
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

    def excuse(self) -> None:
        """Nothing can be known of the tasks just now: they get all of the time again."""
        self._last_progress = self._clock()

    def look(self) -> float | None:
        """The seconds until the next look; None where the tasks stall."""
        sizes = {task: self._size_of_log(task) for task in self._sizes}
        if sizes != self._sizes and not self._has_stepped:
            self._last_progress = self._clock()
        self._sizes = sizes
        left = self._last_progress + self._seconds - self._clock()
        return min(left, self._seconds / _LOOKS) if left > 0 else None
