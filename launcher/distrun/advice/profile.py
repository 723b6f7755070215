"""Where the time of tasks goes, and the task that the others wait for.

The stack of the main thread shows what a task does, the CPU time of the same moment whether it
works or waits: the threads of TensorFlow that do the work have no Python stacks. In a group that
works in step, everybody has the same time for a step. So the task that waits least is the one that
the others wait for, and the job is as slow as that: if it had as little to do as the next slowest
one, the job would gain the difference.
"""

from __future__ import annotations

import math
import re
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise, takewhile

from distrun.advice import gpus
from distrun.advice.model import Kind, Obstacle, Reason
from distrun.frozen import Frozen, replace
from distrun.job.stacks import CONVERTED, Frame, ProcessStacks, Recording

LEAST_GAIN = 0.1
"""Of the job's time: what costs less is not worth a word."""
_LEAST_SHARE = 0.05
_LEAST_OF_STEPS = 0.01
"""Of the time, used by itself: a task that uses less has not begun to take steps."""
_CHANCE = 0.3
"""Of the time for which the others wait for a core: chance decides whom that holds up most."""
_MORE_WORK = 1.3
"""Times the CPU time of the others: that is no chance."""
_ALWAYS = 0.9
"""A generator that runs so much of the time never waits for the steps: they wait for it."""
_LEAST_CORES = 0.3
"""Of a host, used by others; or used more by a generator than by those of the others."""
_LEAST_SWAPPED = 100 << 20
_CLOCK_RATIO = 0.85
_LEAST_TRIP, _SLOWER_TRIP = 0.002, 5.0
"""Seconds, and how many times longer than between the others: a round trip that is slow."""
_LONG_TRIP = 0.01
"""Seconds: a round trip between hosts that is slow even if those of all others are."""

