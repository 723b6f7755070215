"""Rules about names that TensorFlow 2 and Keras 3 do not have."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.lint.rule import COLLECTIVE, Surroundings, problem, runs
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

_OLD_KERAS = "or use Keras 2: write program.keras: 2, and pip install tf_keras"


def _references(program: Program) -> Iterator[tuple[Step, str]]:
    """Dotted names in code that runs; plain imports are some."""
    for step in filter(lambda each: runs(program, each), program.steps()):
        if isinstance(step.node, ast.Import | ast.ImportFrom) and not step.context.functions:
            for each in step.module.imported(step.node):
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
        found = _removed(name)
        if found is not None and not found[1].keywords and found[0] not in reported:
            reported.add(found[0])
            yield _keras_problem(step, _shown(name, found[0]), found[1])
    for step in program.steps():
        if isinstance(step.node, ast.Call) and runs(program, step):
            yield from _keras_call(program, step, step.node, around)


def _keras_name(name: str) -> str:
    """A name's part after `keras`, or the empty text. Models have one name."""
    found = re.fullmatch(r"(tensorflow\.)?keras\.(.*)", name)
    return re.sub(r"^(models\.)?(Model|Sequential)\(\)", "Model()", found[2]) if found else ""


def _removed(name: str) -> tuple[str, Removed] | None:
    """The entry of the table that has a name or one that it begins with."""
    parts = _keras_name(name).split(".")
    tables = [KERAS_2] if name.startswith("tensorflow.") else [KERAS_2, KERAS_2_WITHOUT_TENSORFLOW]
    for count in range(1, len(parts) + 1):
        key = ".".join(parts[:count])
        general = re.sub(r"^(metrics|optimizers|optimizers\.legacy)\.[A-Z]\w*", r"\1.*", key)
        for table in tables:
            found = table.get(key) or table.get(general)
            if found is not None:
                return key, found
    return None


def _shown(name: str, key: str) -> str:
    owner, is_method, method = key.partition("().")
    if is_method:
        return f"{method}() of {'a model' if owner == 'Model' else owner}"
    return f"{'tf.' if name.startswith('tensorflow.') else ''}keras.{key.removesuffix('()')}"


def _keras_problem(step: Step, what: str, removed: Removed, keyword: str = "") -> Problem:
    lacks = f"take {keyword}= in" if keyword else "have"
    message = f"Keras 3, which tf.keras is here, does not {lacks} {what}"
    return problem(step, message, f"{removed.instead}, {_OLD_KERAS}")


def _keras_call(
    program: Program, step: Step, node: ast.Call, around: Surroundings
) -> Iterator[Problem]:
    name = step.name
    key = _keras_name(name)
    found = _removed(f"{name}()") if "legacy" in name else _removed(name)
    given = {each.arg for each in node.keywords}
    if found is not None and (found[0].endswith("()") or given.intersection(found[1].keywords)):
        words = [str(each.arg) for each in node.keywords if each.arg in found[1].keywords]
        yield _keras_problem(step, _shown(name, found[0]), found[1], *words[:1])
    elif key in FILE_ENDINGS and None not in given:
        yield from _file_ending(step, node, key)
    elif key == "Model().fit" and sum(around.tasks.values()) > 1 and any(
        isinstance(each.node, ast.Call)
        and each.name.endswith(f".{COLLECTIVE}")
        and runs(program, each)
        for each in program.steps()
    ):  # fmt: skip
        message = (
            f"Model.fit of Keras 3, which tf.keras is here, fails under {COLLECTIVE} with "
            "several workers"
        )
        yield problem(step, message, f"write a training loop, {_OLD_KERAS}")


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
