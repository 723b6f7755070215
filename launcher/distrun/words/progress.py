"""The progress that tasks report, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from distrun.spec.problems import printable
from distrun.words.formats import format_duration, format_short

_COUNTS = (("EPOCH", "EPOCHS"), ("STEP", "STEPS"))
"""The keys of a number that grows, and of its total."""
_RATE = "EXAMPLES_PER_SEC"
_PERCENT = "PERCENT"
"""The share of the work, or of an epoch, that a program without counts has done."""
_ETA = "ETA"
"""The seconds that the task's present bar has left: mostly, until the end of an epoch."""
_SAVING = "SAVING"
"""1 while the task saves a checkpoint."""
_ORDERED = ("LOSS", "ACCURACY")
"""The metrics that come first; others follow as they were reported."""
_MOST_METRICS = 6
_LONGEST = 12
"""Characters of a value. Numbers are shorter, but a task may send any text."""
_LONGEST_KEY = 24
_SHORTEST_SAMPLE = 1.0
"""Seconds of progress from which the rest is estimated."""
_AT_ONCE = 0.1
"""Seconds. Of the lines that are read at once, the last was printed then; the others before."""
_UNUSUAL = 10
_LONGEST_PAUSE = 30.0
"""Without progress for ten usual intervals, and for 30 s, the time left is unknown. A pause may be
an evaluation or a checkpoint."""
_MOST_BARS = 64
_ROUNDING = 1e-9
"""0.29 * 100 is less than 29."""
_LONGEST_LEFT = 1e9
"""Seconds. A task may report steps that are as small as it likes."""


def progress_words(
    values: Mapping[str, str],
    *,
    rate_of: str = "",
    left: float | None = None,
    is_running: bool = False,
    at_end: bool = False,
) -> list[str]:
    """Return a task's progress: `epoch 3/3`, `step 120/500 24%`, `loss 0.12`, `1,800/s`.

    Args:
        values: the texts that the task reported, by key.
        rate_of: the noun that the rate counts, as ` examples`; empty if space is short.
        left: seconds that the rest takes, by :class:`TimeLeft`.
        is_running: if that is unknown, show how much time the task's bar has left.
        at_end: leave out the rate, and the step if there are epochs.
    """
    counts = [_count(values, *keys) for keys in _COUNTS]
    counts += [f"{_short(values[_PERCENT])}%"] if _PERCENT in values and not counts[1] else []
    words = [word for word in (counts[:1] if at_end and counts[0] else counts) if word]
    if left is not None:
        words.append(f"{format_duration(left)} left")
    elif is_running:
        words += _time_of_bar(values)
        words += ["saving"] if values.get(_SAVING) == "1" else []
    known = {*(key for keys in _COUNTS for key in keys), _RATE, _ETA, _SAVING, _PERCENT}
    names = [*(key for key in _ORDERED if key in values), *values]
    metrics = [key for key in dict.fromkeys(names) if key not in known]
    digits = 3 if at_end else 4
    words += [f"{_label(key)} {_short(values[key], digits)}" for key in metrics[:_MOST_METRICS]]
    rate = number(values.get(_RATE, ""))
    if rate is not None and not at_end:
        words.append(f"{format_short(rate)}{rate_of}/s")
    return words


class _Place(NamedTuple):
    """How far a task was: so many whole epochs, and a share of the steps of a bar or of all."""

    at: float
    epochs_done: float
    epochs: float
    steps: float | None

    def part(self, *, within_epoch: bool) -> float:
        """Return the share of all work that was complete."""
        if self.steps is not None and (self.epochs == 1 or not within_epoch):
            return self.steps
        return (self.epochs_done + (self.steps or 0.0)) / self.epochs


