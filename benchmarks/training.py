"""How long the tutorial's script trains with two workers: by hand, and with distrun.

The script is not changed, and knows nothing of distrun. By hand, two processes are started with
TF_CONFIG. The shell lines are those of `distrun plan --env`, run by hand as well.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "results"))

from runs import Process, Run, by_hand, cluster  # noqa: E402

SCRIPT = ROOT / "benchmarks" / "results" / "tutorial_form.py"
STEPS = 70
LEAST_ROUNDS = 7
BY_HAND, RUN, LINES = "by hand", "`distrun run`", "shell lines of `distrun plan --env`"
FIGURES = ("seconds to the end", "seconds to the first step", "ms a step")


def measure(data_dir: str | None, rounds: int) -> dict[str, dict[str, list[float]]]:
    """The figures of each way in each round, in turn; who is first changes from round to round."""
    found: dict[str, dict[str, list[float]]] = {way: {} for way in _WAYS}
    with tempfile.TemporaryDirectory() as name:
        data = str(Path(data_dir) / "mnist.npz") if data_dir else _images(Path(name))
        script = [str(SCRIPT), "multi_worker_mirrored", data]
        for number in range(max(rounds, LEAST_ROUNDS)):
            ways = [*_WAYS.items()]
            shift = number % len(ways)
            for way, start in (*ways[shift:], *ways[:shift]):
                with tempfile.TemporaryDirectory() as folder:
                    run = start(script, Path(folder))
                step = statistics.median(each["seconds"] for each in run.epochs[1:]) / STEPS * 1000
                figures = (run.total, run.first_step or 0.0, step)
                for figure, value in zip(FIGURES, figures, strict=True):
                    found[way].setdefault(figure, []).append(value)
            last = {way: f"{each[FIGURES[0]][-1]:.1f} s" for way, each in found.items()}
            load = os.getloadavg()[0]
            print(f"training, round {number + 1}, load {load:.1f}: {last}", file=sys.stderr)
    return found


def _images(folder: Path) -> str:
    """Images of the size of MNIST: how long a step takes does not depend on what they show."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (60000, 28, 28), np.uint8)
    np.savez(folder / "mnist.npz", x_train=images, y_train=random.integers(0, 10, 60000))
    return str(folder / "mnist.npz")


def _by_hand(script: list[str], folder: Path) -> Run:  # noqa: ARG001 - it needs none
    return by_hand(BY_HAND, cluster([sys.executable, *script], worker=2))


def _run(script: list[str], folder: Path) -> Run:
    argv = [*_DISTRUN, "run", "-n", "2", *script]
    return by_hand(RUN, [Process(argv, {"DISTRUN_HOME": str(folder / "home")})])


def _shell_lines(script: list[str], folder: Path) -> Run:
    spec = folder / "job.yaml"
    program = {"script": script[0], "args": script[1:]}
    job = {"strategy": "multi_worker_mirrored", "cluster": {"worker": 2}, "program": program}
    spec.write_text(json.dumps(job))  # JSON is YAML
    planned = subprocess.run(
        [*_DISTRUN, "plan", str(spec), "--env", "worker:0", "--env", "worker:1"],
        env={**os.environ, "DISTRUN_HOME": str(folder / "home")},
        capture_output=True,
        check=True,
        text=True,
    )
    _, *parts = re.split(r"^(?=# worker:\d+ of )", planned.stdout, flags=re.MULTILINE)
    return by_hand(LINES, [Process(["sh", "-c", part]) for part in parts])


_DISTRUN = [sys.executable, "-m", "distrun"]
_WAYS: dict[str, Callable[[list[str], Path], Run]] = {
    BY_HAND: _by_hand,
    RUN: _run,
    LINES: _shell_lines,
}
