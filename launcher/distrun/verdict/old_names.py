"""Names of TensorFlow 1, and of Keras 2 in `tf_keras`, that TensorFlow 2 and Keras 3 lack."""

from __future__ import annotations

import re

from distrun.tables import read_rows

_MISSING = (
    re.compile(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'"),
    re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'"),
    re.compile(r"No module named '(?P<module>[\w.]+)\.(?P<name>\w+)'"),
)
_VERSION = re.compile(r"\.(?:_api|compat)\.v\d\b")
_KERAS = re.compile(r"^(?:keras|tensorflow)\.(?:.*\.)?_tf_keras\.keras\b|^keras\b")
"""The module that `tf.keras` is, in several versions."""


def missing_name(line: str) -> str:
    """Return the dotted name that an error says a module lacks; empty if it says none."""
    match = next(filter(None, (pattern.search(line) for pattern in _MISSING)), None)
    if match is None:
        return ""
    module = _KERAS.sub("tensorflow.keras", _VERSION.sub("", match["module"]))
    return f"{module}.{match['name']}"


def _names(file: str, root: str) -> frozenset[str]:
    rows = (row.split() for row in read_rows(__spec__, f"{file}.txt"))
    prefixed = ((root if each == "-" else f"{root}.{each}", names) for each, *names in rows)
    return frozenset(f"{module}.{name}" for module, names in prefixed for name in names)


IN_COMPAT_V1 = _names("tensorflow_1", "tensorflow")
TENSORFLOW_1 = IN_COMPAT_V1 | {
    f"tensorflow.{name}" for name in ("contrib", "estimator", "examples")
}
"""Names that TensorFlow 2 lacks. What is not in tf.compat.v1 were modules of their own."""
KERAS_2 = _names("keras_2", "tensorflow.keras")
_SUCCESSORS = dict(row.split(" ", 1) for row in read_rows(__spec__, "successors.txt"))
SUCCESSORS = {name: each for name, each in _SUCCESSORS.items() if "." not in name}
SUCCESSORS_IN_KERAS = {
    name.removeprefix("keras."): each for name, each in _SUCCESSORS.items() if "." in name
}
OLD_MODULES = (
    r"No module named '[\w.]*\bkeras\.(?:wrappers\.scikit_learn|engine|utils\.(?:np|generic)_utils"
    r"|preprocessing\.text|backend\.tensorflow_backend"
    r"|layers\.(?:advanced_activations|convolutional|core|embeddings|merge|noise|normalization"
    r"|pooling|recurrent|wrappers))\b"
)
