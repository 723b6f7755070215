"""How soon training continues after a worker's death, next to a start by hand.

Two workers train MNIST for three epochs. SIGKILL kills worker 1 in the middle of the second epoch.
The time from there to the end of the next step is to be compared with the time that a start by hand
needs to its first step, and the final accuracy with that of a run without the kill.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "results"))

from runs import FIRST_STEP, Run, by_hand, cluster, with_distrun  # noqa: E402

STEPS, EPOCHS, EVERY = 70, 3, 10
KILLED_AT = STEPS + STEPS // 2
_MOST_ROUNDS = 3
PATIENCE = 300.0
_NAMES = ("first_step", "seconds", "accuracy")


@dataclass(frozen=True)
class Recovery:
    """Seconds from the launch to the first step, and from the kill to the end of the next step."""

    first_step: float
    seconds: float
    accuracy: float


def spec() -> dict[str, object]:
    return {
        "name": "recovery",
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 2},
        "program": {"script": "mnist", "keras": 2},
        "restart": {"max": 1},
    }


def arguments(data_dir: str | None, saved: Path) -> list[str]:
    where = ["--data-dir", data_dir] if data_dir else []
    # fmt: off
    return [
        *where, "--epochs", str(EPOCHS), "--steps-per-epoch", str(STEPS),
        "--checkpoint-dir", str(saved), "--checkpoint-every", str(EVERY),
    ]
    # fmt: on


def recovered(folder: Path, args: list[str]) -> Recovery:
    """Launches it, kills worker 1, and waits for the end."""
    folder.mkdir()
    environ = {**os.environ, "DISTRUN_HOME": str(folder / "home")}
    (folder / "job.yaml").write_text(json.dumps(spec()))
    argv = [sys.executable, "-m", "distrun"]
    began = time.monotonic()
    launch = subprocess.Popen(
        [*argv, "launch", str(folder / "job.yaml"), "--", *args],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert launch.stdout is not None
    run = Run("recovery")
    for line in launch.stdout:  # until both have done a step
        run.take(time.monotonic() - began, line.rstrip("\n"))
        if sum(bool(FIRST_STEP.search(each)) for each in run.lines) == 2:
            break
    pid = _pid_at(KILLED_AT, argv, environ)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    seconds = None
    for line in launch.stdout:
        run.take(time.monotonic() - began, line.rstrip("\n"))
        if seconds is None and FIRST_STEP.search(line):
            seconds = time.monotonic() - killed
    if launch.wait(PATIENCE) or seconds is None or run.first_step is None:
        raise SystemExit("\n".join(run.lines[-40:]))
    return Recovery(run.first_step, seconds, run.epochs[-1]["test_accuracy"])


def _pid_at(step: int, argv: list[str], environ: dict[str, str]) -> int:
    """Worker 1's process id, after it has reported that step."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done = subprocess.run(
            [*argv, "status", "--json"], env=environ, capture_output=True, check=True, text=True
        )
        tasks = {task["task"]: task for task in json.loads(done.stdout)["job"]["tasks"]}
        if int(tasks["worker:1"]["progress"].get("STEP", 0)) >= step:
            return int(tasks["worker:1"]["pid"])
    raise SystemExit(f"step {step} never came")


def measure(data_dir: str | None, rounds: int) -> dict[str, dict[str, float | None]]:
    """Train by hand, without a kill, and with one; medians."""
    kills: list[Recovery] = []
    hands, plains = [], []
    for number in range(min(rounds, _MOST_ROUNDS)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            main_py = str(ROOT / "jobs" / "mnist" / "main.py")
            args = arguments(data_dir, folder / "by-hand")
            hands.append(by_hand("by hand", cluster([sys.executable, main_py, *args], worker=2)))
            args = arguments(data_dir, folder / "plain")
            plains.append(with_distrun("undisturbed", spec(), folder, *args))
            args = arguments(data_dir, folder / "saved")
            kills.append(recovered(folder / "killed", args))
        last = f"{kills[-1].seconds:.1f} s"
        print(f"recovery, round {number + 1}: {last}", file=sys.stderr, flush=True)
    return {
        "by hand": _figures(hands),
        "undisturbed": _figures(plains),
        "distrun": {
            name: statistics.median(getattr(run, name) for run in kills) for name in _NAMES
        },
    }


def _figures(runs: Sequence[Run]) -> dict[str, float | None]:
    return {
        "first_step": statistics.median(run.first_step or 0.0 for run in runs),
        "seconds": None,
        "accuracy": statistics.median(run.epochs[-1]["test_accuracy"] for run in runs),
    }
