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
TQDM = re.findall(r'^    "(\w+)": \(', PLAIN.joinpath("tqdm_bars.py").read_text(), re.MULTILINE)
KINDS = {
    "keras_bars.py": [f"{version}-{verbose}" for version in (2, 3) for verbose in (1, 2)],
    "tqdm_bars.py": [kind for kind in TQDM if kind not in ("scaled", "off")],
}
"""Of each program. Each task of a job draws one kind, and says at its end what it should show."""


@pytest.mark.parametrize("script", KINDS)
def test_the_progress_that_bars_print_is_read(
    script: str, distrun: Distrun, preloaded: PreloadedPython
) -> None:
    is_keras = script == "keras_bars.py"
    if not is_keras and importlib.util.find_spec("tqdm") is None:
        skip("tqdm is not installed", "pip install tqdm")
    kinds = KINDS[script]
    # The tasks listen nowhere, however long they take: that would be a warning.
    program = {
        "script": str(PLAIN / script),
        "python": preloaded.interpreter if is_keras else sys.executable,
        "args": kinds,
        "tf_config": "mine",
    }
    spec = distrun.write_spec("", len(kinds), program=program)
    done = distrun("launch", spec, timeout=280)  # four processes import and train at once
    assert done.returncode == 0, done.stdout + done.stderr
    tasks = distrun.status()["tasks"]
    assert len(tasks) == len(kinds) >= 4
    for task, kind in zip(tasks, kinds, strict=True):
        lines = [
            text
            for name, _, text in (line.partition(" | ") for line in done.stdout.splitlines())
            if name.strip() == task["task"]
        ]
        for key, value in json.loads(lines.pop()).items():
            found = task["progress"].get(key)
            right = value if isinstance(value, str) else pytest.approx(value, abs=6e-5)
            assert found == right, (kind, key)
        shown = [line for line in lines if "%|" in line or re.match(r" *\d+/\d+ (\[|━)", line)]
        finished = ["100%" in line or re.match(r" *(\d+)/\1 ", line) for line in shown]
        assert all(finished), (kind, shown)
