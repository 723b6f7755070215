"""Two checkouts of distrun side by side: starting, stopping, output and idling.

    python benchmarks/checkouts.py OLD NEW --rounds 5

OLD and NEW are checkouts, for example made with `git worktree add OLD REVISION`. Both run with
the interpreter that runs this script, in turn, in rounds. Machines differ, so the ratio counts.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
from pathlib import Path

import launchers
import measures


def main() -> int:
    options = _options()
    names = ("old", "new")
    both = [_distrun(name, getattr(options, name)) for name in names]
    rows = [row for row in measures.ROWS if re.search(options.only, row.name)]
    print(f"{os.cpu_count()} cores, medians of {options.rounds} rounds:\n")
    print("| | old | new | new / old |\n| --- | --- | --- | --- |")
    for row in rows:
        found: dict[str, list[measures.Figures | None]] = {name: [] for name in names}
        for number in range(options.rounds + 1):
            for launcher in both if number % 2 else reversed(both):
                figures = measures.measured(row, launcher)
                if number:  # the first round warms caches up
                    found[launcher.name].append(figures)
        old, new = (row.cell(measures.medians(found[name])) for name in names)
        print(f"| {row.name} | {old} | {new} | {_ratio(*found.values())} |", flush=True)
    return 0


def _distrun(name: str, checkout: Path) -> launchers.Launcher:
    # The working folder is a run's own, and the launcher's modules are those of the checkout.
    variables = {"PYTHONPATH": str(checkout.resolve() / "launcher")}
    return launchers.distrun(name, [sys.executable, "-m", "distrun"], variables)


def _ratio(old: list[measures.Figures | None], new: list[measures.Figures | None]) -> str:
    """The median of the rounds' ratios of the first figure."""
    found = [b[0] / a[0] for a, b in zip(old, new, strict=True) if a and b and a[0] and b[0]]
    return f"{statistics.median(found):.2f}" if found else ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, metavar="NEW")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--only", default="", metavar="RE", help="only measures whose name fits")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
