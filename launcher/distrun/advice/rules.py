"""What costs a job much of its time, by what its tasks report, use and print: one thing at most."""

from __future__ import annotations

import math
import re
import statistics
from typing import TYPE_CHECKING

from distrun.advice.model import SECONDS, Advice, Kind, Symptom
from distrun.advice.profile import (
    LEAST_GAIN,
    Slowdown,
    busiest_server,
    find_slow_link,
    find_traffic,
    set_apart,
    straggler,
)
from distrun.frozen import replace
from distrun.job.steps import steps_a_second, steps_over_time

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from distrun.advice.profile import SlowLink, Straggler, TaskProfile
    from distrun.job.history import Sample

_FEWEST_SAMPLES, _FEWEST_STEPS, _FEWEST_CHANGES = 16, 8, 6
"""What was seen less often is not reported."""
_BEHIND = 0.7
"""Of the steps a second that the others of its role take: a task that takes fewer is behind."""
_IDLE = 0.25
"""Of its GPUs or of a core: a task that takes steps and uses less waits for most of the time. If no
more of its host's cores is left, it waits for them."""
_LEAST_UNASKED = 0.2
"""The least share of the job's time for which a task is named in advice."""
_LEAST_OF_STEPS = 0.01
"""Of the time: a task of which less is seen in steps may take none."""
_MOSTLY, _MANY_STEPS = 0.5, 5.0
"""Of the time, and steps a second: steps that mostly wait, and are short."""
_SHARED = {
    **dict.fromkeys((Symptom.INPUT, Symptom.TRACING, Symptom.PRINTING, Symptom.SAVING), LEAST_GAIN),
    Symptom.BLOCKED: _LEAST_UNASKED,
    Symptom.THROTTLED: _LEAST_UNASKED,
}
"""What all tasks may do instead of steps, and the least share of the time that is told of."""
_RETRACING = re.compile(
    r"\b([5-9]|[1-9]\d+) out of the last \d+ calls to (?:<(?:function|bound method) )?([\w.<>]+)"
    r".{0,80}? triggered tf\.function retracing"
)


def advise(
    samples: Mapping[str, Sequence[Sample]], logs: Mapping[str, bytes], saving: Mapping[str, float]
) -> Advice | None:
    """Return what costs most; None: nothing does.

    Args:
        samples: by task, the last ones of its present attempt.
        logs: by task, the beginning of its present attempt's output.
        saving: by task, the share of its present attempt's time in which it has reported to save.
    """
    recent = {task: its for task, each in samples.items() if (its := _recent(each))}
    changes = {task: _changes(its) for task, its in recent.items()}
    rates = {task: rate for task, each in changes.items() if (rate := steps_a_second(each))}
    seconds = min((each[-1].at - each[0].at for each in recent.values()), default=0.0)
    # What changed a few times, as before a job hangs, may have done so long before it was sampled.
    sure = {task: rate for task, rate in rates.items() if len(changes[task]) >= _FEWEST_CHANGES}
    if (found := _find_behind(sure, seconds)) is not None:
        return found
    slowest = max(saving, key=lambda task: saving[task], default="")
    if saving.get(slowest, 0.0) >= LEAST_GAIN:
        return Advice(symptom=Symptom.SAVING, task=slowest, amount=saving[slowest])
    if max(rates.values(), default=0.0) * seconds >= _FEWEST_STEPS:
        for symptom, measure in ((Symptom.GPU_IDLE, _gpu_load), (Symptom.IDLE, _cores)):
            known = [used for each in recent.values() if (used := measure(each)) is not None]
            if (most := max(known, default=math.inf)) < _IDLE:
                return Advice(symptom=symptom, task="", amount=most)
    return _find_retraced(logs)  # the last: it may have ended long ago


def _find_retraced(logs: Mapping[str, bytes]) -> Advice | None:
    """Return the function that was traced on after TensorFlow's first warning.

    It warns twice of each function, however often that is traced.
    """
    for task, raw in logs.items():
        warned: set[str] = set()
        for amount, name in _RETRACING.findall(raw.decode("utf-8", "replace")):
            if name in warned:
                return Advice(symptom=Symptom.RETRACING, task=task, amount=int(amount), name=name)
            warned.add(name)
    return None


def _find_behind(rates: Mapping[str, float], seconds: float = SECONDS) -> Advice | None:
    """Return the slowest task that is behind the others of its role; None: none is.

    Args:
        rates: steps a second, by task; those that are not known are left out.
        seconds: over which they are known; in these, the others must have taken several steps.
    """
    for task in sorted(rates, key=lambda task: rates[task]):
        role = task.partition(":")[0]
        others = [r for n, r in rates.items() if n != task and n.partition(":")[0] == role]
        usual = statistics.median(others or [0.0])
        if rates[task] < _BEHIND * usual and usual * seconds >= _FEWEST_STEPS:
            return Advice(symptom=Symptom.BEHIND, task=task, amount=rates[task], usual=usual)
    return None


def advise_by_profiles(
    looks: Sequence[Sequence[TaskProfile]],
    members: Collection[str],
    hosts: Mapping[str, str],
    rates: Mapping[str, float],
    servers: Collection[str] = (),
) -> Advice | None:
    """Return what costs a running job most, if that was seen at each of several times.

    Args:
        looks: the profiles of the tasks at each time.
        members: the tasks that take each step together, of many the first ones.
        hosts: where each task runs.
        rates: steps a second, by task.
        servers: the parameter servers.
    """
    found = [
        straggler(each, members, hosts, has_begun=bool(rates))
        or busiest_server(each, servers, hosts)
        for each in looks
    ]
    gains = [0.0 if each is None else each.gain for each in found]
    last = found[-1] if _name_the_same(found) else None
    if last is not None and not last.also and min(gains) >= _LEAST_UNASKED:
        gain = statistics.median(gains)
        return Advice(symptom=Symptom.WAITED_FOR, task=last.task, amount=gain, reasons=last.reasons)
    behind = _find_behind(rates)
    if behind is not None:
        return replace(behind, reasons=set_apart(behind.task, rates, looks[-1], hosts))
    looks = [[each for each in look if each.task not in servers] for look in looks]
    return _find_shared(looks, rates) or _find_of_network(looks, members, hosts, rates)


