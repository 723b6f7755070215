"""Measures how soon training continues after a worker's death, next to a start by hand.

python benchmarks/recovery.py [--data-dir FOLDER] [--repeats 3]

Two workers train MNIST for three epochs. SIGKILL kills worker 1 in the middle of the second epoch.
The benchmark compares the time from there to the end of the next step with the time that a start by
hand needs to its first step, and the final accuracy with that of a run without the kill.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "results"))

from runs import FIRST_STEP, Run, by_hand, cluster, with_distrun  # noqa: E402

STEPS, EPOCHS, EVERY = 70, 3, 10
KILLED_AT = STEPS + STEPS // 2
MOST_SECONDS_MORE, MOST_ACCURACY_LESS = 3.0, 0.01
PATIENCE = 300.0


@dataclass(frozen=True)
class Recovery:
    """`seconds`: from the kill to the end of the next step."""

    seconds: float
    accuracy: float


def spec() -> dict[str, object]:
    return {
        "name": "recovery",
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 2},
        "program": {"script": "mnist"},
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
    environ = {**os.environ, "DISTRUN_HOME": str(folder / "home")}
    (folder / "job.yaml").write_text(json.dumps(spec()))
    argv = [sys.executable, "-m", "distrun"]
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
        run.take(0.0, line.rstrip("\n"))
        if sum(bool(FIRST_STEP.search(each)) for each in run.lines) == 2:
            break
    pid = _pid_at(KILLED_AT, argv, environ)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    seconds = None
    for line in launch.stdout:
        run.take(time.monotonic() - killed, line.rstrip("\n"))
        if seconds is None and FIRST_STEP.search(line):
            seconds = time.monotonic() - killed
    if launch.wait(PATIENCE) or seconds is None:
        raise SystemExit("\n".join(run.lines[-40:]))
    return Recovery(seconds, run.epochs[-1]["test_accuracy"])


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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    more, less = [], []
    for number in range(chosen.repeats):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            main_py = str(ROOT / "jobs" / "mnist" / "main.py")
            hand_args = arguments(chosen.data_dir, folder / "by-hand")
            hand = by_hand("by hand", cluster([sys.executable, main_py, *hand_args], worker=2))
            plain_args = arguments(chosen.data_dir, folder / "plain")
            plain = with_distrun("undisturbed", spec(), folder, *plain_args)
            disturbed = recovered(folder, arguments(chosen.data_dir, folder / "saved"))
        accuracy = plain.epochs[-1]["test_accuracy"]
        assert hand.first_step is not None
        more.append(disturbed.seconds - hand.first_step)
        less.append(accuracy - disturbed.accuracy)
        print(
            f"{number + 1}: by hand {hand.first_step:.1f} s to the first step; after kill -9 of "
            f"worker 1 {disturbed.seconds:.1f} s to the next ({more[-1]:+.1f} s); test accuracy "
            f"{accuracy:.4f} undisturbed, {disturbed.accuracy:.4f} ({-less[-1]:+.4f})",
            flush=True,
        )
    later, worse = statistics.median(more), max(map(abs, less))
    holds = later <= MOST_SECONDS_MORE and worse <= MOST_ACCURACY_LESS
    print(f"median {later:+.1f} s, accuracy within {worse:.4f}: {'holds' if holds else 'BROKEN'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
