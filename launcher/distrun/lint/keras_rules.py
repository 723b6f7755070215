"""Rules about what Keras 3 refuses."""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

from distrun.lint.module import Context, Scope, Use
from distrun.lint.operations import is_operation
from distrun.lint.removed import (
    FILE_ENDINGS,
    KERAS_2,
    KERAS_2_WITHOUT_TENSORFLOW,
    Removed,
)
from distrun.lint.rule import (
    COLLECTIVE,
    Surroundings,
    function_of,
    only_name,
    patches_package,
    problem,
    references,
    runs,
    short_name,
)
from distrun.spec.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Module
    from distrun.lint.program import Program

_OLD_KERAS = "or use Keras 2: write program.keras: 2, and pip install tf_keras"


def keras_2(program: Program, around: Surroundings) -> Iterator[Problem]:
    """`tf.keras` is Keras 3 since TensorFlow 2.16, and refuses what Keras 2 took."""
    if around.keras is None or around.keras < 3 or "TF_USE_LEGACY_KERAS" in program.words:
        return
    if patches_package(program, "tensorflow.keras") or patches_package(program, "keras"):
        return
    reported = set[str]()
    for module, node, name in references(program):
        found = _removed(name)
        if found is not None and not found[1].keywords and found[0] not in reported:
            reported.add(found[0])
            yield _keras_problem(module, node, _shown(name, found[0]), found[1])
    for module in program.modules.values():
        for call in module.calls:
            if runs(program, call):
                yield from _keras_call(program, module, call, around)


def _keras_name(name: str) -> str:
    """A name's part after `keras`, or the empty text. Models have one name."""
    for prefix in ("tensorflow.keras.", "keras."):
        if name.startswith(prefix):
            return re.sub(r"^(models\.)?(Model|Sequential)\(\)", "Model()", name[len(prefix) :])
    return ""


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
    if key.startswith("Model()."):
        return f"{key.rpartition('.')[2]}() of a model"
    if "()." in key:
        return f"{key.rpartition('.')[2]}() of {key.partition('()')[0]}"
    return f"{'tf.' if name.startswith('tensorflow.') else ''}keras.{key.removesuffix('()')}"


def _keras_problem(
    module: Module, node: ast.AST, what: str, removed: Removed, keyword: str = ""
) -> Problem:
    message = f"Keras 3, which tf.keras is here, does not have {what}"
    if keyword:
        message = f"Keras 3, which tf.keras is here, does not take {keyword}= in {what}"
    return problem(module, node, message, f"{removed.instead}, {_OLD_KERAS}")


def _keras_call(
    program: Program, module: Module, call: Use, around: Surroundings
) -> Iterator[Problem]:
    name = only_name(program.names(module, function_of(call)))
    key = _keras_name(name)
    node = call.node
    if not isinstance(node, ast.Call):
        return
    if is_operation(name) and not key:
        yield from _symbolic_argument(program, module, call, name)
    if not key:
        return
    found = _removed(f"{name}()") if "legacy" in name else _removed(name)
    if found is not None:
        given = [str(each.arg) for each in node.keywords if each.arg in found[1].keywords]
        if given or found[0].endswith("()"):
            yield _keras_problem(module, node, _shown(name, found[0]), found[1], *given[:1])
            return
    if key in FILE_ENDINGS:
        yield from _file_ending(program, module, call, key)
    elif key == "Model().fit" and sum(around.tasks.values()) > 1 and _is_collective(program):
        yield problem(
            module,
            node,
            f"Model.fit of Keras 3, which tf.keras is here, fails under {COLLECTIVE} with "
            "several workers",
            f"write a training loop, {_OLD_KERAS}",
        )


def _symbolic_argument(program: Program, module: Module, call: Use, name: str) -> Iterator[Problem]:
    assert isinstance(call.node, ast.Call)  # noqa: S101
    given = [inner for each in call.node.args for inner in getattr(each, "elts", [each])]
    if any(_is_symbolic(program, module, call._replace(node=each), ()) for each in given):
        yield problem(
            module,
            call.node,
            f"{short_name(name)} does not take the tensors of a functional model of Keras 3, which "
            "tf.keras is here",
            f"call it in a layer, or use keras.ops, {_OLD_KERAS}",
        )