_SAVING = (
    r"(?:^|\.)_*(?:save(?:z|txt)?(?:_(?!\S*(?:train|fit) )[a-z_]+)?|(?:write_|make_)?checkpoint) "
    r"(?!\S*/torch/[au])"
)
"""PyTorch's checkpoints of activations, in torch/utils, are a part of the step."""
_EVALUATION = (
    r"(?:^|\.)_*(?:evaluat(?:e|ion)|test)(?:_\w+)? \S*/(?:\w*keras|tensorflow\w*|transformers)/"
)
_OWN_EVALUATION = (
    r"(?:^|\.)_*(?:(?:run|do|maybe)_)?(?:eval(?:uat(?:e|ion))?|val(?:id(?:at(?:e|ion))?)?|test)"
    r"(?:_(?!\S*(?:train|fit))[a-z_]+)? (?!\S*(?:-packages|/lib(?:64)?/python3))"
)
"""Functions of the user: `train_and_evaluate` is none."""
_NAMED = (
    (Kind.SERVING, r"(?:^|\.)(?:join \S*/server_lib|serve_forever \S*/socketserver)\.py$"),
    (Kind.SAVING, _SAVING),
    (Kind.EVALUATION, _EVALUATION),
    (Kind.EVALUATION, _OWN_EVALUATION),
    (Kind.PRINTING, r" \S*/(?:tensorboard/\S*|callbacks/tensorboard|ops/summary_ops_v2)\.py$"),
    (
        Kind.TRACING,
        r"(?:func_graph_from_py_func|_create_\w+_function|converted_call) [^ ]*/tensorflow/",
    ),
    (Kind.STEP, r" [^ ]*/tensorflow/python/distribute/cross_device_\w+\.py$"),
    (Kind.INPUT, r"__next__ [^ ]*/(?:iterator_ops|input_lib|data_adapter|dataloader)\.py$"),
    (Kind.INPUT, r"(?:_next_internal|get_next\w*) [^ ]*/(?:gen_dataset_ops|iterator_ops)\.py$"),
)
"""A stack with a frame whose function and file look so is of that kind: the first that fits."""
_INNER = (
    (Kind.IMPORTING, r" <frozen importlib"),
    (Kind.INPUT, r"(?:^|\.)(?:next|get) [^ ]*/(?:multiprocessing/(?:pool|queues)|queue)\.py$"),
    (Kind.PRINTING, r"(?<!__iter__) [^ ]*/(?:rich|tqdm|loguru|absl/logging|logging)/[^ /]*\.py$"),
    (Kind.PRINTING, r" [^ ]*/(?:progbar|io_utils|generic_utils|arrayprint|_tensor_str)\.py$"),
    (Kind.PRINTING, r"^print_v2 [^ ]*/logging_ops\.py$"),
    (Kind.PRINTING, r"(?:^|\.)(?:log|add)(?:_\w+)? [^ ]*/(?:wandb|mlflow|comet_ml|tensorboardX)/"),
    (Kind.INPUT, r"(?:^|\.)(?:read_file|decode_\w+) [^ ]*/tensorflow/"),
    (Kind.INPUT, r"\b(?:load|open|resize|convert|read)\w* [^ ]*/(?:numpy/lib|PIL|pandas/io)/"),
    (Kind.INPUT, r"(?:^|\.)__getitem__ [^ ]*/h5py/"),
    (Kind.SAVING, r"(?:^|\.)(?:create_dataset|make_new_dset|__setitem__|flush) [^ ]*/h5py/"),
    (Kind.SAVING, r"(?:^|\.)(?:dump|to_(?:csv|hdf|parquet|pickle)) [^ ]*/(?:joblib|json|pandas)/"),
)
"""The same of the frames of libraries that the user's innermost function has called."""
_STEP = ((Kind.STEP, r" [^ ]*/(?:tensorflow|keras|tf_keras|torch|jax|jaxlib)/"),)
_INPUT_NAME = (
    r"(?:^|\.)(?:(?:load|read|fetch)_\w*(?:batch|data|example|sample|image)"
    r"|(?:next|get|make|prepare)_\w*(?:batch|data|example|sample|image)(?:e?s)? "
    r"|\w*(?:batches|loader|dataset|samples) |__(?:next|getitem)__ "
    r"|(?:pre_?process|augment|collate)(?:_\w+)? )"
)
_OWN_INPUT = ((Kind.INPUT, _INPUT_NAME),)
_CALLER_NAME = (
    r"(?:^|\.)(?:__(?:next|getitem)__|(?:(?:load|read|fetch|next|get|make|prepare)_(?:\w+_)?)?"
    r"(?:batch(?:es)?|data|examples?|samples?|images?)|(?:\w+_)?loader) "
)
_CALLING_INPUT = ((Kind.INPUT, _CALLER_NAME),)
"""The user's functions that call the innermost one, if that is called by none of a step."""
_OF_STEP = re.compile(r"(?i)^(?:\S*[._])?(?:train|fit|step|forward|backward|update|loss)")
_OWN_GENERATOR = ((Kind.INPUT, r"(?:^|\.)(?:generate(?:_data|_batch)?|\w*generator) "),)
"""The user's innermost function. A generator that calls what takes steps may be a model."""
_COLLECTIVE = (
    r"(?i)\b(?:recv(?:_into|from|msg)?|accept|barrier|bcast|broadcast|gather|scatter"
    r"|all_?(?:reduce|gather)|reduce_?scatter)\("
)
"""Calls by which the tasks of a program with its own communication wait for each other."""
_BY_LINE = (
    (Kind.PRINTING, r"\bprint\(|\b(?:stdout|stderr)\.(?:write|flush)\("),
    (Kind.SAVING, r"\bpickle\.dump\(|\bPickler\(|\bfsync\(|\.(?:tofile|write_bytes|commit)\("),
    (Kind.STEP, r"\.(?:item|cpu|block_until_ready)\(\)|\.(?:to|cuda)\("),  # wait for a device
    (Kind.STEP, _COLLECTIVE),
)
_GENERATORS = re.compile(r" [^ ]*/(?:script_ops|from_generator_op)\.py$")
"""Frames of threads in which TensorFlow calls the user's generator."""
_BLOCKS = re.compile(r"\b(?:sleep|recv\w*|accept|acquire|read\w*|wait\w*|select|poll)\(")
"""Calls in which a thread of the user's may wait."""
_OUTERMOST = ("<module>", "_run_module_as_main")


_COMMON = (Kind.STEP, Kind.NO_CORE, Kind.WAITING, Kind.BUSY, Kind.IDLE)
"""What every task does."""


