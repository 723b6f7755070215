"""Real training under `distrun launch` and `resume`: Ctrl-C, preemption, resuming.

These tests need TensorFlow, because it swallows SIGTERM, starts threads and holds ports. The tasks
are forks of a process that has imported it. `make smoke` and `make faults` use the real
interpreter.
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cells import MWM, PS, Cell
from harness.command import Distrun, recorded_events
from harness.preloaded import PreloadedPython
from harness.training import MAIN
from harness.waiting import wait_until
from runner import run_cell

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
PATIENCE = 240.0
SCRIPT = """\
import sys
sys.path.insert(0, {folder!r})
from main import main
sys.exit(main([*sys.argv[1:], "--epochs", "{epochs}"]))
"""


class Launches:
    """Launches of one training of two workers, one after another."""

    def __init__(self, distrun: Distrun, python: PreloadedPython, data: Path) -> None:
        self.distrun, self.saved = distrun, distrun.cwd / "saved"
        distrun.write_spec(
            "",
            name="train",
            timeouts={"grace": "100s"},  # a save may take long on a busy machine
            program={
                "script": "train.py",
                "python": python.interpreter,
                "args": [
                    *("--data-dir", str(data), "--checkpoint-dir", str(self.saved)),
                    *("--model", "cnn", "--batch-size", "16"),
                    *("--steps-per-epoch", "4", "--checkpoint-every", "2"),
                ],
            },
        )

    def write(self, epochs: int) -> None:
        script = SCRIPT.format(folder=str(MAIN.parent), epochs=epochs)
        (self.distrun.cwd / "train.py").write_text(script)

    def start(self, *more: str) -> subprocess.Popen[str]:
        with open(self.distrun.cwd / "said", "wb") as said:
            return self.distrun.start("launch", "train.yaml", *more, stdout=said, stderr=said)

    def said(self, pattern: str) -> list[Any]:
        """Find the lines of launch's output that match a pattern: the match, or its groups."""
        text = (self.distrun.cwd / "said").read_text(errors="replace")
        return re.findall(f"^{pattern}", text, re.MULTILINE)

    def train_an_epoch(self) -> None:
        """Wait until this launch has ended an epoch on both workers."""

        def is_trained() -> bool:
            epochs = self.said(r"worker:\d \| epoch (\d+)/")
            return any(epochs.count(epoch) == 2 for epoch in epochs)

        wait_until(is_trained, PATIENCE, "both trained an epoch")

    def preempted_at(self) -> list[str]:
        """Where both workers have saved: the same step."""
        saved = self.said(r"worker:\d \| preempted at (epoch \d+, after step \d+): saved")
        assert len(saved) == 2
        assert saved[0] == saved[1]
        return saved


def test_launches_resume(distrun: Distrun, preloaded: PreloadedPython, small_mnist: Path) -> None:
    """One training in three parts: each continues what another one ended."""
    launches = Launches(distrun, preloaded, small_mnist)
    # It saves at every step, so the signal probably comes in the middle of a save.
    launches.write(10000)
    launch = launches.start("--", "--checkpoint-every", "1")
    launches.train_an_epoch()
    pids = {task["task"]: task["pid"] for task in distrun.status()["tasks"]}
    os.kill(pids["worker:1"], signal.SIGTERM)
    assert launch.wait(PATIENCE) == 42
    saved = launches.preempted_at()
    assert len(launches.said(r"job \S+ failed: worker:\d on .*\n  cause .* exited 42")) == 1
    # Without brackets if it ended before distrun stopped it.
    assert len(launches.said(r"  also stopped  worker:\d \(?exited 42")) == 1
    # Leave files as a worker does that is killed while it saves.
    for left in ("workertemp_worker_1", "ckpt-7_temp"):
        (launches.saved / left).mkdir(exist_ok=True)
        (launches.saved / left / "part.tempstate").touch()

    launch = launches.start("--set", "name=second")
    launches.train_an_epoch()
    assert launches.said(r"worker:\d \| resumed from .*: (epoch .*)") == saved
    launch.send_signal(signal.SIGINT)
    assert launch.wait(PATIENCE) == 130
    saved = launches.preempted_at()
    assert [path.name for path in launches.saved.iterdir() if "temp" in path.name] == []

    epoch = int(saved[0].split()[1].rstrip(","))
    launches.write(epoch + 1)
    distrun.checked("resume", "second", timeout=PATIENCE)
    results = set()
    for task in ("worker:0", "worker:1"):
        log = distrun.asked("logs", "second", "-t", task, "--raw")
        assert re.findall(r"^resumed from .*: (epoch .*)", log, re.MULTILINE)[1] == saved[0]
        trained = [int(each) for each in re.findall(r"^epoch (\d+)/", log, re.MULTILINE)]
        assert trained == [*range(trained[0], epoch + 2)], (
            "no epoch is missing, and none is told twice"
        )
        results.update(re.findall(rf"^(epoch {epoch}/.* loss [\d.]+)", log, re.MULTILINE))
    assert len(results) == 1
    # A preempted epoch goes on where it was saved.
    assert distrun.status()["resumptions"]["repeated_steps"] == 0
    attempts = [e["attempt"] for e in recorded_events(distrun) if e["event"] == "TaskStarted"]
    assert attempts == [0, 0, 1, 1]


CELLS = [
    Cell("SIGKILL", "worker:0", "saving", MWM), Cell("SIGSTOP", "worker:1", "mid_epoch", MWM),
    Cell("exception", "worker:0", "mid_epoch", PS),
]  # fmt: skip


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_what_must_hold_holds(
    cell: Cell, preloaded: PreloadedPython, record_property: Callable[[str, object], None]
) -> None:
    result = run_cell(cell, preloaded.interpreter)
    record_property("table", str(result))
    assert not result.violations, str(result)
