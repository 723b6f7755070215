"""`distrun resume` with real training: it continues from the checkpoint; no epoch is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Distrun, recorded_events
from harness.preloaded import PreloadedPython

pytestmark = pytest.mark.e2e
PATIENCE = 240.0
MNIST = Path(__file__).resolve().parents[2] / "jobs" / "mnist"
# Trains with the bundled job, and has a bug after the second epoch.
BROKEN = """\
import sys
sys.path.insert(0, {folder!r})
sys.argv += ["--epochs", "2"]
from main import main
code = main(sys.argv[1:])
summarise(code)
"""
LINE = re.compile(r"^epoch (\d+)/\d+.*?accuracy ([\d.]+)", re.MULTILINE)


@pytest.fixture
def launch(preloaded: PreloadedPython, small_mnist: Path, distrun: Distrun) -> Callable[..., int]:
    """Run `train.py` of the test's folder; the exit code."""
    arguments = [
        *("--data-dir", str(small_mnist), "--checkpoint-dir", str(distrun.cwd / "saved")),
        *("--model", "cnn", "--batch-size", "16", "--steps-per-epoch", "8"),
        *("--checkpoint-every", "4"),
    ]
    spec = {
        "name": "train",
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 2},
        "program": {"script": "train.py", "args": arguments, "python": str(preloaded.interpreter)},
    }
    (distrun.cwd / "train.yaml").write_text(json.dumps(spec))

    def run(*options: str) -> int:
        return distrun("launch", *options, distrun.cwd / "train.yaml", timeout=PATIENCE).returncode

    return run


def epochs(distrun: Distrun, task: str = "worker:0") -> dict[int, float]:
    """The accuracy after each epoch, by a task's log; no epoch is told twice."""
    found = LINE.findall(distrun("logs", "train", "-t", task, "--raw").stdout)
    numbers = [int(number) for number, _ in found]
    assert len(numbers) == len(set(numbers)), numbers
    return {int(number): float(accuracy) for number, accuracy in found}


def test_a_job_continues_from_its_checkpoint_after_a_bug(
    launch: Callable[..., int], distrun: Distrun
) -> None:
    script = distrun.cwd / "train.py"
    broken = BROKEN.format(folder=str(MNIST))
    script.write_text(broken)
    assert launch() == 1
    assert list(epochs(distrun)) == [1, 2]
    repaired = broken.replace("summarise(code)", "sys.exit(code)").replace('"2"', '"4"')
    script.write_text(repaired)
    distrun.checked("resume", "train", timeout=PATIENCE)
    for task in ("worker:0", "worker:1"):
        text = distrun("logs", "train", "-t", task, "--raw").stdout
        assert re.search(r"^resumed from .*: epoch 3", text, re.MULTILINE), text
    found = epochs(distrun)
    assert list(found) == [1, 2, 3, 4]
    assert found[4] > found[1]
    # A preempted epoch would be trained again; a finished one is not.
    assert distrun.status()["resumptions"]["repeated_steps"] == 0
    attempts = [e["attempt"] for e in recorded_events(distrun) if e["event"] == "TaskStarted"]
    assert attempts == [0, 0, 1, 1]
