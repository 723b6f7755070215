"""The tasks of a job that differ from the others: the slowest one, and the odd ones."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from distrun.frozen import Frozen
from distrun.job import events
from distrun.job.stacks import odd_one
from distrun.job.steps import STEP, behind, is_of_epoch, numbers, steps_done
from distrun.job.timing import BESIDE_OTHERS, Activity, Span
from distrun.lifecycle import TaskPhase, TaskState

_FEWEST_ALIKE = 3
"""From so many tasks of a role on, one of them can be odd."""


class Measure(Enum):
    """What is compared, and how much an outlier differs at least.

    That is a part of what is usual, and an amount in the measure's unit.
    """

    START = ("start", 0.3, 10.0)
    STEPS = ("steps", 0.05, 5.0)
    LOAD = ("load", 0.5, 20.0)
    MEMORY = ("memory", 0.5, 100e6)
    READ = ("read", 1.0, 100e6)
    WRITTEN = ("written", 1.0, 100e6)


class Outlier(Frozen, kw_only=True):
    """A task that differs from the others of its role.

    Attributes:
        task: its name.
        measure: in what; None: it stood at another place when the job stalled.
        value: of the task: seconds from its start to its first step, steps, the mean load in
            percent of a core, or bytes.
        usual: the median of the others.
        place: where it stood, if there is no measure.
    """

    task: str
    measure: Measure | None
    value: float = 0.0
    usual: float = 0.0
    place: str = ""

    @property
    def is_slow(self) -> bool:
        is_late = self.measure is Measure.START and self.value > self.usual
        return is_late or (self.measure is Measure.STEPS and self.value < self.usual)


def outliers(
    tasks: Iterable[TaskState], spans: Sequence[Span], history: Iterable[events.Event]
) -> list[Outlier]:
    """Return the outliers among the tasks of the last plan: in each measure the most different."""
    by_role: dict[str, list[TaskState]] = {}
    for task in tasks:
        by_role.setdefault(task.role.value, []).append(task)
    found = _elsewhere(history)
    for group in by_role.values():
        values: dict[Measure, Mapping[str, float | None]] = {
            Measure.START: _starts(spans, {task.name for task in group}),
            Measure.STEPS: _steps(group),
            Measure.LOAD: _loads(group, spans),
            Measure.MEMORY: {task.name: task.used.peak_memory_bytes for task in group},
            Measure.READ: {task.name: task.used.read_bytes for task in group},
            Measure.WRITTEN: {task.name: task.used.written_bytes for task in group},
        }
        found += filter(None, itertools.starmap(_most_different, values.items()))
    return found


def _most_different(measure: Measure, found: Mapping[str, float | None]) -> Outlier | None:
    values = {task: value for task, value in found.items() if value is not None}
    is_of_speed = measure in (Measure.START, Measure.STEPS)
    if len(values) < (2 if is_of_speed else _FEWEST_ALIKE):
        return None
    _, part, least = measure.value

    def usual(task: str) -> float:
        return statistics.median(value for name, value in values.items() if name != task)

    def difference(task: str) -> float:
        return abs(values[task] - usual(task))

    task = max(values, key=difference)
    if measure is Measure.START:  # the one that comes last, not first
        task = max(values, key=values.__getitem__)
    elif measure is Measure.STEPS:
        task = min(values, key=values.__getitem__)
    if difference(task) < max(least, part * usual(task)):
        return None
    return Outlier(task=task, measure=measure, value=values[task], usual=usual(task))


def _starts(spans: Sequence[Span], tasks: set[str]) -> dict[str, float]:
    """Return the seconds from the program's start to the first step, in the last attempt."""
    starts: dict[str, float] = {}
    trained = {(s.task, s.attempt) for s in spans if s.activity is Activity.TRAINING}
    for span in spans:
        is_whole = (span.task, span.attempt) in trained
        if span.task in tasks and span.activity is Activity.STARTING and is_whole:
            starts[span.task] = span.end - span.start
    return starts


def _steps(group: Sequence[TaskState]) -> dict[str, float]:
    """Return the steps done of those that report them; empty if they cannot be compared."""
    counts = {task.name: numbers(task.reported) for task in group}
    known = {task: values for task, values in counts.items() if STEP in values}
    ordered = sorted(known.values(), key=lambda each: (each.get("EPOCH", 0.0), each[STEP]))
    of_epoch = is_of_epoch(ordered)
    if not known or (of_epoch and not all("STEPS" in each for each in ordered)):
        return {}
    done = {task: steps_done(each, of_epoch=of_epoch) for task, each in known.items()}
    if any(task.phase is TaskPhase.RUNNING for task in group):
        first = [numbers(task.first_step) for task in group]
        if behind(done, [each[STEP] for each in first if STEP in each]) is None:
            return {}
    return done


def _loads(group: Sequence[TaskState], spans: Sequence[Span]) -> dict[str, float]:
    """Return the mean load of each task over all its attempts, in percent of a core."""
    ran: dict[str, float] = {}
    for span in spans:
        if span.activity is not Activity.WAITING and span.activity not in BESIDE_OTHERS:
            ran[span.task] = ran.get(span.task, 0.0) + span.end - span.start
    return {
        task.name: 100 * task.used.cpu_seconds / ran[task.name]
        for task in group
        if task.used.cpu_seconds is not None and ran.get(task.name, 0.0) > 0
    }


def _elsewhere(history: Iterable[events.Event]) -> list[Outlier]:
    found: list[Outlier] = []
    for event in history:
        odd = odd_one(event.places) if isinstance(event, events.TimedOut) else None
        if odd is not None:
            found += [Outlier(task=task, measure=None, place=odd.place) for task in odd.tasks]
    return found
