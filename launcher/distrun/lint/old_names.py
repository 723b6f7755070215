"""The rule about names that Keras 3 does not have."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.lint.module import packages
from distrun.spec.tensorflow_versions import (
    FILE_ENDINGS,
    KERAS_2,
    KERAS_2_WITHOUT_TENSORFLOW,
    Removed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Use
    from distrun.lint.program import Program
    from distrun.spec.model import Spec
    from distrun.spec.problems import Problem

COLLECTIVE = "MultiWorkerMirroredStrategy"
_KERAS = re.compile(r"(?:tensorflow\.)?keras\.(.+)")
_HERE = "Keras 3, which tf.keras is here,"
_OLD_KERAS = {
    "tensorflow": ", or use Keras 2: write program.keras: 2, and pip install tf_keras",
    "keras": ", or use Keras 2: pip install tf_keras, and import that instead of keras",
}


def keras_2(program: Program, spec: Spec) -> Iterator[Problem]:
    """`tf.keras` is Keras 3 since TensorFlow 2.16, and refuses what Keras 2 took."""
    is_keras_2 = (program.keras or 2) < 3 or "TF_USE_LEGACY_KERAS" in program.words
    if is_keras_2 or any(_KERAS.match(use.name) and use.is_patch for use in program.uses):
        return
    reported = set[str]()
    trains_together = any(use.name.endswith(f".{COLLECTIVE}()") for use in program.running)
    several = sum(role.count for role in spec.roles) > 1
    for use in program.running:
        found = _KERAS.match(use.name)
        if found is None or use.is_patch or (use.is_import and use.functions):
            continue
        name = re.sub(r"^(models\.)?(Model|Sequential)\(\)", "Model()", found[1])
        called = name.removesuffix("()") if name.endswith("()") else ""
        key, removed = _removed(name, is_alone=use.top == "keras")
        refused = [each for each in use.arguments if removed and each in removed.keywords]
        if removed and (refused or (not removed.keywords and key not in reported)):
            reported.add(key)
            verb = f"take {refused[0]}= in" if refused else "have"
            shown = _shown(key, "" if use.top == "keras" else "tf.")
            old = _OLD_KERAS[use.top] if removed.is_in_keras_2 else ""
            yield use.problem(f"{_HERE} does not {verb} {shown}", f"{removed.instead}{old}")
        elif called in FILE_ENDINGS and None not in use.arguments:
            yield from _file_ending(use, called)
        elif called == "Model().fit" and several and trains_together:
            message = f"Model.fit of {_HERE} fails under {COLLECTIVE} with several workers"
            yield use.problem(message, f"write a training loop{_OLD_KERAS[use.top]}")


def _removed(name: str, *, is_alone: bool) -> tuple[str, Removed | None]:
    """The entry of the table for a name, or for what the name begins with."""
    table = KERAS_2 | KERAS_2_WITHOUT_TENSORFLOW if is_alone else KERAS_2
    for key in (*packages(name.removesuffix("()")), name):
        general = re.sub(r"^(metrics|optimizers|optimizers\.legacy)\.[A-Z]\w*", r"\1.*", key)
        if key in table or general in table:
            return key, table.get(key) or table[general]
    return "", None


def _shown(key: str, prefix: str) -> str:
    owner, is_method, method = key.partition("().")
    if is_method:
        return f"{method}() of {'a model' if owner == 'Model' else owner}"
    return f"{prefix}keras.{key.removesuffix('()')}"


def _file_ending(use: Use, called: str) -> Iterator[Problem]:
    """Keras 3 takes only file names with certain ends; only those in the code are known."""
    endings, arguments = FILE_ENDINGS[called], use.arguments
    if called == "callbacks.ModelCheckpoint" and "save_weights_only" in arguments:
        endings = (".weights.h5",)
        if not isinstance(arguments["save_weights_only"], ast.Constant):
            return
    path = arguments.get(0, arguments.get("filepath"))
    if isinstance(path, ast.Call) and use.module.name_of(path.func) == "os.path.join":
        path = path.args[-1] if path.args else None
    if isinstance(path, ast.JoinedStr) and path.values:
        path = path.values[-1]
    end = path.value if isinstance(path, ast.Constant) else None
    if isinstance(end, str) and not any(end.endswith(e) or e.endswith(end) for e in endings):
        name, ends = called.rpartition(".")[2], " or ".join(endings)
        message = f"{name} of {_HERE} takes only names that end in {ends}"
        yield use.problem(message, f"name the file so{_OLD_KERAS[use.top]}")
