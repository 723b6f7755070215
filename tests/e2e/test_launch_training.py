"""Real training under `distrun launch`: deaths, preemption, resuming.

These tests need TensorFlow, because it swallows SIGTERM, starts threads and holds ports. The tasks
are forks of a process that has imported it. `make smoke` and `make faults` use the real
interpreter.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.waiting import wait_until

pytestmark = pytest.mark.e2e
PATIENCE = 240.0


@pytest.fixture
def train(preloaded: PreloadedPython, small_mnist: Path, distrun: Distrun) -> Callable[..., Any]:
    """Start training in the background, with more arguments for the job."""
    spec = distrun.cwd / "mnist.yaml"
    spec.write_text(
        "strategy: multi_worker_mirrored\ncluster: {worker: 2}\nprogram: {script: mnist}\n"
    )
    # fmt: off
    arguments = [
        "--data-dir", str(small_mnist), "--checkpoint-dir", str(distrun.cwd / "saved"),
        "--model", "cnn", "--batch-size", "16", "--steps-per-epoch", "8", "--checkpoint-every", "4",
    ]
    # fmt: on

    def start(*more: str) -> subprocess.Popen[str]:
        command = ["launch", str(spec), "--set", f"program.python={preloaded.interpreter}", "--"]
        with open(distrun.cwd / "said", "wb") as said:
            return distrun.start(*command, *arguments, *more, stdout=said, stderr=said)

    return start


@pytest.fixture
def said(distrun: Distrun) -> Callable[[str], list[Any]]:
    """Find the lines of launch's output that match a pattern: the match, or its groups."""

    def find(pattern: str) -> list[Any]:
        text = (distrun.cwd / "said").read_text(errors="replace")
        return re.findall(f"^{pattern}", text, re.MULTILINE)

    return find


def leftovers(saved: Path) -> list[str]:
    """Temporary folders in which workers save."""
    return [path.name for path in saved.iterdir() if "temp" in path.name]


def test_each_launch_resumes_after_a_death_a_preemption_and_ctrl_c(
    train: Callable[..., Any], said: Callable[[str], list[Any]], distrun: Distrun
) -> None:
    """One training in four launches: each continues what another one ended."""
    # It saves at every step, so the signal probably comes in the middle of a save.
    launch = train("--epochs", "10000", "--checkpoint-every", "1")
    wait_until(lambda: trained_by_both(said), PATIENCE, "both trained an epoch")
    launch.kill()
    wait_until(lambda: not distrun.status()["running"], what="the job has ended")
    # Leave files as a worker does that is killed while it saves.
    for left in ("workertemp_worker_1", "ckpt-7_temp"):
        (distrun.cwd / "saved" / left).mkdir(exist_ok=True)
        (distrun.cwd / "saved" / left / "part.tempstate").touch()

    launch = train("--epochs", "10000")
    wait_until(lambda: trained_by_both(said), PATIENCE, "both trained an epoch")
    resumed = said(r"worker:\d \| resumed from .*: epoch (\d+), after step (\d+)")
    assert len(resumed) == 2
    assert resumed[0] == resumed[1]
    assert int(resumed[0][0]) >= 2 or int(resumed[0][1]) > 0
    pids = {task["task"]: task["pid"] for task in distrun.status()["tasks"]}
    os.kill(pids["worker:1"], signal.SIGTERM)
    assert launch.wait(PATIENCE) == 42
    saved = said(r"worker:\d \| preempted at (epoch \d+, after step \d+): saved")
    assert len(saved) == 2
    assert saved[0] == saved[1]
    assert leftovers(distrun.cwd / "saved") == []
    assert len(said(r"job \S+ failed: worker:\d on .*\n  cause .* exited 42")) == 1
    # Without brackets if it ended before distrun stopped it.
    assert len(said(r"  also stopped  worker:\d \(?exited 42")) == 1

    launch = train("--epochs", "10000")
    wait_until(lambda: trained_by_both(said), PATIENCE, "both trained an epoch")
    assert said(r"worker:\d \| resumed from .*: (epoch .*)") == saved
    launch.send_signal(signal.SIGINT)
    assert launch.wait(PATIENCE) == 130
    saved = said(r"worker:\d \| preempted at (epoch \d+, after step \d+): saved")
    assert len(saved) == 2

    epoch = re.match(r"epoch (\d+)", saved[0])
    assert epoch
    assert train("--epochs", epoch[1]).wait(PATIENCE) == 0
    assert said(r"worker:\d \| resumed from .*: (epoch .*)") == saved
    results = said(rf"worker:\d \| (epoch {epoch[1]}/.* loss [\d.]+)")
    assert len(results) == 2
    assert results[0] == results[1]
    assert leftovers(distrun.cwd / "saved") == []


def trained_by_both(said: Callable[[str], list[Any]]) -> bool:
    """Whether this launch has ended an epoch on both workers."""
    epochs = said(r"worker:\d \| epoch (\d+)/")
    return any(epochs.count(epoch) == 2 for epoch in epochs)
