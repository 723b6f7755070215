"""Trains MNIST with every strategy, next to the tutorials' form, and writes docs/results.md.

    make results DATA_DIR=/folder/of/mnist.npz

Both sides run in turn, in rounds; times are medians over the rounds. Takes 25 minutes on two
cores.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import contestants
import plots
import report
import runs

from distrun.agent.linux import facts
from distrun.plan import freed_memory

STEP = Path(__file__).parent / "step.py"
STEP_VARIANTS = (
    "alone", "as it is", "ring", "one-tensor", "split", "loop", "jit", "fused-optimizer",
    "xla-optimizer", "malloc", "bfloat16", "float16", "alone+xla-optimizer",
    "xla-optimizer+malloc", "xla-optimizer+malloc+float16", "xla-optimizer+malloc+float16+loop",
)  # fmt: skip
STEPS = 50


def main() -> int:
    options = _options()
    data = options.data_dir / "mnist.npz"
    if not data.is_file():
        print(f"no mnist.npz in {options.data_dir}: name its folder", file=sys.stderr)
        return 2
    if options.redraw:
        figures = json.loads((options.out / "results" / "figures.json").read_text())
    else:
        figures = measure(data, options.rounds, options.rounds_of_others)
    folder = options.out / "results"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    plots.draw(figures, folder)
    (options.out / "results.md").write_text(report.write(figures))
    print(f"wrote {options.out / 'results.md'}")
    return 0


def measure(data: Path, rounds: int, rounds_of_others: int) -> dict[str, Any]:
    """Runs all trainings in rounds, most often the two workers; returns the output of each."""
    began = time.time()
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for number in range(rounds):
        for strategy in contestants.STRATEGIES:
            if number >= rounds_of_others and strategy.name != "multi_worker_mirrored":
                continue
            sides: dict[str, Callable[[Path, Path], runs.Run]] = {
                "job": strategy.job,
                "tutorial": strategy.tutorial,
            }
            if strategy.is_one_process:
                sides["tutorial, launched"] = strategy.tutorial_with_distrun
            names = list(sides)
            # Who comes first changes from round to round: a machine may be warming up.
            for side in names if number % 2 == 0 else reversed(names):
                run = _in_new_folder(sides[side], data)
                print(f"round {number + 1}: {strategy.name}, {side}: {run.total:.1f} s", flush=True)
                found.setdefault(strategy.name, {}).setdefault(side, []).append(asdict(run))
    return {
        "machine": _machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "rounds": [rounds, rounds_of_others],
        "shape": [contestants.EPOCHS, contestants.STEPS, contestants.BATCH],
        "strategies": {
            name: {side: _summary(each) for side, each in sides.items()}
            for name, sides in found.items()
        },
        "fashion": _fashion(data.parent),
        "steps": _steps(rounds_of_others),
    }


def _fashion(folder: Path) -> dict[str, Any]:
    """Trains on Fashion-MNIST, of the folder or of Debian; else on drawn digits in its format."""
    has_it = {
        folder: "fashion_mnist.npz",
        contestants.DEBIANS_FASHION: "train-images-idx3-ubyte.gz",
    }
    real = next((place for place, name in has_it.items() if (place / name).is_file()), None)
    is_real = real is not None
    with tempfile.TemporaryDirectory(prefix="distrun-results-") as drawn:
        if real is None:
            contestants.draw_fashion(Path(drawn))
        run = _in_new_folder(contestants.fashion, real or Path(drawn))
    print(f"Fashion-MNIST: {run.total:.1f} s", flush=True)
    name = "Fashion-MNIST" if is_real else "drawn digits in its format"
    return {"data": name, "is_real": is_real, "total": run.total, "epochs": run.epochs}


def _in_new_folder(run: Callable[[Path, Path], runs.Run], data: Path) -> runs.Run:
    folder = Path(tempfile.mkdtemp(prefix="distrun-results-"))
    try:
        return run(data, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the times; the epochs of the first round."""
    speeds = [epoch["images/s"] for run in found for epoch in run["epochs"][1:]]
    firsts = [run["first_step"] for run in found if run["first_step"] is not None]
    return {
        "total": statistics.median(run["total"] for run in found),
        "totals": [round(run["total"], 2) for run in found],
        "first_step": statistics.median(firsts) if firsts else None,
        "images_per_second": statistics.median(speeds),
        "epochs": found[0]["epochs"],
    }


def _keeps_memory() -> dict[str, str]:
    return freed_memory.variables(facts.libc(), facts.usable_cores(), ())


def _steps(rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a step: wall time, and CPU time of one of two workers."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for variant in STEP_VARIANTS:
            argv = [sys.executable, str(STEP), variant, str(STEPS)]
            env = _keeps_memory() if "malloc" in variant else {}
            if "alone" in variant:
                processes = [runs.Process(argv, env)] * 2
            else:
                processes = runs.cluster(argv, env, worker=2)
            lines = runs.by_hand(f"step, {variant}", processes).lines
            figures = _matches(r"wall ([\d.]+) cpu ([\d.]+)", lines)
            found.setdefault(variant, []).append(next(iter(figures)))
            print(f"step, {variant}: {found[variant][-1][0]:.0f} ms", flush=True)
    return {
        variant: {
            "wall": statistics.median(wall for wall, _ in each),
            "cpu": statistics.median(cpu for _, cpu in each),
        }
        for variant, each in found.items()
    }


def _matches(pattern: str, lines: Iterable[str]) -> Iterable[tuple[float, float]]:
    for line in lines:
        if match := re.search(pattern, line):
            yield float(match[1]), float(match[2])


def _machine() -> dict[str, Any]:
    from importlib.metadata import version

    import psutil

    return {
        "cores": len(psutil.Process().cpu_affinity()),
        "memory": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "tensorflow": version("tensorflow"),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="the folder of mnist.npz")
    parser.add_argument("--rounds", type=int, default=5, help="of the two workers (default: 5)")
    parser.add_argument("--rounds-of-others", type=int, default=3, help="default: 3")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument(
        "--redraw", action="store_true", help="measure nothing: write the last figures again"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
