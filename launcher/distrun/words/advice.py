"""What makes a job slow, as a sentence: with its number, and what to do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distrun.advice.model import Obstacle, Symptom
from distrun.spec.units import format_bytes
from distrun.words.formats import format_short, format_time, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.advice.gpus import Gpu
    from distrun.advice.model import Advice, Reason
    from distrun.advice.profile import Slowdown

_REASONS = {
    Obstacle.THROTTLED: "its cgroup's quota of {cores} cores stops it {amount:.0%} of the time",
    Obstacle.NICE: "it runs at nice {amount:.0f}, the others at {usual:.0f}",
    Obstacle.BUSY_NEIGHBOUR: ("other processes use {amount:.1f} of its host's {usual:.0f} cores"),
    Obstacle.FEWER_CORES: "it may use {amount:.0f} of its host's cores, the others {usual:.0f}",
    Obstacle.NO_CORE: "it waits for a core {amount:.0%} of its steps, the others {usual:.0%}",
    Obstacle.SWAPPED: "{megabytes:.0f} MB of its memory are in swap",
    Obstacle.SLOWER_CLOCK: "its CPU runs at {amount:.0f} MHz, the others at {usual:.0f}{place}",
    Obstacle.SLOWER_GPU: "its GPU runs at {amount:.0f} MHz, the others' at {usual:.0f}{place}",
    Obstacle.LONGER_STEPS: (
        "its part of the steps takes {amount:.0%} of the time, the others' {usual:.0%}: more data "
        "a step, or slower cores"
    ),
    Obstacle.BUSY_GENERATOR: (
        "its generator runs {amount:.0%} of the time, the others' {usual:.0%}{place}"
    ),
    Obstacle.MORE_OF_A_KIND: "{kind}: {amount:.0%} of its time, {usual:.0%} of the others'{place}",
}
_SEE = "to see why while it runs: distrun profile {job}"
_ONCE = (
    "pass tensors instead of Python numbers, batches of one shape, and define `tf.function`s once, "
    "outside of the loop"
)
_TEXTS = {
    Symptom.BEHIND: "{task} is behind: it takes {rate} steps a second, others {usual_rate}",
    Symptom.WAITED_FOR: (
        "the others wait for {task}: without that, the job would take {amount:.0%} less time"
    ),
    Symptom.RETRACING: (
        "{task} makes a new graph at {amount:.0f} calls in a row of {name} (retracing): " + _ONCE
    ),
    Symptom.INPUT: (
        "the steps wait for input {amount:.0%} of the time{place}: cache or prefetch it, or make "
        "it in parallel (distrun explain input)"
    ),
    Symptom.TRACING: "TensorFlow makes graphs {amount:.0%} of the time{place}: " + _ONCE,
    Symptom.PRINTING: (
        "printing and summaries take {amount:.0%} of the time{place}: write them every hundredth "
        "step"
    ),
    Symptom.SAVING: (
        "saving takes {amount:.0%} of the time{of_task}{place}: save less often, or to a faster "
        "disk"
    ),
    Symptom.BLOCKED: (
        "the program itself waits {amount:.0%} of the time, and uses no core{place}: it sleeps, or "
        "waits for a lock, a file or another process"
    ),
    Symptom.THROTTLED: (
        "the quota of {usual_rate} cores of a cgroup stops {tasks} {amount:.0%} of the time: "
        "raise it, for example a container's CPU limit"
    ),
    Symptom.SMALL_STEPS: (
        "its steps wait for the other tasks {amount:.0%} of the time, at {usual_rate} steps a "
        "second: larger batches need fewer all-reduces"
    ),
    Symptom.GPU_IDLE: "no task's GPUs are busy for more than {shown:.0%} of the time",
    Symptom.IDLE: "no task uses more than {shown:.2f} of a core, though they take steps",
}
_WITH_PROFILE = (Symptom.BEHIND, Symptom.WAITED_FOR, Symptom.GPU_IDLE, Symptom.IDLE)
"""Of which a profile says more, if no reason is known."""
_LOOKS: dict[Symptom, str] = {
    Symptom.BEHIND: "a task takes less than 0.7 of the steps a second of the others of its role",
    Symptom.WAITED_FOR: """the tasks that take each step together wait a fifth of the time for one
        of them, or all for a parameter server, at three times within a minute""",
    Symptom.RETRACING: """TensorFlow printed "5 out of the last 5 calls ... triggered tf.function
        retracing", and again for the same function""",
    Symptom.INPUT: """the step waits for the next batch, or a generator in Python never waits for
        the steps""",
    Symptom.TRACING: "TensorFlow makes a graph of a function again and again",
    Symptom.PRINTING: "a tenth of the time goes into print, logging, summaries or MLflow",
    Symptom.SAVING: "a tenth of the time goes into checkpoints",
    Symptom.BLOCKED: """the program's own Python waits a fifth of the time and uses no core, though
        the tasks take steps""",
    Symptom.THROTTLED: """a cgroup's quota, such as a container's CPU limit, stops the tasks, or
        one of them, a fifth of the time""",
    Symptom.SLOW_LINK: """packets between one task and all others take 2 ms or longer, five times as
        long as those between the others, or 10 ms or longer between all hosts, and all tasks wait a
        fifth of the time""",
    Symptom.SMALL_STEPS: """all tasks wait for each other half of the time, at five steps a second
        or more""",
    Symptom.GPU_IDLE: """the tasks take steps, and their GPUs are busy for less than a quarter of
        the time""",
    Symptom.IDLE: "the tasks take steps, and each uses less than a quarter of a core, and no GPU",
}
_TO_DO: dict[Symptom, str] = {
    Symptom.BEHIND: """`distrun profile` while it runs; compare its host, its share of the data, its
        input""",
    Symptom.WAITED_FOR: """remove the reason that is given: fewer cores, a quota, another program on
        its host, more work; `distrun profile` names the line""",
    Symptom.RETRACING: _ONCE,
    Symptom.INPUT: """`cache`, `prefetch` and `map(..., num_parallel_calls=tf.data.AUTOTUNE)`; no
        generator in Python; files on a local disk""",
    Symptom.TRACING: _ONCE,
    Symptom.PRINTING: """print every hundredth step, where a loss waits for its step; a higher
        `update_freq`, and no `histogram_freq`, of the callback TensorBoard""",
    Symptom.SAVING: "save less often, or to a faster disk",
    Symptom.BLOCKED: """look at the line: a sleep, a lock that another thread holds, a request, a
        queue. What need not be done between two steps can be done in a thread""",
    Symptom.THROTTLED: """raise the quota: a container's CPU limit, `cpu.max` of a cgroup v2, or
        `resources.limits.cpu` of a pod""",
    Symptom.SLOW_LINK: """another host, or a host in the same network as the others; `ping` shows
        the same; larger batches need fewer all-reduces""",
    Symptom.SMALL_STEPS: """larger batches, so that there are fewer all-reduces for each image; a
        faster network""",
    Symptom.GPU_IDLE: """`distrun profile` says what they do instead; most often they wait for
        input""",
    Symptom.IDLE: "`distrun profile` says what they wait for",
}


def advice_text(advice: Advice, job: str | None) -> str:
    """Say what costs a job of that id much of its time. None: it has ended."""
    if advice.symptom is Symptom.SLOW_LINK:
        return link_text(advice.task, advice.amount, advice.usual)
    words = _TEXTS[advice.symptom].format(
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


def explained() -> dict[str, tuple[str, str]]:
    """Return, by the symptom's name, how it looks and what to do, in Markdown."""
    return {each.value: (one_line(_LOOKS[each]), one_line(_TO_DO[each])) for each in Symptom}


def reason_text(reason: Reason) -> str:
    """Say how a task differs."""
    place = f" ({reason.place})" if reason.place else ""
    return _REASONS[reason.obstacle].format(
        amount=reason.amount,
        usual=reason.usual,
        megabytes=reason.amount / 1e6,
        cores=format_short(reason.usual),
        kind=reason.kind.value if reason.kind else "",
        place=place,
    )
