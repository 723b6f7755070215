"""Real training continues after a death: a group from its checkpoint, or one worker alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

pytestmark = pytest.mark.e2e
PATIENCE = 240.0
CHECKPOINT_EVERY = 10


@pytest.fixture
def train(distrun: Distrun, small_mnist: Path) -> Callable[..., Any]:
    """Start training in the background with one restart; `steps` in its only epoch."""

    def start(strategy: str, cluster: str, steps: int) -> subprocess.Popen[bytes]:
        (distrun.cwd / "job.yaml").write_text(
            f"strategy: {strategy}\ncluster: {cluster}\n"
            "program: {script: mnist}\nrestart: {max: 1, backoff: 100ms}\n"
        )
        # fmt: off
        arguments = [
            "--data-dir", str(small_mnist), "--checkpoint-dir", "saved", "--epochs", "1",
            "--steps-per-epoch", str(steps), "--checkpoint-every", str(CHECKPOINT_EVERY),
        ]
        # fmt: on
        return distrun.start(
            "launch",
            "job.yaml",
            "--",
            *arguments,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    return start


@pytest.fixture
def tasks(distrun: Distrun) -> Callable[[], dict[str, dict[str, Any]]]:
    """Get each task from `status --json`, by name; empty while there is no job."""

    def ask() -> dict[str, dict[str, Any]]:
        done = distrun("status", "--json")
        states = json.loads(done.stdout)["job"]["tasks"] if done.returncode == 0 else []
        return {task["task"]: task for task in states}

    return ask


@pytest.fixture
def kill_at(tasks: Callable[[], dict[str, dict[str, Any]]]) -> Callable[..., int]:
    """SIGKILL one task after another has reported a step; returns the last reported step."""

    def kill(victim: str, reporter: str, step: int) -> int:
        def reached() -> int:
            told = tasks().get(reporter, {"progress": {}})["progress"]
            return int(told.get("STEP", 0)) >= step and int(told["STEP"])

        came_to = wait_until(reached, PATIENCE, f"{reporter} has come to step {step}")
        os.kill(tasks()[victim]["pid"], signal.SIGKILL)
        return came_to

    return kill


def test_two_workers_go_on_together_from_the_last_checkpoint(
    distrun: Distrun,
    train: Callable[..., Any],
    tasks: Callable[[], dict[str, dict[str, Any]]],
    kill_at: Callable[..., int],
) -> None:
    launch = train("multi_worker_mirrored", "{worker: 2}", steps=400)
    came_to = kill_at("worker:1", "worker:1", step=15)
    assert launch.wait(PATIENCE) == 0, distrun("logs").stdout[-4000:]
    assert {name: task["attempt"] for name, task in tasks().items()} == {
        "worker:0": 1,
        "worker:1": 1,
    }
    for name in ("worker:0", "worker:1"):
        log = distrun("logs", "-t", name, "--raw").stdout
        before, marker, after = log.partition("--- attempt 1, ")
        assert marker, log
        assert "restarted after worker:1 was killed by SIGKILL ---\n" in after
        assert "epoch 1/1" not in before
        resumed = re.search(r"resumed from ckpt-\d+ in saved: epoch 1, after step (\d+)", after)
        assert resumed, log
        # A step is told of before it is saved.
        assert int(resumed[1]) > came_to - 1 - CHECKPOINT_EVERY
        assert "epoch 1/1  step 400 " in after


def test_a_parameter_servers_worker_comes_back_alone_while_the_chief_trains_on(
    distrun: Distrun,
    train: Callable[..., Any],
    tasks: Callable[[], dict[str, dict[str, Any]]],
    kill_at: Callable[..., int],
) -> None:
    launch = train("parameter_server", "{chief: 1, worker: 2, ps: 1}", steps=700)
    kill_at("worker:1", "chief:0", step=20)
    assert launch.wait(PATIENCE) == 0, distrun("logs").stdout[-4000:]
    attempts = {name: task["attempt"] for name, task in tasks().items()}
    assert attempts == {"chief:0": 0, "worker:0": 0, "worker:1": 1, "ps:0": 0}
    log = distrun("logs", "-t", "worker:1", "--raw").stdout
    addresses = re.findall(r"worker:1 serves at (\S+)", log)
    assert len(addresses) == 2, log
    assert addresses[0] == addresses[1]
    # A step whose worker died is given to another: done at least once, and none is lost.
    last = distrun("logs", "-t", "chief", "--raw").stdout
    told = re.search(r"700 steps scheduled, optimizer.iterations (\d+): no update lost", last)
    assert told, last
    assert int(told[1]) >= 700
