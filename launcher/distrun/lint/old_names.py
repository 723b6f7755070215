"""Rules about names that TensorFlow 2 and Keras 3 do not have."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.lint.rule import COLLECTIVE, Surroundings, calls, problem
from distrun.spec.tensorflow_versions import (
    FILE_ENDINGS,
    GONE,
    KERAS_2,
    KERAS_2_WITHOUT_TENSORFLOW,
    TENSORFLOW_1,
    Removed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Step
    from distrun.lint.program import Program
    from distrun.spec.problems import Problem

_KERAS = re.compile(r"(?:tensorflow\.)?keras\.(.*)")
_COLLECTIVE_CLASS = re.compile(rf".*\.{COLLECTIVE}")
_OLD_KERAS = "or use Keras 2: write program.keras: 2, and pip install tf_keras"


def _references(program: Program) -> Iterator[tuple[Step, str]]:
    """Dotted names in code that runs; plain imports are some."""
    for step in program.running:
        if step.imported and not step.context.functions:
            for each in step.imported:
                names = [each.name, *(f"{each.name}.{one}" for one in each.members)]
                yield from ((step, name) for name in names)
        elif isinstance(step.node, ast.Name | ast.Attribute):
            yield step, step.name


def _patches(program: Program, package: str) -> bool:
    """Whether the program assigns to names of a package."""
    return any(
        module.name_of(each.value).startswith(package)
        for module in program.modules.values()
        for each in module.assigned
        if "()" not in module.name_of(each.value)
    )


def tensorflow_1(program: Program, around: Surroundings) -> Iterator[Problem]:  # noqa: ARG001
    """TensorFlow 2 fails at these names; most are in tf.compat.v1."""
    reported = {""} if not _patches(program, "tensorflow") else None
    for step, name in _references(program):
        parts = name.split(".")
        if parts[:3] == ["tensorflow", "compat", "v1"] and GONE.keys() & set(parts[3:4]):
            parts = ["tensorflow", parts[3]]
        if parts[0] != "tensorflow" or "()" in name or len(parts) == 1 or reported is None:
            continue
        for count in (2, 3):
            short = ".".join(parts[1:count])
            module, _, last = short.rpartition(".")
            is_old = short in GONE or last in TENSORFLOW_1.get(module, ())
            if is_old and len(parts) >= count and short not in reported:
                reported.add(short)
                message = f"tf.{short} is of TensorFlow 1: TensorFlow 2 does not have it"
                hint = f"write tf.compat.v1.{short}, or its successor in TensorFlow 2"
                yield problem(step, GONE.get(short, message), "" if short in GONE else hint)
            if is_old:
                break


def keras_2(program: Program, around: Surroundings) -> Iterator[Problem]:
    """`tf.keras` is Keras 3 since TensorFlow 2.16, and refuses what Keras 2 took."""
    if around.keras is None or around.keras < 3 or "TF_USE_LEGACY_KERAS" in program.words:
        return
    if _patches(program, "tensorflow.keras") or _patches(program, "keras"):
        return
    reported = set[str]()
    for step, name in _references(program):
        key, removed = _removed(name)
        if removed is not None and not removed.keywords and key not in reported:
            reported.add(key)
            yield _keras_problem(step, f"have {_shown(name, key)}", removed.instead)
    for step, node in calls(program.running, _KERAS):
        name = _keras_name(step.name)
        key, removed = _removed(f"{step.name}()" if "legacy" in step.name else step.name)
        refused = removed.keywords if removed is not None else ()
        words = [each.arg for each in node.keywords if each.arg in refused]
        if removed is not None and (words or key.endswith("()")):
            verb = f"take {words[0]}= in" if words else "have"
            yield _keras_problem(step, f"{verb} {_shown(step.name, key)}", removed.instead)
        elif name in FILE_ENDINGS and not any(each.arg is None for each in node.keywords):
            yield from _file_ending(step, node, name)
        elif name == "Model().fit" and around.has_several_tasks and any(
            calls(program.running, _COLLECTIVE_CLASS)
        ):  # fmt: skip
            message = (
                f"Model.fit of Keras 3, which tf.keras is here, fails under {COLLECTIVE} with "
                "several workers"
            )
            yield problem(step, message, f"write a training loop, {_OLD_KERAS}")


def _keras_name(name: str) -> str:
    """A name's part after `keras`, or the empty text. Models have one name."""
    found = _KERAS.fullmatch(name)
    return re.sub(r"^(models\.)?(Model|Sequential)\(\)", "Model()", found[1]) if found else ""


def _removed(name: str) -> tuple[str, Removed | None]:
    """The entry of the table that has a name, or one that the name begins with."""
    table = KERAS_2 if name.startswith("tensorflow.") else KERAS_2 | KERAS_2_WITHOUT_TENSORFLOW
    parts = _keras_name(name).split(".")
    for count in range(1, len(parts) + 1):
        key = ".".join(parts[:count])
        general = re.sub(r"^(metrics|optimizers|optimizers\.legacy)\.[A-Z]\w*", r"\1.*", key)
        found = table.get(key) or table.get(general)
        if found is not None:
            return key, found
    return "", None


def _shown(name: str, key: str) -> str:
    owner, is_method, method = key.partition("().")
    if is_method:
        return f"{method}() of {'a model' if owner == 'Model' else owner}"
    return f"{'tf.' if name.startswith('tensorflow.') else ''}keras.{key.removesuffix('()')}"


def _keras_problem(step: Step, what: str, instead: str) -> Problem:
    message = f"Keras 3, which tf.keras is here, does not {what}"
    return problem(step, message, f"{instead}, {_OLD_KERAS}")


def _file_ending(step: Step, node: ast.Call, key: str) -> Iterator[Problem]:
    """Keras 3 takes only file names with certain ends; only those in the code are known."""
    endings = FILE_ENDINGS[key]
    options = {each.arg: each.value for each in node.keywords}
    if key == "callbacks.ModelCheckpoint" and "save_weights_only" in options:
        endings = (".weights.h5",)
        if not isinstance(options["save_weights_only"], ast.Constant):
            return
    path = node.args[0] if node.args else options.get("filepath")
    if isinstance(path, ast.Call) and step.module.name_of(path.func) == "os.path.join":
        path = path.args[-1] if path.args else None
    if isinstance(path, ast.JoinedStr) and path.values:
        path = path.values[-1]
    end = path.value if isinstance(path, ast.Constant) else None
    if not isinstance(end, str) or end.endswith(endings) or any(e.endswith(end) for e in endings):
        return
    message = (
        f"{key.rpartition('.')[2]} of Keras 3, which tf.keras is here, takes only names that end "
        f"in {' or '.join(endings)}"
    )
    yield problem(step, message, f"name the file so, {_OLD_KERAS}")
