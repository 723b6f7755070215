"""The curves of a report: what tasks used and reported over time, from the samples of a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from distrun.frozen import Frozen, replace
from distrun.job.steps import STEP

if TYPE_CHECKING:
    from distrun.job.history import Sample

    Starts = Mapping[tuple[str, int], float]
    """Unix time, by task and attempt."""
    Reading = Callable[[Sample], float | None]

Point = tuple[float, float]
"""Unix time, value. The value is NaN between two attempts: there the curve is interrupted."""
RATE = "EXAMPLES_PER_SEC"
COUNTS = {STEP, "STEPS", "EPOCH", "EPOCHS", "ETA", "SAVING", RATE}
"""The keys of progress that are no metrics."""
_FIRST = ("LOSS", "ACCURACY")
_MOST_METRICS = 6


class Panel(Frozen, kw_only=True):
    """Curves with one axis.

    Attributes:
        title: what it shows, with its unit.
        unit: of the values: `%`, `bytes`, `examples/s`, `steps`, or empty for a metric.
        curves: the points by task, in the order of time.
    """

    title: str
    unit: str
    curves: dict[str, list[Point]]


def panels(samples: Mapping[str, Sequence[Sample]], starts: Starts) -> list[Panel]:
    """Return the panels for which there are values, metrics first. Samples are in order of time."""
    found = [_panel(samples, metric_title(key), "", _reported(key)) for key in metrics(samples)]
    found += [
        _panel(samples, "Steps", "steps", _reported(STEP)),
        _panel(samples, "Examples per second, as reported", "examples/s", _reported(RATE)),
        Panel(
            title="Processor, % of a core",
            unit="%",
            curves={task: _loads(task, each, starts) for task, each in samples.items()},
        ),
        _panel(samples, "Resident memory (RSS)", "bytes", lambda each: each.memory_bytes),
        _panel(samples, "GPU memory", "bytes", lambda each: each.gpu_memory_bytes),
        _panel(samples, "GPU load, %", "%", lambda each: each.gpu_percent),
    ]
    shown = (replace(each, curves=dict(filter(_has_values, each.curves.items()))) for each in found)
    return [each for each in shown if each.curves]


def metrics(samples: Mapping[str, Sequence[Sample]]) -> list[str]:
    """Return the keys of progress that are metrics, the usual ones first."""
    keys = (key for each in samples.values() for one in each for key in one.progress)
    reported = [key for key in dict.fromkeys(keys) if key not in COUNTS]
    first = [key for key in _FIRST if key in reported]
    return list(dict.fromkeys([*first, *reported]))[:_MOST_METRICS]


def metric_title(key: str) -> str:
    return key.lower().replace("_", " ").capitalize()


def _reported(key: str) -> Reading:
    return lambda sample: sample.progress.get(key)


def _panel(
    samples: Mapping[str, Sequence[Sample]], title: str, unit: str, reading: Reading
) -> Panel:
    curves = {}
    for task, its in samples.items():
        values = ((each, reading(each)) for each in its)
        known = [(each, value) for each, value in values if value is not None]
        curves[task] = points(known, lambda each: each.at)
    return Panel(title=title, unit=unit, curves=curves)


def points(values: Iterable[tuple[Sample, float]], place: Callable[[Sample], float]) -> list[Point]:
    """Return samples with a value as points, each at its place; NaN between two attempts."""
    found: list[Point] = []
    attempt = None
    for sample, value in values:
        at = place(sample)
        if attempt is not None and sample.attempt != attempt:
            found.append((at, math.nan))
        attempt = sample.attempt
        found.append((at, value))
    return found


def _loads(task: str, samples: Sequence[Sample], starts: Starts) -> list[Point]:
    """Return the load until each sample, since the one before or the start: % of a core."""
    points: list[Point] = []
    attempt, at, used = None, 0.0, 0.0
    for sample in samples:
        if sample.attempt != attempt:
            points += [(sample.at, math.nan)] if attempt is not None else []
            attempt, used = sample.attempt, 0.0
            at = starts.get((task, attempt), math.inf)
        if sample.cpu_seconds is None:
            continue
        if sample.at > at:
            load = max(0.0, sample.cpu_seconds - used) / (sample.at - at)
            points.append((sample.at, 100 * load))
        at, used = sample.at, sample.cpu_seconds
    return points


def _has_values(curve: tuple[str, list[Point]]) -> bool:
    return not all(math.isnan(each) for _, each in curve[1])


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most about so many points, with the lowest and the highest of each stretch."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(2 * len(points) / most)
    kept: list[Point] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        ends = {index for index, (_, value) in enumerate(stretch) if math.isnan(value)}
        values = [index for index in range(len(stretch)) if index not in ends]
        if values:
            ends |= {
                min(values, key=lambda index: stretch[index][1]),
                max(values, key=lambda index: stretch[index][1]),
            }
        kept += [stretch[index] for index in sorted(ends)]
    return kept
