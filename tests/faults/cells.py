"""The cells of the fault matrix: a fault, its victim and its moment. A seed samples some."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

MWM, PS = "multi_worker_mirrored", "parameter_server"
SIGNALS = ("SIGKILL", "SIGTERM", "SIGSTOP")
"""SIGCONT follows each SIGSTOP."""
FAULTS = (*SIGNALS, "exit1", "exception")
TASKS = ("chief:0", "worker:0", "worker:1", "ps:0", "evaluator:0")
VICTIMS = (*TASKS, "agent", "supervisor", "launch")
MOMENTS = ("starting", "first_step", "mid_epoch", "saving", "shutting_down")
STEPS, SAVE_EVERY, MID_EPOCH = 12, 4, 7
CLUSTERS = {
    (MWM, "chief:0"): {"chief": 1, "worker": 1},
    (MWM, "evaluator:0"): {"worker": 2, "evaluator": 1},
    (PS, "worker:1"): {"chief": 1, "worker": 2, "ps": 1},
    (PS, "evaluator:0"): {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}, MWM: {"worker": 2},
    PS: {"chief": 1, "worker": 1, "ps": 1},
}  # fmt: skip
"""As small as possible, because every task takes seconds to import TensorFlow."""


@dataclass(frozen=True)
class Cell:
    fault: str
    victim: str
    moment: str
    strategy: str

    def __str__(self) -> str:
        short = "mwm" if self.strategy == MWM else "ps"
        return f"{self.fault}-{self.victim.replace(':', '')}-{self.moment}-{short}"

    @property
    def is_possible(self) -> bool:
        if self.victim == "ps:0" and self.strategy != PS:
            return False
        return self.victim in TASKS or self.fault in SIGNALS

    @property
    def cluster(self) -> dict[str, int]:
        return CLUSTERS.get((self.strategy, self.victim), CLUSTERS[self.strategy])

    @property
    def trainer(self) -> str:
        return "chief:0" if "chief" in self.cluster else "worker:0"

    @property
    def reporter(self) -> str:
        """The task whose progress decides when the fault is injected."""
        if self.trains_together or (self.victim in TASKS and self.moment == "starting"):
            return self.victim
        return self.trainer

    @property
    def trains_together(self) -> bool:
        """Whether the victim reaches each moment itself, because it trains."""
        return self.strategy == MWM and self.victim.startswith(("chief", "worker"))

    @property
    def pairs(self) -> set[frozenset[tuple[str, str]]]:
        named = list(self.__dict__.items())
        return {frozenset(pair) for pair in itertools.combinations(named, 2)}


ALL = [
    cell
    for values in itertools.product(FAULTS, VICTIMS, MOMENTS, (MWM, PS))
    if (cell := Cell(*values)).is_possible
]


def sampled(seed: int, count: int = 60) -> list[Cell]:
    """At least `count` cells. They contain every possible pair of values."""
    cells = ALL.copy()
    random.Random(seed).shuffle(cells)
    chosen = list(_pairwise(cells))
    chosen += [cell for cell in cells if cell not in chosen][: max(0, count - len(chosen))]
    return chosen


def _pairwise(cells: list[Cell]) -> Iterator[Cell]:
    left = set().union(*(cell.pairs for cell in cells))
    while left:
        best = max(cells, key=lambda cell: len(cell.pairs & left))
        left -= best.pairs
        yield best


@dataclass(frozen=True)
class Expectation:
    """The expected end of a cell's job. No cell may leave processes behind.

    `kinds` are the verdicts that may be given, `None` for none; each names the victim, where it
    is a task. `restarts` are how many the job may have, `codes` what launch may exit with.
    """

    results: tuple[str, ...] = ("succeeded",)
    codes: tuple[int, ...] = (0,)
    kinds: tuple[str | None, ...] = (None,)
    restarts: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        verdicts = "/".join(kind or "none" for kind in self.kinds)
        restarts = "/".join(map(str, self.restarts))
        return f"{'/'.join(self.results)}, verdict {verdicts}, restarts {restarts}"


_UNHARMED = Expectation()
_STOPPED_BY_SIGTERM = Expectation(("stopped",), (143,))
_OTHERS = {
    ("launch", "SIGKILL"): Expectation(("stopped",), (-9,)),
    ("launch", "SIGTERM"): _STOPPED_BY_SIGTERM,
    ("supervisor", "SIGKILL"): Expectation(("lost",), (70,)),
    ("supervisor", "SIGTERM"): _STOPPED_BY_SIGTERM,
    ("agent", "SIGKILL"): Expectation(("failed",), (69,), ("host_lost",)),
    ("agent", "SIGTERM"): Expectation(("failed",), (69,), ("host_lost",)),
}
_KINDS = {"SIGKILL": "killed", "SIGTERM": "preempted", "exit1": "exit", "exception": "exception"}


def expected(cell: Cell) -> Expectation:
    if cell.fault == "SIGSTOP":
        return _UNHARMED
    if cell.victim not in TASKS:
        return _OTHERS[cell.victim, cell.fault]
    kinds: tuple[str | None, ...] = (_KINDS[cell.fault],)
    restarts: tuple[int, ...] = (1,)
    # TensorFlow swallows SIGTERM after it has started its preemption notifier.
    is_uncertain = cell.fault == "SIGTERM" and cell.moment != "starting"
    # The job's success does not wait for these tasks: their fault can come too late.
    is_late = cell.moment == "shutting_down" and cell.victim != cell.trainer
    is_uncertain = is_uncertain or (is_late and not cell.trains_together)
    if is_uncertain:
        kinds, restarts = (None, *kinds), (0, 1)
    if cell.victim == "evaluator:0":
        restarts = (0,)
    return Expectation(kinds=kinds, restarts=restarts)
