"""Which Keras `tf.keras` is, and what pip calls packages."""

from __future__ import annotations

import re

LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
VARIABLES: dict[int | None, dict[str, str]] = {
    None: {}, 2: {LEGACY_KERAS: "1"}, 3: {LEGACY_KERAS: "0"}
}  # fmt: skip
"""By `program.keras`: the variables that select it. With 0, TensorFlow 2.21 takes Keras 3."""
PIP_NAMES = {"keras", "matplotlib", "numpy", "pandas", "tensorflow", "tf_keras"}
"""Modules that pip installs by the same name."""


def is_keras_2(value: str | None) -> bool:
    """Whether TF_USE_LEGACY_KERAS with this value selects Keras 2.

    Source: `KerasLazyLoader` in tensorflow/python/util/lazy_loader.py of TensorFlow 2.21.
    """
    return value in ("1", "true", "True")


def needs_tf_keras(tensorflow: str) -> bool:
    """Whether Keras 2 is a package of its own for this version of TensorFlow, or any if empty.

    TensorFlow reads TF_USE_LEGACY_KERAS since 2.15.
    """
    version = re.match(r"(\d+)\.(\d+)", tensorflow)
    return version is None or tuple(map(int, version.groups())) >= (2, 15)
