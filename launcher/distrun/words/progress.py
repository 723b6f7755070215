"""The progress that tasks report, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from distrun.spec.problems import printable
from distrun.words.formats import format_duration, format_short

_COUNTS = (("EPOCH", "EPOCHS"), ("STEP", "STEPS"))
"""The keys of a number that grows, and of its total."""
_RATE = "EXAMPLES_PER_SEC"
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
_UNUSUAL = 10
_LONGEST_PAUSE = 30.0
"""Without progress for ten usual intervals, and for 30 s, the time left is unknown. A pause may be
an evaluation or a checkpoint."""
_ALMOST_ALL = 0.8
"""A restarted task goes back from less, mostly."""
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
    words = [word for word in (counts[:1] if at_end and counts[0] else counts) if word]
    if left is not None:
        words.append(f"{format_duration(left)} left")
    elif is_running:
        words += _time_of_bar(values)
        words += ["saving"] if values.get(_SAVING) == "1" else []
    known = {*(key for keys in _COUNTS for key in keys), _RATE, _ETA, _SAVING}
    names = [*(key for key in _ORDERED if key in values), *values]
    metrics = [key for key in dict.fromkeys(names) if key not in known]
    digits = 3 if at_end else 4
    words += [f"{_label(key)} {_short(values[key], digits)}" for key in metrics[:_MOST_METRICS]]
    rate = number(values.get(_RATE, ""))
    if rate is not None and not at_end:
        words.append(f"{format_short(rate)}{rate_of}/s")
    return words


class TimeLeft:
    """Estimates when a task's work is complete, from its counts, their totals and the time.

    A step may count over all epochs or within one. In the first of several epochs, that is unknown
    as long as both fit; then there is no estimate. From the second epoch on, whole ones count: an
    evaluation after each takes its time, too.
    """

    def __init__(self) -> None:
        self._within_epoch = False
        self._bars: dict[float | None, float] = {}
        """By their totals, the last part of each bar that names no epoch; inf: it began again."""
        self._first: tuple[float, float] | None = None
        """The part of the work at the first report, and when that was."""
        self._latest = (0.0, 0.0)
        self._changes = 0
        self._epoch = ""
        self._whole: tuple[float, float] | None = None
        """The same at the first report of the present epoch, if that is a later one."""
        self._early: tuple[float, float] | None = None
        """At the first report, the part of what its steps count, while that is unknown."""

    def update(self, values: Mapping[str, str], now: float) -> float | None:
        """Return the seconds left, after what the task has reported until `now`; None: unknown."""
        part, epoch = self._part(values), values.get("EPOCH", "")
        if part is None:
            steps = fraction(values, "STEP", "STEPS")
            if steps is not None and epoch == "1":
                self._early = min(self._early or (steps, now), (steps, now))
            return None
        if not epoch and self._begins_again(number(values["STEPS"]), part):
            return None
        if self._first is None and self._early is not None:
            steps, at = self._early
            share = 1 / (number(values["EPOCHS"]) or 1) if self._within_epoch else 1
            self._first, self._latest, self._epoch = (steps * share, at), (0.0, at), "1"
        if self._first is None or part < self._latest[0]:
            self._first = self._latest = part, now
            self._changes, self._epoch, self._whole = 0, epoch, None
        if epoch != self._epoch:
            self._epoch, self._whole = epoch, (part, now)
        if part != self._latest[0]:
            self._latest = part, now
            self._changes += 1
        (first, start), (reached, at) = self._first, self._latest
        if reached <= first or at - start < _SHORTEST_SAMPLE:
            return None
        if now - at > max(_UNUSUAL * (at - start) / self._changes, _LONGEST_PAUSE):
            return None
        reached, at = self._whole or self._latest
        left = (1 - reached) * (at - start) / (reached - first) - (now - at)
        return left if 0 < left < _LONGEST_LEFT else None

    def _begins_again(self, total: float | None, part: float) -> bool:
        """Whether a bar is one of several, perhaps one an epoch: how many follow is unknown."""
        before = self._bars.get(total, 0.0)
        if before < math.inf and len(self._bars) < _MOST_BARS:
            self._bars[total] = math.inf if part < _ALMOST_ALL <= before else part
        return self._bars.get(total) == math.inf

    def _part(self, values: Mapping[str, str]) -> float | None:
        """Return the share of all work that is complete."""
        steps = fraction(values, "STEP", "STEPS")
        if "EPOCH" not in values:
            return steps
        epoch, epochs = number(values["EPOCH"]), number(values.get("EPOCHS", ""))
        if epoch is None or epochs is None or not 1 <= epoch <= epochs:
            return None
        if steps is None or epochs == 1:
            return (epoch - 1) / epochs if steps is None else steps
        is_over_all = (epoch - 1) / epochs <= steps <= epoch / epochs
        if not is_over_all and not self._within_epoch:
            self._within_epoch, self._first = True, None
        if self._within_epoch:
            return (epoch - 1 + steps) / epochs
        return steps if epoch > 1 else None


def _time_of_bar(values: Mapping[str, str]) -> list[str]:
    seconds, epochs = number(values.get(_ETA, "")), fraction(values, "EPOCH", "EPOCHS")
    if seconds is None:
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
