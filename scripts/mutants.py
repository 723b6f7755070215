"""Tries whether the tests notice mutants: the core of the launcher with one small change each.

The core is what decides what becomes of a job: its lifecycle, its plan, leases, links and the check
of messages. Cosmic Ray makes the mutants (`<` becomes `<=`, a number grows by one, a loop has no
turn); `N` of them, chosen by `SEED`, are tried, or with `N=all` each. The tests are `TESTS`.

Prints the change of each mutant that no test notices, unless `tests/equivalent_mutants.yaml` has it
and says why it changes nothing. Exits with 1 if fewer than `GOAL` of the others are noticed.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import yaml
from everywhere import ROOT, copy_checkout

COSMIC_RAY = "cosmic-ray>=8.4,<9"
CORE = (
    "launcher/distrun/lifecycle",
    "launcher/distrun/plan",
    "launcher/distrun/agent/link.py",
    "launcher/distrun/supervisor/hosts/link.py",
    "launcher/distrun/supervisor/hosts/orders.py",
)
TESTS = ("tests/world", "tests/unit")
LEFT_OUT = (
    "logs", "test_a*", "test_figures*", "test_fetch*", "test_lint*", "test_log*", "test_p[!l]*",
    "test_redaction*", "test_s[pty]*", "test_suggest*", "test_tfjob*", "test_verdict*",
)  # fmt: skip
"""What of tests/unit tests nothing of the core."""
OPERATORS = (
    "NumberReplacer", "AddNot", "ReplaceUnaryOperator_Delete_Not",
    "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Lt_LtE", "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE", "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_In_NotIn", "ReplaceComparisonOperator_NotIn_In",
    "ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div", "ReplaceBinaryOperator_Div_Mul",
    "ZeroIterationForLoop", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue",
    "ReplaceContinueWithBreak", "ReplaceBreakWithContinue", "ExceptionReplacer",
)  # fmt: skip
"""The others would be noticed by any test, or change types alone."""
GOAL = 0.9
SECONDS = 300.0
"""For the tests of one mutant. One that lasts longer counts as noticed."""
PROGRESS_SECONDS = 60.0
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.yaml"


class Mutant(NamedTuple):
    """What is changed, as a diff, and whether a test noticed it."""

    module: str
    diff: str
    is_noticed: bool

    @property
    def line(self) -> str:
        """The first changed line, as it is then."""
        added = (line[1:].strip() for line in self.diff.splitlines()[3:] if line[:1] == "+")
        return next(added, "")


def _choose(session: Path, number: int | None, seed: int) -> int:
    """Leave as many of a session's mutants; return how many there are."""
    with sqlite3.connect(session) as database:
        names = ", ".join(f"'core/{each}'" for each in OPERATORS)
        query = f"SELECT job_id FROM mutation_specs WHERE operator_name IN ({names}) ORDER BY"
        place = "module_path, start_pos_row, start_pos_col, operator_name, occurrence"
        found = [row[0] for row in database.execute(f"{query} {place}")]
        count = len(found) if number is None else min(number, len(found))
        chosen = random.Random(seed).sample(found, count)
        for table in ("mutation_specs", "work_items"):
            kept = ", ".join(f"'{each}'" for each in chosen)
            database.execute(f"DELETE FROM {table} WHERE job_id NOT IN ({kept})")
    return len(found)


def _part(session: Path, part: int, parts: int) -> None:
    """Leave the share of one of several processes that try the mutants."""
    with sqlite3.connect(session) as database:
        ids = [row[0] for row in database.execute("SELECT job_id FROM work_items ORDER BY job_id")]
        others = ", ".join(f"'{each}'" for at, each in enumerate(ids) if at % parts != part)
        for table in ("mutation_specs", "work_items"):
            database.execute(f"DELETE FROM {table} WHERE job_id IN ({others})")


def _run(program: Path, folder: Path, *words: str, env: dict[str, str] | None = None) -> str:
    command = [str(program), *words]
    done = subprocess.run(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, check=True
    )
    return done.stdout


def _try(cosmic_ray: Path, checkout: Path, part: int, parts: int) -> list[Mutant]:
    session = checkout / "session.sqlite"
    _part(session, part, parts)
    paths = os.pathsep.join(str(checkout / each) for each in ("launcher", "tests"))
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    if not part:
        _run(cosmic_ray, checkout, "baseline", "mutants.toml", env=env)
    _run(cosmic_ray, checkout, "exec", "mutants.toml", session.name, env=env)
    found = []
    for line in _run(cosmic_ray, checkout, "dump", session.name).splitlines():
        item, result = json.loads(line)
        module = item["mutations"][0]["module_path"]
        if result is None or result["worker_outcome"] != "normal":
            raise RuntimeError(f"Cosmic Ray could not try a mutant of {module}: {result}")
        found.append(Mutant(module, result["diff"], result["test_outcome"] != "survived"))
    return found


def _checkout(place: Path) -> Path:
    """Return a copy of this checkout, with Cosmic Ray's settings."""
    left_out = (f"--ignore-glob=*/tests/unit/{each}" for each in LEFT_OUT)
    tests = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    settings = {
        "module-path": [*CORE],
        "timeout": SECONDS,
        "excluded-modules": [],
        "test-command": shlex.join([*tests, *left_out, *TESTS]),
    }
    copy_checkout(place)
    rows = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    text = ["[cosmic-ray]", *rows, "[cosmic-ray.distributor]", 'name = "local"', ""]
    (place / "mutants.toml").write_text("\n".join(text))
    return place


def main() -> int:
    """Try them. Returns the exit code."""
    words = os.environ.get("N") or "40"
    number = None if words == "all" else int(words)
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        venv = Path(folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        _run(venv / "bin" / "pip", ROOT, "install", "--quiet", COSMIC_RAY)
        cosmic_ray = venv / "bin" / "cosmic-ray"
        checkouts = [_checkout(Path(folder, str(at))) for at in range(os.cpu_count() or 1)]
        session = checkouts[0] / "session.sqlite"
        _run(cosmic_ray, checkouts[0], "init", "mutants.toml", session.name)
        many = _choose(session, number, seed)
        print(f"{min(number or many, many)} of {many} mutants, SEED={seed}", flush=True)
        for each in checkouts[1:]:
            shutil.copy(session, each)
        with ThreadPoolExecutor() as pool:
            running = {
                pool.submit(_try, cosmic_ray, each, at, len(checkouts))
                for at, each in enumerate(checkouts)
            }
            while wait(running, PROGRESS_SECONDS).not_done:
                print(f"{sum(map(_count_tried, checkouts))} tried", file=sys.stderr, flush=True)
            mutants = [one for each in running for one in each.result()]
    return _tell(mutants)


def _count_tried(checkout: Path) -> int:
    with sqlite3.connect(checkout / "session.sqlite") as database:
        return int(database.execute("SELECT count(*) FROM work_results").fetchone()[0])


def _tell(mutants: list[Mutant]) -> int:
    known = yaml.safe_load(EQUIVALENT.read_text()) or []
    equivalent = {(each["module"], each["line"]) for each in known}
    survivors = [each for each in mutants if not each.is_noticed]
    others = [each for each in survivors if (each.module, each.line) not in equivalent]
    for each in others:
        print(f"\n{each.module}:\n{each.diff}")
    same = len(survivors) - len(others)
    count = len(mutants) - same
    noticed = count - len(others)
    print(f"{noticed} of {count} noticed, and {same} change nothing (tests/{EQUIVALENT.name})")
    return 0 if noticed >= GOAL * count else 1


if __name__ == "__main__":
    sys.exit(main())
