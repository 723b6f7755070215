"""What makes a job slow, as a sentence: with its number, and what to do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distrun.advice.model import Symptom
from distrun.spec.units import format_bytes
from distrun.tables import read_texts
from distrun.words.formats import format_short, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.advice.gpus import Gpu
    from distrun.advice.model import Advice, Reason
    from distrun.advice.profile import Slowdown

_SEE = "to see why while it runs: distrun profile {job}"
_ONCE = (
    "pass tensors instead of Python numbers, batches of one shape, and define `tf.function`s once, "
    "outside of the loop"
)
_TEXTS, _REASONS = read_texts(__spec__, "advice.txt")
"""What is said of a symptom, and of an obstacle."""
_WITH_PROFILE = (Symptom.BEHIND, Symptom.WAITED_FOR, Symptom.GPU_IDLE, Symptom.IDLE)
"""Of which a profile says more, if no reason is known."""


def advice_text(advice: Advice, job: str | None) -> str:
    """Say what costs a job of that id much of its time. None: it has ended."""
    if advice.symptom is Symptom.SLOW_LINK:
        return link_text(advice.task, advice.amount, advice.usual)
    words = _TEXTS[advice.symptom.value].format(
        task=advice.task,
        amount=advice.amount,
        shown=max(advice.amount, 0.01),
        rate=format_short(advice.amount),
        usual_rate=format_short(advice.usual),
        usual=advice.usual,
        name=advice.name,
        tasks=advice.task or "the tasks",
        of_task=f" of {advice.task}" if advice.task else "",
        place=f" ({advice.name})" if advice.name else "",
        once=_ONCE,
    )
    reasons = "".join(f"; {reason_text(each)}" for each in advice.reasons)
    has_more = job is not None and advice.symptom in _WITH_PROFILE and not reasons
    return f"{words}{reasons}; {_SEE.format(job=job)}" if has_more else f"{words}{reasons}"


def link_text(task: str, round_trip: float, usual: float) -> str:
    """Say how long a task's packets take, in seconds there and back, and those of the others."""
    trip = f"slow: a packet takes {format_short(1e3 * round_trip)} ms there and back"
    if not task:
        return f"the links between the hosts are {trip}, in most networks less than 1 ms"
    return f"the link of {task} is {trip}, between the others {format_short(1e3 * usual)} ms"


def slowdown_text(slowdown: Slowdown) -> str:
    """Say since when a task is as slow as it is."""
    since, rate = format_time(slowdown.at), f"{format_short(slowdown.rate)} steps a second"
    if not slowdown.before:
        return f"since its first step, at {since}: {rate}"
    return f"since {since}: {rate}, before that {format_short(slowdown.before)}"


def gpus_text(task: str, gpus: Sequence[Gpu]) -> str:
    """Say what the GPUs of a task do: on average how busy, else the largest and lowest values."""
    busy = [each.busy_percent for each in gpus if each.busy_percent is not None]
    slowest = min(gpus, key=lambda each: each.clock_mhz or math.inf)
    fullest = max(gpus, key=lambda each: each.used_bytes or 0)
    heat = max((each.celsius for each in gpus if each.celsius is not None), default=None)
    parts = [f"{sum(busy) / len(busy):.0f}% busy"] if busy else []
    if fullest.used_bytes is not None and fullest.total_bytes is not None:
        used, total = map(format_bytes, (fullest.used_bytes, fullest.total_bytes))
        parts.append(f"{used} of {total}")
    if slowest.clock_mhz is not None:
        most = slowest.highest_clock_mhz
        of_most = "" if most is None else f" of {most:.0f}"
        why = f" (slowed by: {', '.join(slowest.slowed_by)})" if slowest.slowed_by else ""
        parts.append(f"{slowest.clock_mhz:.0f}{of_most} MHz{why}")
    parts += [] if heat is None else [f"{heat:.0f} °C"]
    name = f"GPU {gpus[0].index}" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    return f"{name} of {task}: {', '.join(parts) or 'nothing is known'}"


def reason_text(reason: Reason) -> str:
    """Say how a task differs."""
    place = f" ({reason.place})" if reason.place else ""
    return _REASONS[reason.obstacle.value].format(
        amount=reason.amount,
        usual=reason.usual,
        megabytes=reason.amount / 1e6,
        cores=format_short(reason.usual),
        kind=reason.kind.value if reason.kind else "",
        place=place,
    )
