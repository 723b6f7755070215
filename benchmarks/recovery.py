"""Measures how soon training continues after a worker's death, next to a start by hand.

python benchmarks/recovery.py [--data-dir FOLDER] [--repeats 3] [--preload MODULES]

Two workers train MNIST for three epochs. SIGKILL kills worker 1 in the middle of the second epoch.
The benchmark compares the time from there to the end of the next step with the time that a start by
hand needs to its first step, and the final accuracy with that of a run without the kill. It does so
without and with `program.preload`.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "results"))

from runs import FIRST_STEP, Run, by_hand, cluster, with_distrun  # noqa: E402

STEPS, EPOCHS, EVERY = 70, 3, 10
KILLED_AT = STEPS + STEPS // 2
MOST_SECONDS_MORE, MOST_ACCURACY_LESS = 3.0, 0.01
PATIENCE = 300.0


@dataclass(frozen=True)
class Recovery:
    """Seconds from the launch to the first step, and from the kill to the end of the next step.

    `held_mib`: the memory that the processes with imported modules held before the kill, as PSS.
    """

    first_step: float
    seconds: float
    accuracy: float
    held_mib: float


def spec(preload: Sequence[str] = ()) -> dict[str, object]:
    return {
        "name": "recovery",
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 2},
        "program": {"script": "mnist", "keras": 2, "preload": list(preload)},
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


def recovered(folder: Path, args: list[str], preload: Sequence[str]) -> Recovery:
    """Launches it, kills worker 1, and waits for the end."""
    folder.mkdir()
    environ = {**os.environ, "DISTRUN_HOME": str(folder / "home")}
    (folder / "job.yaml").write_text(json.dumps(spec(preload)))
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
    held = _held_memory(pid)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    seconds = None
    for line in launch.stdout:
        run.take(time.monotonic() - began, line.rstrip("\n"))
        if seconds is None and FIRST_STEP.search(line):
            seconds = time.monotonic() - killed
    if launch.wait(PATIENCE) or seconds is None or run.first_step is None:
        raise SystemExit("\n".join(run.lines[-40:]))
    return Recovery(run.first_step, seconds, run.epochs[-1]["test_accuracy"], held)


def _held_memory(task: int) -> float:
    """The memory of the processes with imported modules beside a task, in MiB."""
    siblings = psutil.Process(task).parent().children()
    held = [each for each in siblings if " ".join(each.cmdline()).startswith("distrun: imports")]
    return sum(each.memory_full_info().pss for each in held) / 2**20


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
    parser.add_argument("--preload", type=lambda text: text.split(","), default=["tensorflow"])
    chosen = parser.parse_args()
    found: dict[str, list[Recovery]] = {"without preload": [], "with preload": []}
    by_hands, accuracies = [], []
    for number in range(chosen.repeats):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            main_py = str(ROOT / "jobs" / "mnist" / "main.py")
            hand_args = arguments(chosen.data_dir, folder / "by-hand")
            hand = by_hand("by hand", cluster([sys.executable, main_py, *hand_args], worker=2))
            plain_args = arguments(chosen.data_dir, folder / "plain")
            plain = with_distrun("undisturbed", spec(), folder, *plain_args)
            for kind, modules in zip(found, ((), chosen.preload), strict=True):
                saved = arguments(chosen.data_dir, folder / f"saved {kind}")
                found[kind].append(recovered(folder / kind, saved, modules))
        assert hand.first_step is not None
        by_hands.append(hand.first_step)
        accuracies.append(plain.epochs[-1]["test_accuracy"])
        print(f"{number + 1}: by hand {hand.first_step:.1f} s to the first step", flush=True)
        for kind, each in ((kind, all_of[-1]) for kind, all_of in found.items()):
            print(
                f"   {kind}: {each.first_step:.1f} s; after kill -9 of worker 1 {each.seconds:.1f} "
                f"s to the next; test accuracy {each.accuracy:.4f} ({accuracies[-1]:.4f} "
                f"undisturbed); {each.held_mib:.0f} MiB held for the next attempt",
                flush=True,
            )
    by_hand_median = statistics.median(by_hands)
    later, worse = 0.0, 0.0
    for kind, all_of in found.items():
        seconds = statistics.median(each.seconds for each in all_of)
        first = statistics.median(each.first_step for each in all_of)
        print(
            f"medians {kind}: first step after {first:.1f} s (by hand {by_hand_median:.1f} s), the "
            f"next after a kill {seconds:.1f} s ({seconds - by_hand_median:+.1f} s)"
        )
        later = max(later, seconds - by_hand_median)
        differences = zip(all_of, accuracies, strict=True)
        worse = max(worse, *(abs(each.accuracy - other) for each, other in differences))
    holds = later <= MOST_SECONDS_MORE and worse <= MOST_ACCURACY_LESS
    print(f"accuracy within {worse:.4f}: {'holds' if holds else 'BROKEN'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
