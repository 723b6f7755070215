"""What people run with TensorFlow, by their public reports: what they are told."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.tables import read_cases

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CASES = read_cases(Path(__file__).with_name("reported_cases.txt"))


@pytest.mark.parametrize("name", CASES)
def test_the_user_is_told(
    name: str, distrun: Distrun, preloaded: PreloadedPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    CASES[name].write_files(distrun.cwd, "")
    (distrun.cwd / "train.yaml").write_text(
        "strategy: multi_worker_mirrored\ncluster: {worker: 2}\nprogram:\n"
        f"  {{script: train.py, python: {preloaded.interpreter}, keras: 2}}\n"
    )
    done = distrun("launch", "train.yaml", timeout=200)
    assert done.returncode != 0, done.stderr
    assert CASES[name].told.search(done.stderr), done.stderr


TUTORIAL = Path(__file__).parent / "plain" / "tutorial.py"
KEYS = "strategy: multi_worker_mirrored"


@pytest.fixture
def launch(distrun: Distrun, preloaded: PreloadedPython) -> Callable[..., Any]:
    """Launch the tutorial's script by so many workers, with more keys for it."""

    def run(workers: int, more: str = "") -> Any:
        program = f"{{script: {TUTORIAL}, python: {preloaded.interpreter}{more}}}"
        cluster = f"cluster: {{worker: {workers}}}"
        (distrun.cwd / "job.yaml").write_text(f"{KEYS}\n{cluster}\nprogram: {program}\n")
        return distrun("launch", "job.yaml", timeout=200)

    return run


def test_the_published_multi_worker_tutorial_with_keras_2(launch: Callable[..., Any]) -> None:
    done = launch(2, ", keras: 2")
    assert done.returncode == 0, done.stdout + done.stderr
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | Epoch: 0 loss is a number: True" in done.stdout
        assert f"{worker} | tutorial: epochs 2 steps 8" in done.stdout
    assert "program.keras" not in done.stderr


def test_the_tutorials_advice_with_keras_3(distrun: Distrun, launch: Callable[..., Any]) -> None:
    done = launch(1)
    assert done.returncode == 1
    assert "Epoch: 0 loss is a number: True" in done.stdout
    warning = next(line for line in done.stderr.splitlines() if "warning" in line)
    told = r"tutorial\.py:77:5: .* reset_states.*: write program\.keras: 2 \(.*\)$"
    assert re.search(told, warning)
    assert distrun.status()["verdict"]["kind"] == "keras3"
    assert re.search(r"set `program\.keras: 2` \(.*\) and install tf_keras", done.stderr)
