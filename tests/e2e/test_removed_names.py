"""The tables of removed names hold for the TensorFlow and the Keras that are installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrun.spec.tensorflow_versions import KERAS_2, KERAS_2_WITHOUT_TENSORFLOW, TENSORFLOW_1
from harness.training import RunPython

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

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
    of_1 = [f"{module}.{name}" for module, each in TENSORFLOW_1.items() for name in each]
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
