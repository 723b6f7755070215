"""Random histories: whatever happens to hosts, links, disks and tasks, and whenever.

At each moment no two attempts of a task live, each history ends, nothing is left on a host that can
be reached, and the replayed record is the supervisor's state.

`SEED=7 HISTORIES=10000 pytest tests/world/test_histories.py` runs others. A failure is shrunk, and
printed with the call that repeats it.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

from harness.examples import examples
from harness.world import World

SEED = int(os.environ.get("SEED", "0"))
HISTORIES = int(os.environ.get("HISTORIES", examples(80)))
HOSTS = ("h1", "h2", "h3", "h4")
SHAPES: tuple[dict[str, Any], ...] = (
    {"cluster": {"worker": 2, "evaluator": 1}},
    {"cluster": {"worker": 2, "evaluator": 1}, "success": "all"},
    {"cluster": {"chief": 1, "worker": {"count": 1, "restart": {"max": 1, "on": "always"}}}},
    {"cluster": {"worker": ["h1:2222", "h2:2222"], "evaluator": 1}},
    {"cluster": {"worker": {"count": 2, "ready": "off"},
                 "proxy": {"command": ["own"], "ready": "off", "after": ["worker"]}}},
    {"strategy": "parameter_server", "cluster": {"chief": 1, "worker": 1, "ps": 1}},
    {
        "strategy": "parameter_server", "workers": "independent", "success": "all",
        "cluster": {"chief": 1, "worker": 1, "ps": {"count": 1, "restart": "never"}},
    },
)  # fmt: skip
TASKS = (0, 1, 2)
"""The tasks of a shape, in the order of their first start."""
WAITS = (0.0, 0.1, 0.6, 2.0, 7.0, 16.0, 31.0, 45.0, 59.9, 61.0)


def _on_agent(change: Callable[[World, str], None]) -> Callable[[World, str], None]:
    return lambda world, host: change(world, host) if world.has_agent(host) else None


def _on_task(change: Callable[[World, str], None]) -> Callable[[World, int], None]:
    def change_running(world: World, number: int) -> None:
        names = list(dict.fromkeys(each.name for each in world.attempts))
        if number < len(names) and names[number] in world.running:
            change(world, names[number])

    return change_running


def _resume(world: World, _: int) -> None:
    if world.is_running:
        world.kill_supervisor()
        world.advance(1.0)
    if world.status()["state"] == "lost":
        world.resume()


OF_HOSTS: dict[str, Callable[[World, str], None]] = {
    "cut": World.cut, "mend": World.mend, "drop links": World.drop_links,
    "slow": lambda world, host: world.delay(host, 1.5),
    "fast": lambda world, host: world.delay(host, 0.0),
    "power off": World.power_off, "power on": World.power_on, "freeze": World.freeze,
    "thaw": World.thaw, "hang agent": _on_agent(World.hang_agent),
    "resume agent": World.resume_agent, "kill agent": _on_agent(World.kill_agent),
    "fill disk": World.fill_disk, "mend disk": World.mend_disk,
    "break program": World.break_program,
}  # fmt: skip
OF_TASKS: dict[str, Callable[[World, int], None]] = {
    "exit 0": _on_task(World.exit), "exit 1": _on_task(lambda world, task: world.exit(task, 1)),
    "preempted": _on_task(lambda world, task: world.exit(task, 42)), "die": _on_task(World.die),
    "print": _on_task(lambda world, task: world.print(task, "a line\n")),
    "ignore SIGTERM": _on_task(lambda world, task: setattr(world.task(task), "stops_after", None)),
    "die slowly": _on_task(lambda world, task: setattr(world.task(task), "dies_after", 2.0)),
    "stop": lambda world, _: world.stop(), "kill": lambda world, _: world.kill(), "resume": _resume,
}  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.sampled_from(sorted(OF_HOSTS)), st.sampled_from(HOSTS)),
    st.tuples(st.sampled_from(sorted(OF_TASKS)), st.sampled_from(TASKS)),
)
SETTINGS = st.fixed_dictionaries(
    {"max": st.sampled_from((0, 3)), "backoff": st.sampled_from(("50ms", "2s")),
     "min_workers": st.sampled_from((1, 2))}
)  # fmt: skip


def run_history(
    folder: Path,
    shape: dict[str, Any],
    restart: dict[str, object],
    before: list[tuple[str, str]],
    history: list[tuple[tuple[str, Any], float]],
) -> None:
    """Run a job through a history, then let all hosts work again, and the tasks end."""
    if shape["cluster"]["worker"] != 2:
        restart = {name: each for name, each in restart.items() if name != "min_workers"}
    timeouts = {"link": "60s", "start": "120s"}
    with World(folder, hosts=4, spares=1, timeouts=timeouts, restart=restart, **shape) as world:
        for step, host in before:
            OF_HOSTS[step](world, host)
        world.launch()
        for (step, at), wait in history:
            changes: dict[str, Callable[[World, Any], None]] = {**OF_HOSTS, **OF_TASKS}
            changes[step](world, at)
            world.advance(wait)
        world.on_start = lambda task: task.end(0)
        for host in HOSTS:
            world.delay(host, 0.0)
            world.thaw(host)
            world.resume_agent(host)
            world.mend(host)
        for _ in range(20):
            world.exit_all()
            world.advance(60.0)
            if not world.is_running:
                break
        assert not world.is_running, f"it does not end: {world.said()}"
        world.advance(180.0)
        world.check()


@seed(SEED)
@settings(
    max_examples=HISTORIES,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@example(SHAPES[0], {"max": 0}, [], [(("drop links", "h1"), 0.0), (("kill agent", "h1"), 0.0)])
@given(
    st.sampled_from(SHAPES),
    SETTINGS,
    st.lists(st.tuples(st.sampled_from(sorted(OF_HOSTS)), st.sampled_from(HOSTS)), max_size=1),
    st.lists(st.tuples(STEPS, st.sampled_from(WAITS)), max_size=14),
)
def test_no_two_attempts_live_at_once_and_each_history_ends(
    shape: Any, restart: Any, before: Any, history: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_history(Path(folder), shape, restart, before, history)