class TimeLeft:
    """Estimates when a task's work is complete, from its counts, their totals and the time.

    A step may count over all epochs or within one. In the first of several epochs, that is unknown
    as long as both fit; then there is no estimate. From the second epoch on, whole ones count: an
    evaluation after each takes its time, too. Of what begins again there is none, either: how many
    bars, or folds with their epochs, follow is unknown.
    """

    def __init__(self) -> None:
        self._is_within_epoch = False
        self._furthest: dict[tuple[float, float | None], float] = {}
        """By the totals of epochs and of steps, how far each work came; inf: it began again."""
        self._totals: tuple[float, float | None] = (0.0, None)
        """Those of the present work."""
        self._began = 0.0
        """When the present work was first heard of."""
        self._first = self._mark = self._latest = _Place(0.0, 0.0, 1.0, None)
        """`mark` is the latest in the first epoch; then it is the first of the present epoch."""
        self._changes = 0

    def note(self, values: Mapping[str, str], at: float, epochs_done: float | None = None) -> None:
        """Note what the task has reported. `epochs_done`: if it is not all epochs before EPOCH."""
        has_epoch, steps = "EPOCH" in values, fraction(values, "STEP", "STEPS")
        if steps is None and _PERCENT in values:
            steps = fraction({**values, "OF": "100"}, _PERCENT, "OF")
        epochs = number(values.get("EPOCHS", "")) if has_epoch else 1.0
        done = (number(values.get("EPOCH", "1")) or 0) - 1 if epochs_done is None else epochs_done
        if not epochs or not 0 <= done <= epochs or (steps is None and not has_epoch):
            return
        totals = epochs, None if has_epoch else number(values.get("STEPS", ""))
        reached = steps or 0.0 if epochs == 1 else done
        if totals in self._furthest or len(self._furthest) < _MOST_BARS:
            begins_again = reached < self._furthest.get(totals, 0.0)
            self._furthest[totals] = math.inf if begins_again else reached
        place = _Place(at, done, epochs, steps)
        if totals != self._totals:
            self._totals, self._began = totals, at
        if at - self._began < _AT_ONCE:
            self._first = self._mark = self._latest = place
            self._changes = 0
        elif place[1:] != self._latest[1:]:
            self._latest = place
            self._changes += 1
            if done == self._first.epochs_done or done != self._mark.epochs_done:
                self._mark = place
        self._is_within_epoch |= steps is not None and not done <= steps * epochs <= done + 1

    def ends_at(self, now: float) -> float | None:
        """Return when its work is complete; None: unknown, or it has not moved for long."""
        first, mark, latest = self._first, self._mark, self._latest
        is_known = self._is_within_epoch or mark.epochs == 1 or mark.steps is None
        if not (is_known or latest.epochs_done) or self._furthest.get(self._totals) == math.inf:
            return None
        begin, reached = (each.part(within_epoch=self._is_within_epoch) for each in (first, mark))
        if reached <= begin or mark.at - first.at < _SHORTEST_SAMPLE:
            return None
        if now - latest.at > max(_UNUSUAL * (latest.at - first.at) / self._changes, _LONGEST_PAUSE):
            return None
        end = mark.at + (1 - reached) * (mark.at - first.at) / (reached - begin)
        return end if now < end < now + _LONGEST_LEFT else None


def seconds_left(ends: Iterable[float | None], now: float) -> float | None:
    """Return the seconds from now until the last of these ends (Unix times); None: unknown."""
    left = max((end for end in ends if end is not None), default=0.0) - now
    return left if left > 0 else None


def _time_of_bar(values: Mapping[str, str]) -> list[str]:
    seconds, epochs = number(values.get(_ETA, "")), fraction(values, "EPOCH", "EPOCHS")
    if not seconds:  # Keras rounds it down to whole seconds
        return []
    of_work = epochs == 1 or ("EPOCH" in values and "STEP" not in values)
    where = "" if of_work else " in epoch" if "EPOCH" in values else " in bar"
    return [f"{format_duration(seconds)} left{where}"]


def number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e15 else None


def fraction(values: Mapping[str, str], key: str, total_key: str) -> float | None:
    """Return the share of a total that is reached; None if that is unknown."""
    reached, total = number(values.get(key, "")), number(values.get(total_key, ""))
    if reached is None or total is None or not 0 <= reached <= total or total == 0:
        return None
    return reached / total


def _count(values: Mapping[str, str], key: str, total_key: str) -> str:
    """Return `step 120/500 24%`, `epoch 3/3`, or the count alone; empty without it."""
    if key not in values:
        return ""
    word = f"{_label(key)} {_short(values[key])}"
    part = fraction(values, key, total_key)
    if part is None:
        return word
    percent = f" {int(part * 100 + _ROUNDING)}%" if key == "STEP" else ""
    return f"{word}/{_short(values[total_key])}{percent}"


def _label(key: str) -> str:
    return _clipped(printable(key.lower()), _LONGEST_KEY)


def _short(value: str, digits: int = 4) -> str:
    shown = number(value)
    if shown is not None and "." in value:
        return f"{shown:.{digits}g}"
    return _clipped(printable(value), _LONGEST)


def _clipped(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
