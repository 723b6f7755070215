"""What an interruption costs: the time without training, and the repeated steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.events import Event, TrainingContinued
from distrun.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from distrun.lifecycle import JobState

_MOST_DIGITS = 15


class _Steps(Frozen):
    """The steps that a task has reported or printed: over all epochs, or within one."""

    step: int
    steps: int | None
    epoch: int | None
    epochs: int | None

    @property
    def seems_over_all(self) -> bool:
        """Whether the counts fit steps over all epochs; by chance, those within one fit as well."""
        if not (self.steps and self.epoch and self.epochs):
            return False
        return self.epoch - 1 <= self.step * self.epochs / self.steps <= self.epoch


class TrainingGap:
    """Compares the steps of a task before an interruption with its first ones after it.

    The number of repeated steps is unknown if a task counts its steps within epochs, and does not
    show which epochs these are, or how many steps they have.

    Args:
        emit: called with the event once a task trains again.
        clock: Unix time in seconds.
    """

    def __init__(self, emit: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self._last: dict[str, tuple[_Steps, float]] = {}
        """By task: the last steps of its attempt, and when they were reported."""
        self._former: dict[str, tuple[_Steps, float]] = {}
        """The same before the interruption; empty: there is none."""
        self._is_restart = False
        """Whether the interruption is a restart by the same plan."""
        self._falling: set[str] = set()
        """The tasks whose count has begun anew: it is within an epoch."""
        self._rising: set[str] = set()
        """The tasks whose count has risen from one epoch to the next."""

    def resume(self, former: JobState, at: float) -> None:
        """Compare with the steps of a job that has ended at this time."""
        for task in former.tasks.values():
            steps = _steps_of(task.reported)
            if task.is_in_group and steps is not None:
                self._last[task.name] = steps, at
        self.interrupt(self._last)

    def interrupt(self, tasks: Collection[str]) -> None:
        """The tasks have ended and will start again by another plan.

        Args:
            tasks: those whose last steps are known; those of a lost host are late.
        """
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
        """Note the progress of a task. Its first step after an interruption ends that.

        Args:
            task: its name.
            values: all that is known of its progress.
            is_printed: whether the task prints its progress and does not report it.
        """
        steps = _steps_of(values)
        if steps is None or not self._is_next(task, steps, is_printed):
            return
        now = self._clock()
        self._last[task] = steps, now
        if task not in self._former:
            return
        former, at = self._former[task]
        is_restart, self._is_restart, self._former = self._is_restart, False, {}
        self._emit(
            TrainingContinued(
                at=now,
                task=task,
                step=steps.step,
                epoch=steps.epoch,
                former_step=former.step,
                former_epoch=former.epoch,
                seconds=round(max(0.0, now - at), 3),
                repeated_steps=self._repeated(task, former, steps, is_printed),
                is_estimate=is_printed,
                is_restart=is_restart,
            )
        )

    def _is_next(self, task: str, steps: _Steps, is_printed: bool) -> bool:
        """Whether steps follow the last ones. Otherwise they may be those of an evaluation."""
        if task not in self._last:
            return True
        last = self._last[task][0]
        if last.epoch is None and steps.step < last.step:
            self._falling.add(task)
            return True
        if last.epoch is None or steps.epoch is None or steps.epoch == last.epoch:
            return steps.step > last.step and steps.steps == last.steps
        if steps.step == last.step and not is_printed:
            return False  # the new epoch's step follows in another report
        if steps.step != last.step:
            (self._falling if steps.step < last.step else self._rising).add(task)
        return steps.epoch > last.epoch

    def _repeated(self, task: str, former: _Steps, first: _Steps, is_printed: bool) -> int | None:
        """Return how many steps were repeated; None if that is unknown."""
        before = max(0, first.step - 1)
        is_over_all = former.seems_over_all and first.seems_over_all
        has_epochs = former.epoch is not None and first.epoch is not None
        is_fallen, is_risen = task in self._falling, task in self._rising
        if first.step == first.steps and first.steps > 1:
            return None  # it shows only the ends of epochs
        if has_epochs and is_over_all and not is_fallen and (is_risen or first.epoch != 1):
            return max(0, former.step - before)
        if former.steps != first.steps:
            return None
        if former.epoch == first.epoch:
            # Without epochs, a bar that begins anew may be that of any epoch.
            is_unclear = not has_epochs and (is_fallen or (is_printed and first.step <= 1))
            return None if is_unclear else max(0, former.step - before)
        if has_epochs and first.steps is not None and (is_fallen or is_printed):
            epochs = (former.epoch or 0) - (first.epoch or 0)
            return max(0, epochs * first.steps + former.step - before)
        return None


def _steps_of(values: Mapping[str, str]) -> _Steps | None:
    step, steps, epoch, epochs = (
        int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
        for text in (values.get(key, "") for key in ("STEP", "STEPS", "EPOCH", "EPOCHS"))
    )
    return None if step is None else _Steps(step, steps, epoch, epochs)
