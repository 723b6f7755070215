"""Names of TensorFlow 1, and of Keras 2 in `tf_keras`, that TensorFlow 2 and Keras 3 lack."""

from __future__ import annotations

import re

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


def _rows(name: str) -> list[list[str]]:
    """Return the lines of a file of this folder, each as its first word and the rest."""
    # The loader has it in memory if the package has been replaced since the job began.
    path = f"{__file__.rpartition('/')[0]}/{name}.txt"
    text = __spec__.loader.get_data(path).decode()  # type: ignore[union-attr]
    return [line.split(" ", 1) for line in text.splitlines() if not line.startswith("#")]


def _names(file: str, root: str) -> frozenset[str]:
    rows = ((f"{root}." if module == "-" else f"{root}.{module}.", names.split())
            for module, names in _rows(file))  # fmt: skip
    return frozenset(f"{module}{name}" for module, names in rows for name in names)


IN_COMPAT_V1 = _names("tensorflow_1", "tensorflow")
TENSORFLOW_1 = IN_COMPAT_V1 | {
    f"tensorflow.{name}" for name in ("contrib", "estimator", "examples")
}
"""Names that TensorFlow 2 lacks. What is not in tf.compat.v1 were modules of their own."""
KERAS_2 = _names("keras_2", "tensorflow.keras")
_SUCCESSORS = dict(_rows("successors"))
SUCCESSORS = {name: each for name, each in _SUCCESSORS.items() if "." not in name}
SUCCESSORS_IN_KERAS = {
    name.removeprefix("keras."): each for name, each in _SUCCESSORS.items() if "." in name
}
OLD_MODULES = (
    r"No module named '[\w.]*\bkeras\.(?:wrappers\.scikit_learn|engine|utils\.(?:np|generic)_utils"
    r"|layers\.(?:advanced_activations|convolutional|core|embeddings|merge|noise|normalization"
    r"|pooling|recurrent|wrappers))\b"
)
