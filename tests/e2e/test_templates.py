"""Each template, written by `distrun init` into an empty folder and launched there."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from distrun.spec.resources import examples, templates
from distrun.strategies import STRATEGIES
from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.training import held_port
from harness.values import not_none

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PLAIN = Path(__file__).parent / "plain"
SHORT = ["--epochs", "2", "--steps-per-epoch", "4", "--model", "cnn", "--batch-size", "16"]
MORE = {"parameter_server_mnist": ["--input", "distribute", "--summary-dir", "logs"]}
PATIENT = ["--set", "timeouts.grace=100s"]
"""Time for an evaluator to finish on a busy machine."""

TWO = "multi_worker_mirrored: replicas 2, worker 2"
CHIEF = "multi_worker_mirrored: replicas 2, chief 1, worker 1"
AT = "cluster.worker=[localhost:{}, localhost:{}]"
TRAINERS: dict[tuple[str, ...], dict[str, str]] = {
    ("mirrored",): {"worker:0": "mirrored: replicas 2, "},
    ("multi_worker_mirrored", AT): {"worker:0": TWO, "worker:1": TWO},
    ("chief_and_workers",): {"chief:0": CHIEF, "worker:0": CHIEF},
    ("parameter_server_mnist",): {
        "chief:0": "parameter_server: replicas 1, chief 1, worker 2, ps 1",
    },
}
"""Templates, with the changes that they describe: the tasks that print each epoch, and what."""


def test_every_template_is_tested_here_and_names_every_strategy() -> None:
    # test_examples.py tests the templates of the examples.
    known = templates()
    assert set(known) == {*(name for name, *_ in TRAINERS), "script", *examples()}
    assert len(known) <= 10
    texts = {name: path.read_text() for name, path in known.items()}
    assert not [name for name, text in texts.items() if "GLIBC_TUNABLES" in text]
    for strategy in STRATEGIES:
        here = rf"^(strategy: |#   ){strategy}\b"
        assert any(re.search(here, text, re.MULTILINE) for text in texts.values()), strategy


def written(distrun: Distrun, name: str) -> Path:
    distrun.checked("init", name)
    return distrun.cwd / f"{name}.yaml"


def lines_of(stdout: str) -> dict[str, list[str]]:
    """The lines of each task, from launch's merged output."""
    lines: dict[str, list[str]] = {}
    for line in stdout.splitlines():
        task, _, text = line.partition("|")
        lines.setdefault(task.strip(), []).append(text.removeprefix(" "))
    return lines


@pytest.mark.parametrize("changed", TRAINERS, ids="-".join)
def test_trains(
    changed: tuple[str, ...], distrun: Distrun, small_mnist: Path, preloaded: PreloadedPython
) -> None:
    name, *changes = changed
    spec = written(distrun, name)
    data = ["--data-dir", str(small_mnist)]
    with ExitStack() as stack:
        ports = [stack.enter_context(held_port()) for _ in range(2)]
        changes += [f"program.python={preloaded.interpreter}"]
        sets = [word for each in changes for word in ("--set", each.format(*ports))]
        done = distrun.checked(
            "launch",
            spec.name,
            *PATIENT,
            *sets,
            "--",
            *data,
            *SHORT,
            *MORE.get(name, []),
            timeout=200,
        )
    lines = lines_of(done.stdout)
    for task, headline in TRAINERS[changed].items():
        assert any(line.startswith(headline) for line in lines[task]), done.stdout
        assert len([line for line in lines[task] if line.startswith("epoch ")]) == 2, done.stdout
    tasks = {task["task"]: task for task in distrun.status()["tasks"]}
    for task in TRAINERS[changed]:
        assert tasks[task]["state"] == "succeeded"
        assert tasks[task]["progress"]["STEP"] == 8
    if name == "chief_and_workers":  # the evaluator follows to the end
        last = lines["evaluator:0"][-1]
        tested = r"test_accuracy [\d.]+  test_loss [\d.]+  data: .*"
        assert re.fullmatch(rf"ckpt-2 \(epoch 2\): {tested}", last)
        # Not the last line: if the worker exits first, TensorFlow may print that.
        (trained,) = (line for line in lines["chief:0"] if line.startswith("epoch 2/2 "))
        assert not_none(re.search(r"test_accuracy [\d.]+", trained))[0] in last
        assert tasks["evaluator:0"]["state"] == "succeeded"
        assert tasks["evaluator:0"]["progress"]["EPOCH"] == 2
    if name == "parameter_server_mnist":
        assert lines["chief:0"][-1] == "8 steps scheduled, optimizer.iterations 8: no update lost"
        served = {tasks[name]["state"] for name in ("worker:0", "worker:1", "ps:0")}
        assert served <= {"stopped", "succeeded"}


def test_your_own_script(distrun: Distrun, preloaded: PreloadedPython) -> None:
    spec = written(distrun, "script")
    (distrun.cwd / "train.py").write_bytes((PLAIN / "replicas.py").read_bytes())
    python = ["--set", f"program.python={preloaded.interpreter}"]
    done = distrun.checked("launch", spec.name, *python, timeout=200)
    for worker in ("worker:0", "worker:1"):
        assert "replicas: the sum over 2 replicas is 3" in lines_of(done.stdout)[worker]
