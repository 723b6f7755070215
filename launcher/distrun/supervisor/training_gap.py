"""What an interruption costs: the time without training, and the repeated steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from distrun.job.events import Event, TrainingContinued
from distrun.lifecycle import JobState

_MOST_DIGITS = 15


class _Last(NamedTuple):
    """The last step of a task, and when it was known."""

    step: int
    epoch: int | None
    at: float


class TrainingGap:
    """Compares the last step of a task before an interruption with its first one after it.

    How many steps are repeated is known where a task reports its steps, and goes on in the same
    epoch or counts over all epochs.
    """

    def __init__(self, emit: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self._last: dict[str, _Last] = {}
        self._former: dict[str, _Last] = {}
        """The same before the interruption; empty: there is none."""
        self._is_restart = False
        self._counts_over_all: dict[str, bool] = {}
        """By task: whether it counts over all epochs, or from 0 in each; else that is not known."""

    def resume(self, former: JobState, at: float) -> None:
        """Compare with the steps of a job that has ended at this time."""
        for task in former.tasks.values():
            last = _last_of(task.reported, at)
            if task.is_in_group and last is not None:
                self._last[task.name] = last
        self.interrupt(self._last)

    def interrupt(self, tasks: Collection[str]) -> None:
        """Tasks have ended and will start by another plan. `tasks`: whose last step is known."""
        known = {task: last for task, last in self._last.items() if task in tasks}
        if not self._former or self._is_restart:
            self._former = known or dict(self._last)
            self._is_restart = False

    def start(self, task: str) -> None:
        """The next attempt of a task starts: by another plan, or after an interruption anyway."""
        last = self._last.pop(task, None)
        if last is not None and (self._is_restart or not self._former):
            self._former[task] = last
            self._is_restart = True

    def record(self, task: str, values: Mapping[str, str], *, is_printed: bool) -> None:
        """Note a task's progress. Its first step after an interruption ends that."""
        now = self._clock()
        known, first = self._last.get(task), _last_of(values, now)
        if first is None or (known is not None and known[:2] == first[:2]):
            return
        if known is not None and first.step < known.step:
            self._counts_over_all[task] = False
        elif known is not None and first.epoch != known.epoch and first.step > known.step:
            self._counts_over_all.setdefault(task, True)
        self._last[task] = first
        if task not in self._former:
            return
        former, self._former = self._former[task], {}
        is_restart, self._is_restart = self._is_restart, False
        is_over_all = self._counts_over_all.get(task, first.epoch is None)
        is_known = is_over_all or (former.epoch == first.epoch and first.epoch is not None)
        repeated = max(0, former.step - max(0, first.step - 1))
        self._emit(
            TrainingContinued(
                at=now,
                task=task,
                step=first.step,
                epoch=first.epoch,
                former_step=former.step,
                former_epoch=former.epoch,
                seconds=round(max(0.0, now - former.at), 3),
                repeated_steps=repeated if is_known and not is_printed else None,
                is_restart=is_restart,
            )
        )


def _last_of(values: Mapping[str, str], at: float) -> _Last | None:
    step, epoch = (
        int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
        for text in (values.get(key, "") for key in ("STEP", "EPOCH"))
    )
    return None if step is None else _Last(step, epoch, at)
