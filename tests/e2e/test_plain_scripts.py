"""The script of TensorFlow's tutorial for several workers, which does not know distrun.

Another, `replicas.py`, is the script that test_templates.py puts beside `script.yaml`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TUTORIAL = Path(__file__).parent / "plain" / "tutorial.py"
KEYS = "strategy: multi_worker_mirrored\ncluster: {worker: 2}"


@pytest.fixture
def launch(distrun: Distrun, preloaded: PreloadedPython) -> Callable[..., Any]:
    """Launch the tutorial's script, with more keys for it."""

    def run(more: str = "") -> Any:
        program = f"{{script: {TUTORIAL}, python: {preloaded.interpreter}{more}}}"
        (distrun.cwd / "job.yaml").write_text(f"{KEYS}\nprogram: {program}\n")
        return distrun("launch", "job.yaml", timeout=200)

    return run


def test_the_published_multi_worker_tutorial_with_keras_2(launch: Callable[..., Any]) -> None:
    done = launch(", keras: 2")
    assert done.returncode == 0, done.stdout + done.stderr
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | Epoch: 0 loss is a number: True" in done.stdout
        assert f"{worker} | tutorial: epochs 2 steps 8" in done.stdout
    assert "program.keras" not in done.stderr


def test_the_advice_on_the_tutorial_with_keras_3_is_the_key(
    distrun: Distrun, launch: Callable[..., Any]
) -> None:
    done = launch()
    assert done.returncode == 1
    assert "Epoch: 0 loss is a number: True" in done.stdout
    warning = next(line for line in done.stderr.splitlines() if "warning" in line)
    for words in ("tutorial.py:77:5", "reset_states", "write program.keras: 2, and pip install"):
        assert words in warning
    assert distrun.status()["verdict"]["kind"] == "keras3"
    assert "set `program.keras: 2` and install tf_keras" in done.stderr
