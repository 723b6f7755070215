"""What Keras and tqdm print today is read as tests/unit/test_printed_progress.py says."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.requirements import skip

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PLAIN = Path(__file__).parent / "plain"
KERAS = [(version, verbose) for version in ("2", "3") for verbose in ("1", "2")]
KINDS = re.findall(r'^    "(\w+)": \(', PLAIN.joinpath("tqdm_bars.py").read_text(), re.MULTILINE)


def check(distrun: Distrun, python: str, script: str, *arguments: str, tasks: int = 1) -> None:
    """Launch a script each task of which says at its end what its bars should show."""
    strategy = "default" if tasks == 1 else "multi_worker_mirrored"
    (distrun.cwd / "job.yaml").write_text(
        f"strategy: {strategy}\ncluster: {{worker: {tasks}}}\n"
        f"program: {{script: {PLAIN / script}, python: {python}, args: {json.dumps(arguments)}}}\n"
    )
    done = distrun("launch", "job.yaml", timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    states = json.loads(distrun("status", "--json").stdout)["job"]["tasks"]
    assert len(states) == tasks
    for task in states:
        lines = [
            text
            for name, _, text in (line.partition(" | ") for line in done.stdout.splitlines())
            if name.strip() == task["task"]
        ]
        rank = int(task["task"].partition(":")[2])
        what = arguments if tasks == 1 else arguments[rank]
        for key, value in json.loads(lines.pop()).items():
            found = task["progress"].get(key)
            right = value if isinstance(value, str) else pytest.approx(value, abs=6e-5)
            assert found == right, (what, key)
        shown = [line for line in lines if "%|" in line or re.match(r" *\d+/\d+ (\[|━)", line)]
        finished = ["100%" in line or re.match(r" *(\d+)/\1 ", line) for line in shown]
        assert all(finished), (what, shown)


@pytest.mark.parametrize(("version", "verbose"), KERAS)
def test_keras(distrun: Distrun, preloaded: PreloadedPython, version: str, verbose: str) -> None:
    check(distrun, preloaded.interpreter, "keras_bars.py", version, verbose)


def test_tqdm(distrun: Distrun) -> None:
    if importlib.util.find_spec("tqdm") is None:
        skip("tqdm is not installed", "pip install tqdm")
    kinds = [kind for kind in KINDS if kind not in ("scaled", "off")]
    assert len(kinds) > 20
    check(distrun, sys.executable, "tqdm_bars.py", *kinds, tasks=len(kinds))
