"""Jobs in simulated time."""

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Launch a job on so many hosts. Two workers that restart five times, unless the keys say else.

    At the end, the record's replay is compared with the supervisor's state if the job has ended.
    """
    made: list[World] = []

    def launch(hosts: Any = 3, *, is_launched: bool = True, **keys: Any) -> World:
        restart = {"max": 5, "backoff": "50ms", **keys.pop("restart", {})}
        about = {"cluster": {"worker": 2}, "restart": restart, **keys}
        made.append(World(tmp_path, hosts=hosts, **about))
        if is_launched:
            made[0].launch()
        return made[0]

    yield launch
    for each in made:
        try:
            if not each.is_running:
                each.check()
        finally:
            each.close()


@pytest.fixture(autouse=True, scope="module")
def _held_by_the_dead() -> Iterator[None]:
    """Close what a process that was killed has held, as its end would."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "world" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