class TaskProfile(Frozen, kw_only=True):
    """Where the time of a task went. `shares`: of `seconds`; `places`: the user's lines."""

    task: str
    seconds: float
    cpu_seconds: float
    shares: dict[Kind, float]
    places: dict[Kind, str]
    recording: Recording
    has_gpu: bool = False
    generating: tuple[float, str] = (0.0, "")
    """The share in which a generator ran, and its line."""
    computing: tuple[float, str] = (0.0, "")
    """The same of another thread of the user's."""
    blocked: tuple[float, str] = (0.0, "")
    """The share in which its own Python used no core, and the line of most of that."""

    @property
    def throttled(self) -> float:
        """For how much of the time its cgroup's quota stops it: each core by itself."""
        return min(1.0, self.recording.throttled / max(0.1, self.seconds))

    @property
    def starved(self) -> float:
        """For how much of a step it gets no core."""
        kinds = Kind.NO_CORE, Kind.STEP, Kind.BUSY
        delay, *steps = (self.shares.get(kind, 0.0) for kind in kinds)
        return delay / max(0.01, delay + sum(steps))

    @property
    def own(self) -> float:
        """The share of the time in which it waits for nobody. In steps of a GPU, it may wait."""
        steps = (Kind.STEP, Kind.NO_CORE, Kind.BUSY) if self.has_gpu else ()
        return 1 - sum(self.shares.get(kind, 0.0) for kind in (Kind.WAITING, Kind.IDLE, *steps))


class Traffic(Frozen, kw_only=True):
    """What went over the connections from one task to another, a second.

    Attributes:
        sent_bytes: by `task` to `peer`.
        resent_packets: of those.
        limited: the share of the time for which the peer was not ready for more.
        round_trip: of a packet and its answer, in seconds: the longest of the connections.
        delivery_bytes: what the fastest connection delivers while there is something to send.
    """

    task: str
    peer: str
    sent_bytes: float = 0.0
    resent_packets: float = 0.0
    limited: float = 0.0
    round_trip: float = 0.0
    delivery_bytes: float = 0.0


class SlowLink(Frozen, kw_only=True):
    """A task whose packets to all others take long, and how long those between the others take.

    If those of all hosts take long: '', and 0.
    """

    task: str
    round_trip: float
    usual: float


class Slowdown(Frozen, kw_only=True):
    """Since when, in Unix seconds, a task takes `rate` steps a second.

    `before`: as many until then; 0: it has taken no other steps.
    """

    at: float
    rate: float
    before: float = 0.0


class Hindrance(Frozen, kw_only=True):
    """The task that gets no core for longest, and why."""

    task: str
    reason: Reason


class Straggler(Frozen, kw_only=True):
    """The task that the others wait for.

    `gain`: the share of its time that the job would save; `also`: tasks that are about as slow.
    """

    task: str
    gain: float
    reasons: tuple[Reason, ...]
    also: tuple[str, ...] = ()
    since: Slowdown | None = None