def _find_shared(
    looks: Sequence[Sequence[TaskProfile]], rates: Mapping[str, float]
) -> Advice | None:
    steps = [each.shares.get(Kind.STEP, 0.0) for look in looks for each in look]
    has_steps = bool(rates) or min(steps, default=0.0) >= _LEAST_OF_STEPS
    for symptom, least in _SHARED.items():
        # Of two tasks, one alone is not half of all.
        shares = [
            statistics.median_low(_share(symptom, each)[0] for each in look) for look in looks
        ]
        if min(shares) >= least and (has_steps or symptom is not Symptom.BLOCKED):
            _, name = max(_share(symptom, each) for each in looks[-1])
            quota = looks[-1][0].recording.quota if symptom is Symptom.THROTTLED else 0.0
            amount = statistics.median(shares)
            return Advice(symptom=symptom, task="", amount=amount, usual=quota, name=name)
    stopped = [max(look, key=lambda each: each.throttled) for look in looks]
    amounts = [each.throttled for each in stopped]
    if _name_the_same(stopped) and min(amounts) >= _SHARED[Symptom.THROTTLED]:
        task, quota, amount = stopped[-1].task, stopped[-1].recording.quota, min(amounts)
        return Advice(symptom=Symptom.THROTTLED, task=task, amount=amount, usual=quota)
    return None


def _share(symptom: Symptom, task: TaskProfile) -> tuple[float, str]:
    """Return the share of a task's time, and the user's line."""
    if symptom is Symptom.BLOCKED:
        return task.blocked
    if symptom is Symptom.THROTTLED:
        return task.throttled, ""
    kind = Kind[symptom.name]
    return task.shares.get(kind, 0.0), task.places.get(kind, "")


def _find_of_network(
    looks: Sequence[Sequence[TaskProfile]],
    members: Collection[str],
    hosts: Mapping[str, str],
    rates: Mapping[str, float],
) -> Advice | None:
    links = [find_slow_link(find_traffic(each), members, hosts) for each in looks]
    group = [each for look in looks for each in look if each.task in members]
    idle = [1 - each.own for each in group]
    link = links[-1] if _name_the_same(links) else None
    if link is not None and min(idle) >= _LEAST_UNASKED:
        trip, usual = link.round_trip, link.usual
        return Advice(symptom=Symptom.SLOW_LINK, task=link.task, amount=trip, usual=usual)
    waits = [each.shares.get(Kind.WAITING, 0.0) for each in group]
    known = [rates[task] for task in members if task in rates]
    is_whole = len(members) > 1 and len(waits) == len(members) * len(looks)
    if is_whole and known and min(waits) >= _MOSTLY and min(known) >= _MANY_STEPS:
        amount = statistics.median(waits)
        return Advice(symptom=Symptom.SMALL_STEPS, task="", amount=amount, usual=min(known))
    return None


def _name_the_same(found: Sequence[SlowLink | Straggler | TaskProfile | None]) -> bool:
    """Whether each look has found a task, and always the same."""
    return len({each and each.task for each in found}) == 1


def _recent(samples: Sequence[Sample]) -> list[Sample]:
    found = [each for each in samples if each.attempt == samples[-1].attempt]
    for start in range(len(found) - _FEWEST_SAMPLES, -1, -1):
        if found[-1].at - found[start].at >= SECONDS:
            return found[start:]
    return []


def _changes(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return when one attempt's steps were seen to grow, and how many it had taken by then."""
    return steps_over_time([(each.at, each.progress) for each in samples])[1:]


def find_slowdown(samples: Sequence[Sample]) -> Slowdown | None:
    """Return since when the present attempt takes fewer steps a second; None: not known.

    If it has not become slower, that is since its first step.
    """
    own = [each for each in samples if each.attempt == samples[-1].attempt]
    done = _changes(own)
    if len(done) < 2 * _FEWEST_STEPS:
        return None
    (start, first), (end, final) = done[0], done[-1]
    found, best = Slowdown(at=start, rate=(final - first) / (end - start)), 0.0
    for at, steps in done[_FEWEST_STEPS:-_FEWEST_STEPS]:
        before, rate = (steps - first) / (at - start), (final - steps) / (end - at)
        weight = (before - rate) * (before - rate) * (at - start) * (end - at)
        if rate <= (1 - LEAST_GAIN) * before and weight > best:
            found, best = Slowdown(at=at, rate=rate, before=before), weight
    return found


def _cores(samples: Sequence[Sample]) -> float:
    """Return the cores that a task uses; infinite: unknown, or it uses GPUs, or none are left."""
    first, *_, last = samples
    if last.gpu_memory_bytes or last.cpu_seconds is None or first.cpu_seconds is None:
        return math.inf
    seconds = last.at - first.at
    idle = (last.host_idle_seconds or 0.0) - (first.host_idle_seconds or 0.0)
    return (last.cpu_seconds - first.cpu_seconds) / seconds if idle > _IDLE * seconds else math.inf


def _gpu_load(samples: Sequence[Sample]) -> float | None:
    """Return the mean load of a task's GPUs, as a share; None: unknown, or it has none."""
    loads = [each.gpu_percent for each in samples if each.gpu_percent is not None]
    return statistics.fmean(loads) / 100 if len(loads) >= _FEWEST_STEPS else None
