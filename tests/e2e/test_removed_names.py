"""The tables of removed names hold for the TensorFlow and the Keras that are installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from distrun.spec.tensorflow_versions import KERAS_2, KERAS_2_WITHOUT_TENSORFLOW, TENSORFLOW_1
from harness.training import RunPython

Exist = Callable[[list[tuple[str, str]]], list[bool]]
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


@pytest.fixture
def exist(run_python: RunPython, tmp_path: Path) -> Exist:
    """Find which of many names there are, each as a module and a path in it."""

    def ask(names: list[tuple[str, str]]) -> list[bool]:
        found: list[bool] = json.loads(run_python("-c", CODE, json.dumps(names), cwd=tmp_path))
        return found

    return ask


def test_names_of_tensorflow_1_are_only_in_compat_v1(exist: Exist) -> None:
    names = [f"{module}.{name}" for module, each in TENSORFLOW_1.items() for name in each]
    assert len(names) > 500
    found = exist([("tf", name) for name in names] + [("v1", name) for name in names])
    present = [name for name, is_there in zip(names, found, strict=False) if is_there]
    absent = [n for n, is_there in zip(names, found[len(names) :], strict=True) if not is_there]
    assert (present, absent) == ([], [])


def test_names_of_keras_2_are_gone(exist: Exist) -> None:
    names = []
    for key, removed in KERAS_2.items():
        if (
            removed.keywords
            or key.endswith("AUTO")
            or "legacy" in key
            or key.startswith("optimizers.*()")
        ):
            continue
        owner, call, method = key.partition("().")
        names.append((f"{owner}()", method) if call else ("tf.keras", key))
    names += [("keras", key) for key in KERAS_2_WITHOUT_TENSORFLOW]
    assert len(names) > 25
    found = exist(names)
    assert [name for name, is_there in zip(names, found, strict=True) if is_there] == []
