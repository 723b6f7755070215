"""Ways to start the bundled job and other programs that need TensorFlow."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harness import training
from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.training import Alone, RunPython, Workers


@pytest.fixture(scope="session")
def alone(preloaded: PreloadedPython) -> Alone:
    """Start the job as one process: `with alone("--epochs", "2") as job`."""
    return partial(training.alone, preloaded)


@pytest.fixture(scope="session")
def workers(preloaded: PreloadedPython) -> Workers:
    """Start the job as several workers: `with workers(2, "--epochs", "2") as pair`."""
    return partial(training.workers, preloaded)


@pytest.fixture(scope="session")
def run_python(preloaded: PreloadedPython) -> RunPython:
    """Run a script, or `-c` and code, to its end; returns its output."""
    return partial(training.run_python, preloaded)


@pytest.fixture(autouse=True)
def _nothing_speaks_against_a_success(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test, see that no training which succeeded is told with a warning."""
    has_jobs = "distrun" in request.fixturenames
    distrun: Distrun | None = request.getfixturevalue("distrun") if has_jobs else None
    yield
    if distrun is not None:
        for job in json.loads(distrun.asked("ps", "-a", "--json"))["jobs"]:
            is_forked = "/preloaded-" in (Path(job["folder"]) / "plan.json").read_text()
            # The sockets of such a fork are none of the task's, for distrun.
            hidden = "never listened on a port" if is_forked else "\0"
            assert not [each for each in job["warnings"] if hidden not in each]
