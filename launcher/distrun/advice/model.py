"""Advice on a job that is slow."""

from __future__ import annotations

from enum import Enum

from distrun.frozen import Frozen

SECONDS = 60.0
"""What lasted less is not reported."""


class Kind(str, Enum):
    """What a task does, in the order in which it is shown."""

    STEP = "step"
    BUSY = "busy"
    """It used the CPU, and its stacks are not known."""
    NO_CORE = "waiting for a core"
    WAITING = "waiting for others"
    IDLE = "idle"
    INPUT = "waiting for input"
    TRACING = "tracing"
    SAVING = "saving"
    EVALUATION = "evaluation"
    PRINTING = "printing"
    OWN = "own Python"
    IMPORTING = "importing"
    SERVING = "serving"


class Obstacle(str, Enum):
    """How the task that the others wait for differs."""

    MORE_OF_A_KIND = "more_of_a_kind"
    THROTTLED = "throttled"
    NICE = "nice"
    BUSY_NEIGHBOUR = "busy_neighbour"
    OWN_PROCESSES = "own_processes"
    FEWER_CORES = "fewer_cores"
    NO_CORE = "no_core"
    SWAPPED = "swapped"
    SLOWER_CLOCK = "slower_clock"
    SLOWER_GPU = "slower_gpu"
    LONGER_STEPS = "longer_steps"
    BUSY_GENERATOR = "busy_generator"
    BUSY_THREAD = "busy_thread"


class Reason(Frozen, kw_only=True):
    """An obstacle with its numbers: of this task, and of most others."""

    obstacle: Obstacle
    amount: float
    usual: float = 0.0
    kind: Kind | None = None
    place: str = ""


class Symptom(str, Enum):
    """What is slow."""

    BEHIND = "behind"
    WAITED_FOR = "waited_for"
    RETRACING = "retracing"
    INPUT = "input"
    TRACING = "tracing"
    PRINTING = "printing"
    SAVING = "saving"
    BLOCKED = "blocked"
    THROTTLED = "throttled"
    SLOW_LINK = "slow_link"
    SMALL_STEPS = "small_steps"
    GPU_IDLE = "gpu_idle"
    IDLE = "idle"


class Advice(Frozen, kw_only=True):
    """A symptom with its number.

    Attributes:
        symptom: what is slow.
        task: the one that is meant; '': all.
        amount: steps a second, calls that were traced, cores that are used,
            seconds of a round trip, or a share of the time.
        usual: the same of the others; of short steps, how many there are a second; of a quota, its
            cores.
        name: the function that is traced, or the user's line.
        reasons: how the task differs.
    """

    symptom: Symptom
    task: str
    amount: float
    usual: float = 0.0
    name: str = ""
    reasons: tuple[Reason, ...] = ()