def _is_symbolic(program: Program, module: Module, value: Use, seen: tuple[ast.AST, ...]) -> bool:
    """Whether a value is made of keras.Input by layers alone."""
    node = value.node
    if isinstance(node, ast.Name):
        owner = value.scope.owner(node.id)
        meanings = owner.bindings[node.id] if owner is not None else []
        scope = owner or value.scope
        inner = [
            value._replace(node=each, scope=scope)
            for each in meanings
            if isinstance(each, ast.expr) and each not in seen
        ]
        is_known = all(isinstance(each, ast.expr) for each in meanings)
        seen = (*seen, *(each.node for each in inner))
        return is_known and bool(inner) and all(
            _is_symbolic(program, module, each, seen) for each in inner
        )  # fmt: skip
    if not isinstance(node, ast.Call):
        return False
    name = only_name(program.names(module, value._replace(node=node.func)))
    if name.endswith(("keras.Input", "keras.layers.Input")):
        return True
    is_layer = re.fullmatch(r"(tensorflow\.)?keras\.layers\.[A-Z]\w*\(\)", name)
    if not is_layer or not node.args:
        return False
    first = node.args[0]
    if first in seen or (isinstance(first, ast.Name) and _means_seen(value, first, seen)):
        return True  # x = layer(x)
    return _is_symbolic(program, module, value._replace(node=first), seen)


def _means_seen(value: Use, name: ast.Name, seen: tuple[ast.AST, ...]) -> bool:
    owner = value.scope.owner(name.id)
    meanings = owner.bindings[name.id] if owner is not None else []
    return bool(meanings) and all(each in seen for each in meanings)


@functools.lru_cache(maxsize=1)
def _is_collective(program: Program) -> bool:
    return any(
        only_name(program.names(module, function_of(call))).endswith(f".{COLLECTIVE}")
        and runs(program, call)
        for module in program.modules.values()
        for call in module.calls
    )


def _file_ending(program: Program, module: Module, call: Use, key: str) -> Iterator[Problem]:
    assert isinstance(call.node, ast.Call)  # noqa: S101
    endings = FILE_ENDINGS[key]
    options = {each.arg: each.value for each in call.node.keywords}
    if key == "callbacks.ModelCheckpoint" and "save_weights_only" in options:
        only = options["save_weights_only"]
        if not isinstance(only, ast.Constant):
            return
        endings = (".weights.h5",) if only.value else endings
    path = call.node.args[0] if call.node.args else options.get("filepath")
    end = None if path is None or None in options else _end(program, module, call.scope, path)
    if not end or end.endswith(endings) or any(each.endswith(end) for each in endings):
        return
    what = key.rpartition(".")[2]
    yield problem(
        module,
        call.node,
        f"{what} of Keras 3, which tf.keras is here, takes only names that end in "
        f"{' or '.join(endings)}",
        f"name the file so, {_OLD_KERAS}",
    )


def _end(
    program: Program, module: Module, scope: Scope, node: ast.expr, depth: int = 0
) -> str | None:
    """The end of a text, as far as it is written in the code."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    inner: ast.expr | None = None
    if isinstance(node, ast.JoinedStr):
        inner = node.values[-1] if node.values else None
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
        inner = node.right
    elif isinstance(node, ast.Call):
        if only_name(program.names(module, Use(node.func, scope, Context()))) == "os.path.join":
            inner = node.args[-1] if node.args else None
    elif isinstance(node, ast.Name):
        owner = scope.owner(node.id)
        meanings = owner.bindings[node.id] if owner else []
        if owner and len(meanings) == 1 and isinstance(meanings[0], ast.expr):
            inner, scope = meanings[0], owner
    if inner is None or isinstance(inner, ast.Starred) or depth > 5:
        return None
    return _end(program, module, scope, inner, depth + 1)