class Timeline:
    def __init__(self, recording: Recording) -> None:
        self.frames = [Frame(name, file, line) for name, file, line, _ in recording.frames]
        self._recording = recording
        self._keys = [f"{each.function[:300]} {each.file[-1000:]}" for each in self.frames]
        self._kinds: dict[int, Kind] = {}
        threads = sorted(recording.threads, key=self._is_main, reverse=True)
        self.is_first_main = not (threads and self._only_waits(threads[0]))
        if not self.is_first_main:
            threads.sort(key=self._steps, reverse=True)
        self.main = threads[0] if threads else ()
        self.others = threads[1:]

    def _is_main(self, thread: Sequence[tuple[float, int]]) -> bool:
        stack = self._recording.stacks[thread[0][1]] if thread else ()
        return bool(stack) and self.frames[stack[-1]].function in _OUTERMOST

    def _only_waits(self, thread: Sequence[tuple[float, int]]) -> bool:
        """Whether a main thread waits for another one, which trains."""
        stacks = [stack for _, stack in thread if self._recording.stacks[stack]]
        inner = (self.frames[self._recording.stacks[stack][0]] for stack in stacks)
        waits = all(each.file.endswith("/threading.py") for each in inner)
        return waits and all(self.kind(stack) is Kind.OWN for stack in stacks)

    def _steps(self, thread: Sequence[tuple[float, int]]) -> int:
        return sum(self.kind(stack) is Kind.STEP for _, stack in thread)

    def stack_at(self, thread: Sequence[tuple[float, int]], moment: float) -> int | None:
        """Return the index of the stack that a thread has; None if it has none, or is not known."""
        index = bisect_right(thread, moment, key=lambda each: each[0]) - 1
        if index < 0 or index == len(thread) - 1:  # the last one is the end of the samples
            return None
        stack = thread[index][1]
        return stack if self._recording.stacks[stack] else None

    def kind(self, stack: int) -> Kind:
        """Return what a main thread with that stack does."""
        if stack not in self._kinds:
            self._kinds[stack] = self._classify(self._recording.stacks[stack])
        return self._kinds[stack]

    def _classify(self, stack: Sequence[int]) -> Kind:
        keys = [self._keys[i] for i in stack]
        of_user = [n for n, i in enumerate(stack) if not self.frames[i].is_of_library]
        inner = keys[: of_user[0]] if of_user else keys
        own = [keys[n] for n in of_user if "> " not in keys[n]][:1]  # a comprehension is none
        line = [self._recording.frames[i][3] for i in stack[:1]]
        line = [each for each in line if not re.search(r"\)\s*;", each)]  # it has several calls
        callers = [*takewhile(lambda key: not _OF_STEP.search(key), (keys[n] for n in of_user))]
        first = ((_NAMED, keys), (_INNER, inner), (_OWN_INPUT, own), (_CALLING_INPUT, callers))
        last = ((_STEP, inner), (_BY_LINE, line), (_OWN_GENERATOR, callers))
        for rules, texts in (*first, *last):
            for kind, form in rules:
                if any(re.search(form, text) for text in texts):
                    return kind
        return Kind.OWN

    def place(self, stack: int) -> str:
        """Return the innermost line of the user's program; '' if there is none."""
        frames = [self.frames[i] for i in self._recording.stacks[stack]]
        own = next((each for each in frames if not each.is_of_library), None)
        if own is not None:
            return f"{own.function}, {own.place}"
        made = next((each.function for each in frames if CONVERTED in each.file), "")
        name = made.rpartition("inner_factory.<locals>.")[2].removeprefix("tf__")
        return name and f"{name}, as AutoGraph has converted it"

    def waits(self, stack: int) -> bool:
        """Whether the innermost function is a library's."""
        return self.frames[self._recording.stacks[stack][0]].is_of_library

    def thread_at(self, moment: float) -> str | None:
        """Return the line at which another thread of the user's computes then; None if none does.

        In Python, it keeps the main thread from it.
        """
        found = (self.stack_at(thread, moment) for thread in self.others)
        own = (stack for stack in found if stack is not None and not self.waits(stack))
        lines = self._recording.frames
        for stack in own:
            if not _BLOCKS.search(lines[self._recording.stacks[stack][0]][3]):
                return self.place(stack)
        return None

    def generator_at(self, moment: float) -> tuple[str, int] | None:
        """Return the user's line in a generator that runs then, and how many threads compute so.

        A generator of a library waits for other threads, which may be in the user's program.
        None: none runs.
        """
        found = [self.stack_at(thread, moment) for thread in self.others]
        stacks = [stack for stack in found if stack is not None]
        calls = [(self._keys[i] for i in self._recording.stacks[stack]) for stack in stacks]
        makes = [any(map(_GENERATORS.search, each)) for each in calls]
        ranked = sorted(zip(makes, map(self.place, stacks), strict=True), key=lambda each: -each[0])
        frames = (self._recording.frames[self._recording.stacks[stack][0]] for stack in stacks)
        lines = (text for makes_it, (*_, text) in zip(makes, frames, strict=True) if makes_it)
        computing = sum(not _BLOCKS.search(line) for line in lines)
        place = next((place for _, place in ranked if place), "")
        return (place, computing) if any(makes) else None


