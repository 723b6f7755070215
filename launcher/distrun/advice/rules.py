"""What costs a job much of its time, by what its tasks report, use and print: one thing at most."""

from __future__ import annotations

import re
import statistics
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from distrun.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distrun.job.history import Sample

SECONDS, _FEWEST_SAMPLES, _FEWEST_STEPS = 60.0, 16, 8
"""What lasted less, or was seen less often, is no habit."""
_BEHIND = 0.7
"""Of the steps a second that the others of its role take: a task that takes fewer is behind."""
_IDLE = 0.25
"""Of a core: tasks that take steps and use less wait for most of the time."""
_RETRACING = re.compile(
    rb"\b([5-9]|[1-9]\d+) out of the last \d+ calls to (?:<(?:function|bound method) )?([\w.<>]+)"
    rb".{0,80}? triggered tf\.function retracing"
)


class Symptom(str, Enum):
    """What is slow."""

    BEHIND = "behind"
    RETRACING = "retracing"
    IDLE = "idle"


class Advice(Frozen, kw_only=True):
    """A symptom with its number: steps a second, calls that were traced, or cores that are used.

    `task`: the one that is meant; '': all. `usual`: the steps a second of the others. `name`: the
    function that is traced.
    """

    symptom: Symptom
    task: str
    amount: float
    usual: float = 0.0
    name: str = ""


def advise(samples: Mapping[str, Sequence[Sample]], logs: Mapping[str, bytes]) -> Advice | None:
    """Return what costs most; None: nothing does.

    Args:
        samples: by task, the last ones of its present attempt.
        logs: by task, the beginning of its present attempt's output.
    """
    rates = {task: rate for task, each in samples.items() if (rate := _steps_a_second(each))}
    for task in sorted(rates, key=lambda task: rates[task]):
        role = task.partition(":")[0]
        others = [r for n, r in rates.items() if n != task and n.partition(":")[0] == role]
        if others and rates[task] < _BEHIND * statistics.median(others):
            usual = statistics.median(others)
            return Advice(symptom=Symptom.BEHIND, task=task, amount=rates[task], usual=usual)
    for task, text in logs.items():
        found = _RETRACING.search(text)
        if found is not None:
            name = found[2].decode("utf-8", "replace")
            return Advice(symptom=Symptom.RETRACING, task=task, amount=int(found[1]), name=name)
    used = [_cores(samples[task]) for task in rates]
    if used and all(each is not None and each < _IDLE for each in used):
        amount = max(each for each in used if each is not None)
        return Advice(symptom=Symptom.IDLE, task="", amount=amount)
    return None


def _recent(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the last minute, or of more if they are few; none: too few."""
    found = [each for each in samples if each.attempt == samples[-1].attempt]
    for start in range(len(found) - _FEWEST_SAMPLES, -1, -1):
        if found[-1].at - found[start].at >= SECONDS:
            return found[start:]
    return []


def _steps_a_second(samples: Sequence[Sample]) -> float:
    """Return 0 if the task reports none, or too seldom."""
    recent = _recent(samples)
    steps = [each.progress.get("STEP", -1.0) for each in recent]
    changes = sum(a != b for a, b in pairwise(steps))
    if changes < _FEWEST_STEPS or -1.0 in steps:
        return 0.0
    # A step that is lower than the one before is of the next epoch.
    done = sum(b - a if b >= a else b for a, b in pairwise(steps))
    return done / (recent[-1].at - recent[0].at)


def _cores(samples: Sequence[Sample]) -> float | None:
    """Return the cores that a task uses; None: unknown, or it uses GPUs."""
    first, *_, last = _recent(samples)
    if last.gpu_memory_bytes or last.cpu_seconds is None or first.cpu_seconds is None:
        return None
    return (last.cpu_seconds - first.cpu_seconds) / (last.at - first.at)
