"""The progress that tasks report, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from distrun.spec.problems import printable

_LABELS = (("EPOCH", "epoch"), ("STEP", "step"), ("LOSS", "loss"))
_LONGEST = 12
"""Characters of a value. Numbers are shorter, but a task may send any text."""


def progress_words(values: Mapping[str, str], *, rate_of: str = "") -> list[str]:
    """Return a task's progress in a fixed order, without unknown values.

    `rate_of`: the noun that the rate counts, as ` examples`; empty if space is short.
    """
    words = [f"{label} {_short(values[key])}" for key, label in _LABELS if key in values]
    rate = _number(values.get("EXAMPLES_PER_SEC", ""))
    if rate is not None:
        words.append(f"{rate:,.0f}{rate_of}/s")
    return words


def _short(value: str) -> str:
    number = _number(value)
    if number is not None and "." in value:
        return f"{number:.4g}"
    shown = printable(value)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e15 else None
