"""Scripts like those of TensorFlow's tutorials, which do not know distrun.

Another, `replicas.py`, is the script that test_templates.py puts beside `script.yaml`.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PLAIN = Path(__file__).parent / "plain"


@pytest.fixture
def launch(distrun: Distrun, preloaded: PreloadedPython) -> Callable[..., Any]:
    """Launch a script with keys for its spec, and some for its program."""

    def run(script: str, keys: str, more: str = "") -> Any:
        program = f"{{script: {PLAIN / script}, python: {preloaded.interpreter}{more}}}"
        (distrun.cwd / "job.yaml").write_text(f"{keys}\nprogram: {program}\n")
        return distrun("launch", "job.yaml", timeout=200)

    return run


def test_workers_that_train_by_themselves(distrun: Distrun, launch: Callable[..., Any]) -> None:
    """TensorFlow 1's between-graph replication; distrun ends the ps when the deciding task has."""
    keys = "strategy: parameter_server\nworkers: independent\ncluster: {worker: 2, ps: 1}"
    done = launch("between_graph.py", keys)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = r"^worker:0 +\| between-graph: worker:0 ended at step"
    assert re.search(ended, done.stdout, re.MULTILINE)
    # Workers that are in the middle of a step at step 200 still count it.
    assert list((distrun.cwd / "ckpt").glob("model.ckpt-20[0-9].index"))
    states = {each["task"]: (each["state"], each["attempt"]) for each in distrun.status()["tasks"]}
    assert states["worker:0"] == ("succeeded", 0)
    assert states["ps:0"] == ("stopped", 0)
    assert states["worker:1"][0] != "failed"


TUTORIAL = ("tutorial.py", "strategy: multi_worker_mirrored\ncluster: {worker: 2}")


def test_the_published_multi_worker_tutorial_with_keras_2(launch: Callable[..., Any]) -> None:
    done = launch(*TUTORIAL, ", keras: 2")
    assert done.returncode == 0, done.stdout + done.stderr
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | Epoch: 0 loss is a number: True" in done.stdout
        assert f"{worker} | tutorial: epochs 2 steps 8" in done.stdout
    assert "program.keras" not in done.stderr


def test_the_advice_on_the_tutorial_with_keras_3_is_the_key(
    distrun: Distrun, launch: Callable[..., Any]
) -> None:
    done = launch(*TUTORIAL)
    assert done.returncode == 1
    assert "Epoch: 0 loss is a number: True" in done.stdout
    warning = next(line for line in done.stderr.splitlines() if "warning" in line)
    for words in ("tutorial.py:77:5", "reset_states", "write program.keras: 2, and pip install"):
        assert words in warning
    assert distrun.status()["verdict"]["kind"] == "keras3"
    assert "set `program.keras: 2` and install tf_keras" in done.stderr
