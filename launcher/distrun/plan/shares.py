"""Divides a host's GPUs and cores among its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from distrun.agent.protocol import Cause, Code
from distrun.errors import InvalidSpecError
from distrun.plan.facts import HostFacts
from distrun.plan.placement import Placed
from distrun.spec.host_spec import HostSpec
from distrun.strategies import Strategy

NONE = "-1"
"""CUDA_VISIBLE_DEVICES for a task that must see no GPU."""


def divide_gpus(
    here: Sequence[Placed],
    host: HostSpec,
    facts: HostFacts,
    strategy: Strategy,
    running: Mapping[str, str],
) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES for each task of a host; no entry if it stays unchanged.

    Tasks get the GPUs that their role asks for. The others share the rest evenly, each at least
    one; if there are more tasks than GPUs, tasks share a GPU. A ps or an evaluator that asks for
    nothing gets none, unless it is alone in a pod. Raises InvalidSpecError: there are too few.

    Tasks that go on keep theirs (`running`); others get these only if there are no more.
    """
    available = facts.gpus if host.gpus is None else tuple(str(index) for index in host.gpus)
    asked = {placed.name: _asked(placed, strategy) for placed in here}
    given = {name: running[name].split(",") for name in asked if name in running}
    undecided = [name for name, count in asked.items() if count is None and name not in given]
    nothing_said = host.gpus is None and all(placed.role.gpus is None for placed in here)
    if nothing_said and host.pod and available and len(here) == 1:
        return {}  # nobody else can use its GPUs
    if nothing_said and (not available or len(here) == 1):
        return {name: NONE for name, count in asked.items() if count == 0}
    total = sum(count for count in asked.values() if count is not None)
    if total > len(available):
        code = Code.TOO_FEW_GPUS
        within = () if facts.gpu_failure is None else (facts.gpu_failure,)
        cause = Cause(code, host=host.name, count=total, total=len(available), within=within)
        raise InvalidSpecError(cause=cause)
    in_use = {gpu for gpus in given.values() for gpu in gpus}
    taken = {gpu for name, gpus in given.items() if asked[name] is not None for gpu in gpus}
    rest = sorted(available, key=lambda gpu: gpu in in_use)
    for name, count in asked.items():
        if count is not None and name not in given:
            given[name], rest = rest[:count], rest[count:]
    rest = [gpu for gpu in rest if gpu not in taken]
    given.update(_share(undecided, [gpu for gpu in rest if gpu not in in_use] or rest))
    return {name: ",".join(each) or NONE for name, each in given.items()}


def sharers(given: Mapping[str, str]) -> set[str]:
    """The tasks that share a GPU, given the result of :func:`divide_gpus`."""
    users = Counter(gpu for gpus in given.values() for gpu in gpus.split(",") if gpu != NONE)
    return {name for name, gpus in given.items() if any(users[gpu] > 1 for gpu in gpus.split(","))}


def _asked(placed: Placed, strategy: Strategy) -> int | None:
    if placed.role.gpus is not None:
        return placed.role.gpus
    return None if strategy.rule(placed.role.role).gpus else 0


def _share(names: Sequence[str], gpus: Sequence[str]) -> dict[str, list[str]]:
    if not names or not gpus:
        return {name: [] for name in names}
    if len(names) > len(gpus):
        return {name: [gpus[place % len(gpus)]] for place, name in enumerate(names)}
    size = len(gpus) // len(names)
    return {name: list(gpus[place * size : (place + 1) * size]) for place, name in enumerate(names)}


def divide_cores(here: Sequence[Placed], cores: float) -> dict[str, int]:
    """Threads for each task of a host: as its role asks, or an equal share of the rest."""
    threads = {placed.name: placed.role.cpus for placed in here if placed.role.cpus is not None}
    rest = [placed for placed in here if placed.role.cpus is None]
    if rest:
        share = max(1, int((cores - sum(threads.values())) // len(rest)))
        threads.update((placed.name, share) for placed in rest)
    return threads
