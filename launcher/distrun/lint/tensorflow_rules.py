"""Rules about names that TensorFlow 2 does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.lint.removed import (
    GONE,
    TENSORFLOW_1,
)
from distrun.lint.rule import (
    Surroundings,
    patches_package,
    problem,
    references,
)
from distrun.spec.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.program import Program


def tensorflow_1(program: Program, around: Surroundings) -> Iterator[Problem]:  # noqa: ARG001
    """TensorFlow 2 fails at these names; most are in tf.compat.v1."""
    if patches_package(program, "tensorflow"):
        return
    reported = set[str]()
    for module, use, name in references(program):
        parts = name.split(".")
        if parts[:3] == ["tensorflow", "compat", "v1"] and GONE.keys() & set(parts[3:4]):
            parts = ["tensorflow", parts[3]]
        if parts[0] != "tensorflow" or "()" in name or len(parts) == 1:
            continue
        short = f"tf.{parts[1]}"
        hint = f"write tf.compat.v1.{parts[1]}, or its successor in TensorFlow 2"
        if parts[1] in GONE:
            message = GONE[parts[1]]
            hint = ""
        elif parts[1] in TENSORFLOW_1[""]:
            message = f"{short} is of TensorFlow 1: TensorFlow 2 does not have it"
        elif len(parts) > 2 and parts[2] in TENSORFLOW_1.get(parts[1], ()):
            short = f"{short}.{parts[2]}"
            message = f"{short} is of TensorFlow 1: TensorFlow 2 does not have it"
            hint = f"write tf.compat.v1.{parts[1]}.{parts[2]}, or its successor in TensorFlow 2"
        else:
            continue
        if short not in reported:
            reported.add(short)
            yield problem(module, use, message, hint)