def profile(
    process: ProcessStacks, training: Collection[str] = (), with_gpus: Collection[str] = ()
) -> TaskProfile | None:
    """Return where the time of a process went; None if that is not known.

    Args:
        process: as its host has recorded it.
        training: the tasks that train. One that is alone waits in its steps for no other.
        with_gpus: those on hosts with GPUs. In their steps, no core may be busy.
    """
    has_gpu = process.task in with_gpus
    rest = {Kind.BUSY: Kind.IDLE, Kind.SERVING: Kind.SERVING}
    rest[Kind.STEP] = Kind.IDLE if has_gpu or len(training) == 1 else Kind.WAITING
    recording = process.recording
    if recording is None or len(recording.readings) < 2:
        return None
    timeline = Timeline(recording)
    times: dict[Kind, dict[str, float]] = {kind: defaultdict(float) for kind in Kind}
    """Of each kind, by the user's line."""
    blocked: dict[str, float] = defaultdict(float)
    spans = [*_spans(recording, [moment for moment, *_ in timeline.main])]
    generators = [timeline.generator_at(moment) for moment, *_ in spans]
    threads = [timeline.thread_at(moment) for moment, *_ in spans]
    generating, computing = map(_most, ([each and each[0] for each in generators], threads))
    is_bound = generating[0] > _ALWAYS
    is_alone = len(training) == 1 and not has_gpu
    for (moment, length, used, wanted, delay, main), made in zip(spans, generators, strict=True):
        (generator, count), active = made or (None, 0), min(1.0, wanted)
        stack, kind, place = timeline.stack_at(timeline.main, moment), Kind.BUSY, ""
        if stack is not None:
            kind, place = timeline.kind(stack), timeline.place(stack)
        if kind is Kind.INPUT and generator is not None:
            place = generator
        if kind is Kind.OWN and not has_gpu:
            blocked[place] += length * (1 - (main if timeline.is_first_main else active))
        parts = [(kind, 1.0, place)]
        is_made_elsewhere = stack is not None and timeline.waits(stack) and generator is None
        if kind is Kind.INPUT and is_made_elsewhere:  # threads that make it may get no core
            parts = [(kind, 1 - delay, place), (Kind.NO_CORE, delay, place)]
        if kind is Kind.STEP and generator is not None:
            count *= is_alone  # others wait in a step for another task, or for a GPU
            # What generators use is no step. Of their threads, Python runs one at a time.
            in_step = max(0.0, used - min(1, count), wanted - count)
            idle = 1.0 if is_bound else 1 - min(1.0, in_step)
            parts = [(kind, 1 - idle, place), (Kind.INPUT, idle, generator)]
        elif kind in rest:
            does = Kind.STEP if kind is Kind.SERVING else kind
            parts = [(does, active - delay, place), (Kind.NO_CORE, delay, place)]
            parts.append((rest[kind], 1 - active, place))
        for kind, share, place in parts:
            times[kind][place] += length * share
    total = sum(sum(each.values()) for each in times.values()) or 1.0
    shares = {kind: sum(each.values()) / total for kind, each in times.items()}
    first, last = recording.readings[0], recording.readings[-1]
    return TaskProfile(
        task=process.task,
        seconds=(last[0] - first[0]) / 1e3,
        cpu_seconds=(last[1] - first[1]) / 1e3,
        shares={kind: share for kind, share in shares.items() if share > 0},
        places={kind: max(each, key=lambda n: each[n]) for kind, each in times.items() if each},
        recording=recording,
        has_gpu=has_gpu,
        generating=generating,
        computing=computing,
        blocked=(sum(blocked.values()) / total, max(blocked, key=lambda n: blocked[n], default="")),
    )


def _most(lines: Sequence[str | None]) -> tuple[float, str]:
    """Return the share of those that are not None, and the line that comes most often."""
    known = [each for each in lines if each is not None]
    return len(known) / max(1, len(lines)), max(known, key=known.count, default="")


def _spans(
    recording: Recording, moments: Sequence[float]
) -> Iterable[tuple[float, float, float, float, float, float]]:
    """Yield the times between two readings; if stacks were sampled, only while they were.

    Each is its middle, its length, the cores that the process used, those that it used or waited
    for, and two shares of it: when the process waited for a core, and when its first thread used
    or waited for one.
    """
    readings = recording.readings
    delays = _delays(readings)
    throttled = recording.throttled * 1e3 / max(1.0, readings[-1][0] - readings[0][0])
    for (before, used, _), (after, used_after, _), waited in zip(
        readings, readings[1:], delays, strict=False
    ):
        length, middle = after - before, (before + after) / 2
        if length <= 0 or (moments and not moments[0] <= middle < moments[-1]):
            continue
        cores = max(0.0, used_after - used) / length
        delay = min(max(0.0, 1.0 - cores), max(waited, throttled))
        first = _rate(recording.first_thread, middle, min(1.0, cores) + delay)
        yield middle, length, cores, cores + max(delay, waited), delay, first


def _rate(counted: Sequence[tuple[float, float]], moment: float, default: float) -> float:
    """Return how fast a counter grows at a moment. `counted`: moments, and its values then."""
    if len(counted) < 2:
        return default
    after = min(max(1, bisect_right(counted, moment, key=lambda each: each[0])), len(counted) - 1)
    (start, before), (end, value) = counted[after - 1 : after + 1]
    return min(1.0, (value - before) / max(1.0, end - start))


