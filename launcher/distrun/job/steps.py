"""How many steps a task has taken in all epochs, by what it reports or prints."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

Report = tuple[float, Mapping[str, float]]
"""When it was made (Unix time), and its values."""
STEP = "STEP"
_FEWEST = 8
_FEWEST_BEHIND, _BEHIND = 5.0, 0.2
"""By how many steps, and by which share of them, a task is behind the others."""


def numbers(values: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, text in values.items():
        with contextlib.suppress(ValueError):
            number = float(text)
            if math.isfinite(number) and "_" not in text:
                found[key] = number
    return found


def is_of_epoch(reports: Sequence[Mapping[str, float]]) -> bool:
    """Whether the steps that an attempt reports are those of the epoch.

    Keras counts from 1 in each epoch: STEP falls then, or no epoch is as long as STEPS, EPOCH and
    EPOCHS say. Epochs of other programs may begin with 0, and the last one may be shorter.
    """
    if any(later[STEP] < each[STEP] for each, later in pairwise(reports)):
        return True
    known = [each for each in reports if each.get("STEPS", 0.0) > 0 and each.get("EPOCHS", 0.0) > 1]
    rises = all(known[-1].get(k, 0.0) > known[0].get(k, 0.0) for k in (STEP, "EPOCH") if known)
    return not any(
        _is_total(known, first, is_even=not rises) for first in ((1, 0) if rises else (1,))
    )


def _is_total(reports: Sequence[Mapping[str, float]], first: int, *, is_even: bool) -> bool:
    """Whether epochs of one length fit to reports of the steps in all epochs.

    `first`: the number of the first epoch. `is_even`: the last epoch is as long as the others.
    """
    shortest, least, most = 0.0, 0.0, math.inf
    for values in reports:
        steps, epochs, epoch = values["STEPS"], values["EPOCHS"], values.get("EPOCH", 0.0)
        if first <= epoch <= epochs:
            shortest = max(shortest, steps / epochs)
            least = max(least, shortest, values[STEP] / (epoch - first + 1))
            longest = steps / (epochs if is_even else max(epochs - 1, 1.0))
            begun = values[STEP] / (epoch - first) if epoch > first else math.inf
            most = min(most, longest, begun)
    return least < most or least == most == shortest


def steps_done(values: Mapping[str, float], *, of_epoch: bool) -> float:
    before = (values.get("EPOCH", 1.0) - 1) * values.get("STEPS", 0.0) if of_epoch else 0.0
    return before + values[STEP]


def behind(done: Mapping[str, float], first: Sequence[float]) -> tuple[str, float, float] | None:
    """Return the running task that is behind, its step, and the one that is usual for the others.

    Not for two reports: of two tasks that print every 100th step, one is seen at 300 and the other
    at 400.

    Args:
        done: the step that each task reported last.
        first: the steps that they reported first, if that is known.
    """
    (least, name), *others = sorted((step, name) for name, step in done.items())
    usual = others[len(others) // 2][0] if others else least
    if usual - least < max(_FEWEST_BEHIND, usual * _BEHIND):
        return None
    differences = [step - least for step in {*done.values(), *(first or [0.0])}]
    if len(differences) < 3 or not all(map(math.isfinite, differences)):
        return None
    between_reports = math.gcd(*map(int, differences))
    return (name, least, usual) if usual - least > 2 * between_reports else None


def steps_over_time(reports: Sequence[Report]) -> list[tuple[float, float]]:
    """Return when an attempt reported a higher step, and how many it had taken by then.

    Nothing is returned if that is not known: each epoch counts anew, or may do so between any two
    of a few reports, and EPOCH and STEPS do not say how many steps came before.
    """
    known = [(at, values) for at, values in reports if STEP in values]
    values = [each for _, each in known]
    of_epoch = is_of_epoch(values)
    epochs = [each.get("EPOCH") for each in values]
    is_counted = all(each.get("EPOCH") == 1 or {"EPOCH", "STEPS"} <= each.keys() for each in values)
    is_rare = 1 < len(values) <= _FEWEST and all(a != b for a, b in pairwise(epochs))
    if is_rare if not of_epoch else not is_counted:
        return []
    done = [steps_done(each, of_epoch=of_epoch) for each in values]
    # A report of the next epoch may still have the last step of the one before.
    least = [*accumulate(reversed(done), min)][::-1]
    found: list[tuple[float, float]] = []
    for (at, _), total in zip(known, least, strict=True):
        if not found or (at > found[-1][0] and total > found[-1][1]):
            found.append((at, total))
    return found


def steps_a_second(points: Sequence[tuple[float, float]]) -> float:
    """Return the mean rate of what `steps_over_time` returns; 0: not known."""
    if len(points) < 2:
        return 0.0
    (began, first), (ended, last) = points[0], points[-1]
    rate = (last - first) / (ended - began)
    return rate if math.isfinite(rate) else 0.0
