"""Runs the tests of what has changed again and again, on a busy machine: `make flaky N=20`.

What has changed is what differs from main's merge base, with what is not committed: test files, and
the tests whose names begin like those of changed modules. A process for each core computes all the
time, so that a test which waits for less than it may fails. Each run prints its seed: `SEED=n`
repeats it. Exits with 1 if a run is red.

Arguments: files or node ids to run in place of what has changed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("launcher/distrun/", "jobs/")
BUSY = "while True: pass"


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def _changed_tests() -> list[str]:
    """The test files that have changed, and those of changed modules."""
    bases = (_git("merge-base", "HEAD", name) for name in ("origin/main", "main", "HEAD~1"))
    base = next((found[0] for found in bases if found), "HEAD")
    changed = [*_git("diff", "--name-only", base), *_git("ls-files", "-o", "--exclude-standard")]
    stems = {Path(each).stem for each in changed if each.startswith(MODULES)}
    tests = {each for each in changed if Path(each).name.startswith("test_")}
    tests |= {
        each
        for each in _git("ls-files", "tests/unit", "tests/process")
        if any(Path(each).stem in (f"test_{stem}", f"test_{stem}s") for stem in stems)
    }
    return sorted(each for each in tests if each.endswith(".py") and (ROOT / each).exists())


def main() -> int:
    """Run them. Returns the exit code."""
    tests = sys.argv[1:] or _changed_tests()
    if not tests:
        print("no test has changed")
        return 0
    print("\n".join(tests), flush=True)
    runs, red = int(os.environ.get("N") or 20), 0
    first = int(os.environ.get("SEED") or random.randrange(1 << 32))
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        for number in range(runs):
            seed = first + number
            with tempfile.TemporaryDirectory(prefix="flaky-") as folder:
                command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *tests]
                command += [f"--basetemp={folder}/t", f"--hypothesis-seed={seed}"]
                done = subprocess.run(
                    command, cwd=ROOT, env={**os.environ, "SEED": str(seed)}, capture_output=True,
                    text=True, check=False,
                )  # fmt: skip
            is_red = done.returncode not in (0, 5)  # 5: no test was selected
            red += is_red
            last = (done.stdout.strip().splitlines() or [done.stderr])[-1]
            shown = done.stdout[-8000:] + done.stderr[-1000:] if is_red else last
            print(f"run {number + 1} of {runs}, SEED={seed}: {shown}", flush=True)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    print(f"{red} of {runs} runs were red")
    return bool(red)


if __name__ == "__main__":
    sys.exit(main())
