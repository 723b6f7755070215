"""What the libraries print is read as tests/unit/test_printed_progress.py says; their names."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.parts.job import PrintedProgress
from harness.parts.nodes import KERAS_2, KERAS_2_WITHOUT_TENSORFLOW
from harness.parts.verdict import IN_COMPAT_V1
from harness.preloaded import PreloadedPython
from harness.requirements import skip
from harness.training import DEADLINE, RunPython, environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PLAIN = Path(__file__).parent / "plain"


def check(printed: str, kinds: list[str]) -> None:
    """Read what was printed, kind after kind: each ends with a line of what it should show."""
    parts = re.split(r"(\{.*\})\n", printed)
    assert len(parts[1::2]) == len(kinds) >= 4
    for kind, text, expected in zip(kinds, parts[::2], parts[1::2], strict=False):
        progress = PrintedProgress()
        assert progress.read(text) is (expected != "{}"), kind
        for key, value in json.loads(expected).items():
            found = progress.values.get(key, "")
            right = value if isinstance(value, str) else pytest.approx(value, abs=6e-5)
            assert (found if isinstance(value, str) else float(found)) == right, (kind, key)


def test_bars_and_lines_of_keras(preloaded: PreloadedPython, tmp_path: Path) -> None:
    kinds, env = ["2-1", "2-2", "3-1", "3-2"], environment()
    argv, printed = [str(PLAIN / "keras_bars.py"), *kinds], tmp_path / "printed"
    with printed.open("wb") as out:
        fork = preloaded.start(argv, cwd=tmp_path, env=env, stdout=out.fileno(), stderr=2)
    assert fork.wait(DEADLINE) == 0
    check(printed.read_bytes().decode(), kinds)


def test_bars_of_tqdm(tmp_path: Path) -> None:
    if importlib.util.find_spec("tqdm") is None:
        skip("tqdm is not installed", "pip install tqdm")
    script = PLAIN / "tqdm_bars.py"
    kinds = re.findall(r'^    "(\w+)": \(', script.read_text(), re.MULTILINE)
    done = subprocess.run(
        [sys.executable, script, *kinds], env={**os.environ, "TQDM_MININTERVAL": "0.02"},
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True,
    )  # fmt: skip
    check(done.stdout.decode(), kinds)


CODE = """
import functools, json, sys
import keras, tensorflow as tf

def find(start, path):
    try:
        functools.reduce(getattr, [each for each in path.split(".") if each], start)
    except (AttributeError, ImportError):
        return False
    return True

asked = json.loads(sys.argv[1])
modules = {"tf": tf, "v1": tf.compat.v1, "tf.keras": tf.keras, "keras": keras}
model, metric = keras.Sequential([]), keras.metrics.Mean()
modules["Model()"], modules["metrics.*()"] = model, metric
print(json.dumps([find(modules[start], path) for start, path in asked]))
"""


def test_names_are_where_the_tables_say(run_python: RunPython, tmp_path: Path) -> None:
    of_1 = [name.removeprefix("tensorflow.") for name in IN_COMPAT_V1]
    of_keras_2 = [("keras", key) for key in KERAS_2_WITHOUT_TENSORFLOW]
    for key, removed in KERAS_2.items():
        is_told_otherwise = removed.keywords or key.endswith("AUTO") or "legacy" in key
        if not is_told_otherwise and not key.startswith("optimizers.*()"):
            owner, call, method = key.partition("().")
            of_keras_2.append((f"{owner}()", method) if call else ("tf.keras", key))
    gone, kept = [*(("tf", name) for name in of_1), *of_keras_2], [("v1", name) for name in of_1]
    assert len(of_1) > 500
    assert len(of_keras_2) > 25
    found = json.loads(run_python("-c", CODE, json.dumps([*gone, *kept]), cwd=tmp_path))
    wrong = [
        name for name, there in zip([*gone, *kept], found, strict=True) if there != (name in kept)
    ]
    assert wrong == []
