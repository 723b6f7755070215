"""`make faults`: runs some sixty cells of the fault matrix; prints a table.

python tests/faults [--seed N] [--jobs 2] [--only TEXT] [--count 60]
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from cells import expected, sampled
from runner import run_cell


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="cells at once")
    parser.add_argument("--only", default="", help="cells with this in their names")
    parser.add_argument("--count", type=int, default=60, help="cells at least")
    chosen = parser.parse_args()
    cells = [each for each in sampled(chosen.seed, chosen.count) if chosen.only in str(each)]
    print(f"seed {chosen.seed}: {len(cells)} cells")
    for cell in cells:
        print(f"       {cell!s:<44}must come to: {expected(cell)}, nothing left")
    began = time.monotonic()
    broken = 0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for result in pool.map(run_cell, cells):
            print(result, flush=True)
            broken += bool(result.violations)
    print(
        f"seed {chosen.seed}: {len(cells) - broken} of {len(cells)} cells hold, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