def _delays(readings: Sequence[tuple[float, float, float]]) -> list[float]:
    """Return how much the threads waited for a core, between any two readings."""
    rates = [0.0] * (len(readings) - 1)
    start = 0
    for end in range(1, len(readings)):
        if readings[end][2] != readings[start][2] or end == len(readings) - 1:
            length = readings[end][0] - readings[start][0]
            grown = max(0.0, readings[end][2] - readings[start][2])
            rates[start:end] = [grown / max(1.0, length)] * (end - start)
            start = end
    return rates


def straggler(
    profiles: Sequence[TaskProfile],
    members: Collection[str],
    hosts: Mapping[str, str],
    *,
    has_begun: bool = True,
) -> Straggler | None:
    """Return the task that the others wait for; None if none costs a tenth of the time.

    Of several that are slow, those above the widest gap are meant. They are half of all at most.

    Args:
        profiles: of the same seconds. Without one of a member, that may be the slowest.
        members: the tasks that take each step together.
        hosts: where each task runs.
        has_begun: whether they are known to take steps. If not, they may wait for one that starts.
    """
    group = sorted((each for each in profiles if each.task in members), key=lambda each: each.own)
    if len(group) < max(2, len(members)):
        return None
    gaps = [slower.own - each.own for each, slower in pairwise(group)]
    first = max(range((len(group) + 1) // 2, len(group)), key=lambda n: gaps[n - 1])
    others, slow = group[:first], group[first:]
    is_starting = any(Kind.IMPORTING in each.shares for each in group)
    is_starting |= others[-1].own < _LEAST_OF_STEPS
    slowest = slow.pop()
    longer, shorter = (each.shares.get(Kind.INPUT, 0.0) for each in (slowest, others[-1]))
    # Inputs that are about as slow are late in turn: without one, the steps wait for the other.
    late = longer - shorter if longer / 3 < shorter < longer else 0.0
    if gaps[first - 1] - late < LEAST_GAIN or (is_starting and not has_begun):
        return None
    reasons = set_apart(slowest.task, {each.task for each in others}, profiles, hosts)
    starved = statistics.median(each.shares.get(Kind.NO_CORE, 0.0) for each in others)
    used = statistics.median(each.cpu_seconds for each in others)
    has_more = slowest.cpu_seconds >= _MORE_WORK * used or any(each.kind for each in reasons)
    if gaps[first - 1] < _CHANCE * starved and not has_more:
        return None
    if not reasons and find_slow_link(find_traffic(profiles), members, hosts) is not None:
        return None  # what comes late over that link takes more calls
    return Straggler(
        task=slowest.task,
        gain=slowest.own - others[-1].own,
        reasons=reasons,
        also=tuple(each.task for each in slow),
    )


def busiest_server(
    profiles: Sequence[TaskProfile], servers: Collection[str], hosts: Mapping[str, str]
) -> Straggler | None:
    """Return the parameter server that the others wait for, as it has no time left.

    Where all tasks wait for cores, one may be late by chance: it has a reason, or computes.
    """
    clients = [each for each in profiles if each.task not in servers]
    group = [each for each in profiles if each.task in servers]
    waits = [
        sum(each.shares.get(kind, 0.0) for kind in (Kind.WAITING, Kind.SERVING)) for each in clients
    ]
    if not group or min(waits, default=0.0) < LEAST_GAIN:
        return None
    work = Kind.STEP, Kind.NO_CORE
    used = {each.task: sum(each.shares.get(kind, 0.0) for kind in work) for each in group}
    slowest = max(group, key=lambda each: used[each.task])
    reasons = set_apart(slowest.task, [each.task for each in clients], profiles, hosts)
    is_slow = slowest.shares.get(Kind.STEP, 0.0) >= slowest.shares.get(Kind.NO_CORE, 0.0)
    no_reasons = {Obstacle.NO_CORE, Obstacle.LONGER_STEPS}
    has_reason = not {each.obstacle for each in reasons} <= no_reasons
    if used[slowest.task] < _ALWAYS or not (is_slow or has_reason):
        return None
    return Straggler(task=slowest.task, gain=min(waits), reasons=reasons)


def find_traffic(profiles: Sequence[TaskProfile]) -> list[Traffic]:
    """Return what tasks sent to each other in the same seconds, most first.

    The two ends of a connection are known by their ports.
    """
    ends = {
        counted[:2]: (each, counted) for each in profiles for counted in each.recording.connections
    }
    found: dict[tuple[str, str], Traffic] = {}
    for (local, remote), (each, (_, _, sent, _, resent, limited, trip, rate)) in ends.items():
        peer = ends.get((remote, local))
        if peer is None or peer[0].task == each.task:
            continue
        pair, seconds = (each.task, peer[0].task), max(0.1, each.seconds)
        before = found.get(pair) or Traffic(task=pair[0], peer=pair[1])
        found[pair] = replace(
            before,
            sent_bytes=before.sent_bytes + sent / seconds,
            resent_packets=before.resent_packets + resent / seconds,
            limited=before.limited + limited / 1e6 / seconds,
            round_trip=max(before.round_trip, trip / 1e6),
            delivery_bytes=max(before.delivery_bytes, float(rate)),
        )
    return sorted(found.values(), key=lambda each: each.sent_bytes, reverse=True)


def find_slow_link(
    traffic: Sequence[Traffic], members: Collection[str], hosts: Mapping[str, str]
) -> SlowLink | None:
    """Return the task whose packets take much longer than those between the others.

    Args:
        traffic: between all tasks.
        members: the tasks that take each step together, of which two have to be compared.
        hosts: where each task runs.
    """
    links: dict[frozenset[str], float] = {}  # the faster way: answers to rare packets are delayed
    for each in traffic:
        if {each.task, each.peer} <= {*members}:
            ends = frozenset((each.task, each.peer))
            links[ends] = min(each.round_trip, links.get(ends, math.inf))
    tasks = sorted(frozenset().union(*links))
    nearest = {task: min(trip for ends, trip in links.items() if task in ends) for task in tasks}
    slowest = max(nearest, key=lambda task: nearest[task], default="")
    others = [trip for ends, trip in links.items() if slowest not in ends]
    usual = statistics.median(others or [math.inf])
    if nearest.get(slowest, 0.0) >= max(_LEAST_TRIP, _SLOWER_TRIP * usual):
        return SlowLink(task=slowest, round_trip=nearest[slowest], usual=usual)
    between = [trip for ends, trip in links.items() if len({hosts.get(each) for each in ends}) > 1]
    trip = min(between, default=0.0)
    return SlowLink(task="", round_trip=trip, usual=0.0) if trip >= _LONG_TRIP else None


def set_apart(
    task: str, others: Collection[str], profiles: Sequence[TaskProfile], hosts: Mapping[str, str]
) -> tuple[Reason, ...]:
    """Return what sets a task apart from others; nothing if there are no profiles of them."""
    slowest = [each for each in profiles if each.task == task]
    usual = [each for each in profiles if each.task in others and each.task != task]
    if not (slowest and usual):
        return ()
    return tuple(_reasons(slowest[0], usual, _neighbour(slowest[0], profiles, hosts)))


def hindrance(profiles: Sequence[TaskProfile], hosts: Mapping[str, str]) -> Hindrance | None:
    """Return what keeps the task that gets no core for longest from one; None: unknown."""
    most = max(profiles, key=lambda each: each.shares.get(Kind.NO_CORE, 0.0), default=None)
    if most is None or most.shares.get(Kind.NO_CORE, 0.0) < LEAST_GAIN:
        return None
    if most.throttled >= LEAST_GAIN:
        return Hindrance(task=most.task, reason=_quota(most))
    own = _own_processes(most, [each for each in profiles if each is not most])
    reason = max(_neighbour(most, profiles, hosts), own, key=lambda each: each.amount)
    return Hindrance(task=most.task, reason=reason) if reason.amount >= _LEAST_CORES else None


def _own_processes(task: TaskProfile, others: Sequence[TaskProfile]) -> Reason:
    """How many cores the task's other processes use."""
    amount, *usual = (each.recording.helpers_busy / each.seconds for each in (task, *others))
    usually = statistics.median(usual or [0.0])
    return Reason(obstacle=Obstacle.OWN_PROCESSES, amount=amount, usual=usually)


def _quota(task: TaskProfile) -> Reason:
    quota = task.recording.quota
    return Reason(obstacle=Obstacle.THROTTLED, amount=task.throttled, usual=quota)


def _neighbour(
    task: TaskProfile, profiles: Sequence[TaskProfile], hosts: Mapping[str, str]
) -> Reason:
    """How many of a task's cores are used by processes that are none of the job's."""
    host, recording = hosts.get(task.task), task.recording
    used = sum(each.cpu_seconds for each in profiles if hosts.get(each.task) == host)
    amount = max(0.0, recording.host_busy - used) / max(0.1, task.seconds)
    cores = recording.host_cores
    return Reason(obstacle=Obstacle.BUSY_NEIGHBOUR, amount=amount, usual=cores)


def _reasons(
    slowest: TaskProfile, others: Sequence[TaskProfile], neighbour: Reason
) -> Iterable[Reason]:
    mine, usual = slowest.recording, [each.recording for each in others]
    shares = {
        kind: (share, statistics.median(each.shares.get(kind, 0.0) for each in others))
        for kind, share in slowest.shares.items()
    }
    longer = {kind: both for kind, both in shares.items() if both[0] - both[1] >= _LEAST_SHARE}
    is_throttled = slowest.throttled >= _LEAST_SHARE
    found = [(slowest.throttled, _quota(slowest))] if is_throttled else []
    for kind in (each for each in longer if each not in _COMMON):
        (amount, median), place = longer[kind], slowest.places.get(kind, "")
        more = Reason(
            obstacle=Obstacle.MORE_OF_A_KIND, amount=amount, usual=median, kind=kind, place=place
        )
        found.append((amount - median, more))
    yield from (each for _, each in sorted(found, key=lambda each: -each[0]))
    cores = statistics.median(each.cores for each in usual)
    if mine.cores < cores:
        yield Reason(obstacle=Obstacle.FEWER_CORES, amount=mine.cores, usual=cores)
    helped = _own_processes(slowest, others)
    if helped.amount - helped.usual >= _LEAST_CORES:
        yield helped
    starved = statistics.median(each.starved for each in others)
    delay, usual_delay = shares.get(Kind.NO_CORE, (0.0, 0.0))
    is_starved = slowest.starved - starved >= LEAST_GAIN and delay - usual_delay >= _LEAST_SHARE
    if is_starved and not is_throttled:
        yield Reason(obstacle=Obstacle.NO_CORE, amount=slowest.starved, usual=starved)
        nice = statistics.median(each.nice for each in usual)
        if mine.nice > nice:
            yield Reason(obstacle=Obstacle.NICE, amount=mine.nice, usual=nice)
        if neighbour.amount >= _LEAST_CORES:
            yield neighbour
    if mine.swapped_bytes - max(each.swapped_bytes for each in usual) >= _LEAST_SWAPPED:
        yield Reason(obstacle=Obstacle.SWAPPED, amount=mine.swapped_bytes)
    yield from _slower_clocks(mine, usual)
    if Kind.STEP in longer:
        step, usual_step = longer[Kind.STEP]  # all may wait for cores in it
        yield _longer_steps(slowest, others, step + delay, usual_step + usual_delay)


def _longer_steps(
    slowest: TaskProfile, others: Sequence[TaskProfile], amount: float, usual: float
) -> Reason:
    generates = statistics.median(each.generating[0] for each in others)
    computes = statistics.median(each.computing[0] for each in others)
    for obstacle, (share, place), median in (
        (Obstacle.BUSY_GENERATOR, slowest.generating, generates),
        (Obstacle.BUSY_THREAD, slowest.computing, computes),
    ):
        if share - median >= _LEAST_CORES:
            return Reason(obstacle=obstacle, amount=share, usual=median, place=place)
    return Reason(obstacle=Obstacle.LONGER_STEPS, amount=amount, usual=usual)


def _slower_clocks(mine: Recording, others: Sequence[Recording]) -> Iterable[Reason]:
    usual = statistics.median(each.clock_mhz for each in others)
    if 0 < mine.clock_mhz < _CLOCK_RATIO * usual:
        heat = f"at {mine.celsius} °C" if mine.celsius > 0 else ""
        yield Reason(obstacle=Obstacle.SLOWER_CLOCK, amount=mine.clock_mhz, usual=usual, place=heat)
    slowest, *slowest_of_others = (_slowest_gpu(each) for each in (mine, *others))
    known = [clock for clock, _ in slowest_of_others if clock]
    usual = statistics.median(known or [0.0])
    if 0 < slowest[0] < _CLOCK_RATIO * usual:
        clock, why = slowest
        yield Reason(obstacle=Obstacle.SLOWER_GPU, amount=clock, usual=usual, place=why)


def _slowest_gpu(recording: Recording) -> tuple[float, str]:
    """The lowest clock of the GPUs that a process may use, and what lowers it; 0: not known."""
    found = [(each.clock_mhz or 0.0, ", ".join(each.slowed_by)) for each in gpus.read(recording)]
    return min(found, default=(0.0, ""))
