"""The rules: each looks at the program and yields warnings. All are listed in RULES."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.lint.flow import steps
from distrun.lint.module import UNKNOWN, Context, Use, constants, is_role_test
from distrun.lint.operations import is_operation
from distrun.lint.removed import (
    FILE_ENDINGS,
    GONE,
    KERAS_2,
    KERAS_2_WITHOUT_TENSORFLOW,
    TENSORFLOW_1,
    Removed,
)
from distrun.spec.problems import Problem, suggestion
from distrun.strategies import STRATEGIES, Role, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distrun.lint.flow import Step
    from distrun.lint.module import Function, Module, Program, Scope

_VARIABLE = "TF_CONFIG"
_COLLECTIVE = "MultiWorkerMirroredStrategy"
_CLASSES = {each: row.name for row in STRATEGIES.values() for each in row.classes}
_STRATEGY = re.compile(
    rf"tensorflow\.(compat\.v[12]\.)?distribute\.(experimental\.)?({'|'.join(_CLASSES)})"
)
_MOST_ALIKE = 5
"""Warnings of one rule that are shown; the last says how many more there are."""


class Surroundings(Frozen, kw_only=True):
    """What a program's meaning depends on.

    Attributes:
        strategy: the spec's.
        tasks: how many tasks each role has.
        keras: the first number of the version of `tf.keras`; None if that is not known.
        python: the interpreter, as messages name it.
        missing: the modules, by their first names, that the interpreter does not have.
    """

    strategy: Strategy
    tasks: dict[Role, int]
    keras: int | None = None
    python: str = "python"
    missing: frozenset[str] = frozenset()


def check(program: Program, around: Surroundings) -> list[Problem]:
    """The warnings of all rules, in the order of files and lines."""
    found: list[Problem] = []
    for rule in RULES:
        these = list(dict.fromkeys(rule(program, around)))
        more = len(these) - _MOST_ALIKE
        if more > 0:
            last = these[_MOST_ALIKE - 1]
            these = these[: _MOST_ALIKE - 1]
            message = f"{last.message} (and {more} more like this)"
            these.append(Problem(last.file, last.line, last.column, message, last.hint))
        found += these
    files = {module.shown: number for number, module in enumerate(program.modules.values())}
    found.sort(key=lambda one: (files.get(one.file, 0), one.line or 0, one.column or 0))
    return found


def _problem(module: Module, node: ast.AST, message: str, hint: str = "") -> Problem:
    assert isinstance(node, ast.expr | ast.stmt)  # noqa: S101
    return Problem(module.shown, node.lineno, module.column(node), message, hint)


def _runs(program: Program, use: Use) -> bool:
    """Whether the code runs for all that can be seen, and what it raises ends the program."""
    context = use.context
    return (
        not context.is_conditional
        and not context.is_guarded
        and all(_may_be_called(program, each) for each in context.functions)
    )


def _may_be_called(program: Program, function: Function) -> bool:
    is_special = function.name.startswith("__") and function.name.endswith("__")
    return (
        is_special
        or function.name in program.words
        or bool(function.decorator_list)
        or any(function in module.overriding for module in program.modules.values())
    )


def _only(names: frozenset[str]) -> str:
    """The dotted name, if there is only one."""
    return next(iter(names)) if len(names) == 1 else UNKNOWN


def _short(name: str) -> str:
    return re.sub(r"^tensorflow\b", "tf", name)


# Strategies --------------------------------------------------------------------------------


def another_strategy(program: Program, around: Surroundings) -> Iterator[Problem]:
    """The spec says what the tasks are told and when they restart, for the strategy it names."""
    classes: set[str] = set()
    created: list[tuple[Module, Use, str]] = []
    for module in program.modules.values():
        for use in module.uses:
            for name in program.names(module, use):
                found = _STRATEGY.match(name)
                if found:
                    classes.add(found[3])
        for call in module.calls:
            if _takes_module(program, module, call):
                return  # e.g. getattr(tf.distribute, name)
            found = _STRATEGY.fullmatch(_only(program.names(module, _function(call))))
            if found and _runs(program, call):
                created.append((module, call, found[3]))
    kinds = {_CLASSES[each] for each in classes}
    if len(kinds) != 1 or around.strategy.name in kinds or not created:
        return
    module, call, name = created[0]
    yield _problem(
        module,
        call.node,
        f"the program creates {name}, but the spec has strategy: {around.strategy.name}",
        f"write strategy: {_CLASSES[name]}, or create another strategy",
    )


def _takes_module(program: Program, module: Module, call: Use) -> bool:
    assert isinstance(call.node, ast.Call)  # noqa: S101
    return any(
        name in ("tensorflow.distribute", "tensorflow.distribute.experimental")
        for argument in call.node.args
        for name in program.names(module, call._replace(node=argument))
    )


def _function(call: Use) -> Use:
    assert isinstance(call.node, ast.Call)  # noqa: S101
    return call._replace(node=call.node.func)


def late_strategy(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Collective operations can only be configured before TensorFlow's runtime starts."""
    graphs = {"disable_eager_execution", "disable_v2_behavior", "Graph"}
    if _COLLECTIVE not in around.strategy.classes or program.words & graphs:
        return
    first: tuple[Step, str] | None = None
    for step in steps(program):
        if not step.is_certain:
            if any(_names_collective(program, each) for each in _inner_steps(step)):
                return
        elif isinstance(step.node, ast.Call):
            name = _only(program.names(step.module, _function(step.use)))
            if name.endswith(f".{_COLLECTIVE}"):
                if first is not None:
                    operation, what = first
                    line = getattr(operation.node, "lineno", 0)
                    place = "" if operation.module is step.module else f"{operation.module.shown}:"
                    yield _problem(
                        step.module,
                        step.node,
                        f"{_COLLECTIVE} is created after a TensorFlow operation, {_short(what)} "
                        f"in line {place}{line}; it fails with 'Collective ops must be "
                        f"configured at program startup'",
                        "create the strategy first",
                    )
                return
            if first is None and is_operation(name):
                first = step, name


def _inner_steps(step: Step) -> Iterator[tuple[Module, Scope, ast.expr]]:
    for node in ast.walk(step.node):
        if isinstance(node, ast.Name | ast.Attribute):
            yield step.module, step.scope, node


def _names_collective(program: Program, found: tuple[Module, Scope, ast.expr]) -> bool:
    module, scope, node = found
    names = program.names(module, Use(node, scope, Context()))
    return any(_COLLECTIVE in name or program.function(name) for name in names)


# The cluster -------------------------------------------------------------------------------


def own_cluster(program: Program, around: Surroundings) -> Iterator[Problem]:
    """With a TF_CONFIG of its own, a task is not where the others look for it."""
    if not around.strategy.tf_config:
        return
    for step in steps(program):
        if step.is_certain and _sets_variable(program, step):
            yield _problem(
                step.module,
                step.node,
                f"the program sets or removes {_VARIABLE}, which distrun sets for each task: the "
                "tasks will not find each other",
                "remove this line",
            )
            return
        if _mentions_variable(step.node):
            return  # it is read first: what is written may be made of that


def _sets_variable(program: Program, step: Step) -> bool:
    node = step.node
    if isinstance(node, ast.Assign | ast.Delete):
        value = getattr(node, "value", None)
        is_made_of_it = value is not None and _mentions_variable(value)
        targets = () if is_made_of_it else node.targets
        return any(_is_variable(program, step, target) for target in targets)
    if not isinstance(node, ast.Call):
        return False
    name = _only(program.names(step.module, _function(step.use)))
    if name in ("os.putenv", "os.unsetenv", "os.environ.pop", "os.environ.__setitem__"):
        return bool(node.args) and getattr(node.args[0], "value", None) == _VARIABLE
    if name != "os.environ.update":
        return name == "os.environ.clear"
    given = [key for arg in node.args if isinstance(arg, ast.Dict) for key in arg.keys]
    keys = {getattr(key, "value", None) for key in given} | {each.arg for each in node.keywords}
    return _VARIABLE in keys


def _mentions_variable(node: ast.AST) -> bool:
    return any(each.value == _VARIABLE for each in constants(node))


def _is_variable(program: Program, step: Step, target: ast.expr) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == _VARIABLE
        and _only(program.names(step.module, Use(target.value, step.scope, Context())))
        == "os.environ"
    )


_KNOWN_NAMES = """
PIL __future__ absl argparse collections contextlib dataclasses datetime distutils enum functools
glob gzip io itertools json keras logging math matplotlib multiprocessing numpy os pandas pathlib
pickle pprint queue random re scipy shutil signal six sklearn socket string struct subprocess sys
tarfile tempfile tensorflow tensorflow_datasets tf_keras threading time tqdm traceback types
typing urllib uuid warnings yaml zipfile
"""
_KNOWN = frozenset(_KNOWN_NAMES.split())
"""Modules that start no server of a cluster."""
_WAITS = frozenset({"pause", "sleep", "wait", "target", "serve_forever", "sigwait", "input"})
"""What keeps a process that has a server alive, or uses the server."""
_RUNS_SERVERS = frozenset({"train_and_evaluate", "distribute_coordinator", "GrpcServer"})
"""What starts the server of a task, and waits at it."""
_CONNECTS = frozenset(
    {"ClusterCoordinator", "experimental_connect_to_cluster", "experimental_connect_to_host"}
    | {"target", "Session", "MonitoredTrainingSession", "connect_to_cluster"}
)


def servers(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Workers and parameter servers do what the chief says, in a server of tf.distribute."""
    serving = [role for role, rule in around.strategy.roles.items() if rule.serves]
    main = program.modules["__main__"]
    imported = {each.name.partition(".")[0] for m in program.modules.values() for each in m.imports}
    if not serving or "tensorflow" not in imported or not program.is_complete:
        return
    if not imported <= _KNOWN | program.beside or "subprocess" in imported:
        return
    names = " and ".join(role.value for role in serving)
    first = next(each.node for m in program.modules.values() for each in m.imports
                 if each.name.partition(".")[0] == "tensorflow")  # fmt: skip
    origin = next(m for m in program.modules.values() if any(i.node is first for i in m.imports))
    if program.words & _RUNS_SERVERS:
        return
    if "Server" not in program.words:
        yield _problem(
            origin,
            first,
            f"the program never starts a server, but the tasks of {names} need one",
            "where the task is one of these, run tf.distribute.Server(...).join()",
        )
        return
    joins = [(m, each) for m in program.modules.values() for each in m.calls
             if _is_join(program, m, each)]  # fmt: skip
    if not joins and not program.words & _WAITS and not _loops_forever(program):
        yield _problem(
            main,
            first,
            f"the program starts a server, but never waits at it: the tasks of {names} end at once",
            "call join() of the server",
        )
    if joins and around.tasks.get(Role.CHIEF) and not program.words & _CONNECTS:
        yield from _idle_chief(program, joins, names)


def _idle_chief(program: Program, joins: list[tuple[Module, Use]], names: str) -> Iterator[Problem]:
    if any(_STRATEGY.match(name) for m in program.modules.values() for use in m.uses
           for name in program.names(m, use)):  # fmt: skip
        return
    module, join = joins[0]
    yield _problem(
        module,
        join.node,
        f"the tasks of {names} wait at their servers, but no chief connects to these",
        "create tf.distribute.ParameterServerStrategy in the chief",
    )


def _is_join(program: Program, module: Module, call: Use) -> bool:
    """Whether a call may be `join()` of a server: not that of texts and paths."""
    function = _function(call).node
    if not isinstance(function, ast.Attribute) or function.attr != "join":
        return False
    names = program.names(module, _function(call))
    is_text = isinstance(function.value, ast.Constant | ast.JoinedStr)
    return not is_text and any(name == UNKNOWN or "Server()" in name for name in names)


def _loops_forever(program: Program) -> bool:
    return any(isinstance(node, ast.While) for m in program.modules.values()
               for node in ast.walk(m.tree))  # fmt: skip


def joining_chief(program: Program, around: Surroundings) -> Iterator[Problem]:
    """A chief that joins a server waits for ever, and so does the job."""
    if not around.tasks.get(Role.CHIEF) or not any(
        r.serves for r in around.strategy.roles.values()
    ):
        return
    for step in steps(program):
        if not step.is_certain:
            if is_role_test(step.node) or {"task_type", "job_name"} & _identifiers(step.node):
                return
        elif isinstance(step.node, ast.Call):
            name = _only(program.names(step.module, _function(step.use)))
            if re.fullmatch(r"tensorflow\.(distribute|compat\.v1\.train)\.Server\(\)\.join", name):
                yield _problem(
                    step.module,
                    step.node,
                    "every task waits at its server here, the chief, too: nobody trains",
                    "do this only where the task is a worker or ps",
                )
                return


def _identifiers(node: ast.AST) -> set[str]:
    found = (getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node))
    return set(map(str, found))


# Names -------------------------------------------------------------------------------------


def tensorflow_1(program: Program, around: Surroundings) -> Iterator[Problem]:  # noqa: ARG001
    """TensorFlow 2 fails at these names; most are in tf.compat.v1."""
    if _patches(program, "tensorflow"):
        return
    reported = set[str]()
    for module, use, name in _references(program):
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
            yield _problem(module, use, message, hint)


def _references(program: Program) -> Iterator[tuple[Module, ast.AST, str]]:
    """Dotted names that certainly mean only one thing, in code that runs; imports are some."""
    for module in program.modules.values():
        for each in module.imports:
            if each.node in _plain_imports(module):
                yield module, each.node, each.name
                yield from ((module, each.node, f"{each.name}.{one}") for one in each.members)
        for use in module.uses:
            name = _only(program.names(module, use))
            if "." in name and _runs(program, use):
                yield module, use.node, name


def _plain_imports(module: Module) -> set[ast.AST]:
    """Imports at the top of a module, on no condition."""
    return {node for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)}


def _patches(program: Program, package: str) -> bool:
    """Whether the program assigns to names of a package."""
    return any(
        name.startswith(f"{package}.")
        for module in program.modules.values()
        for use in module.assigned
        for name in program.names(module, use)
        if "()" not in name
    )


_OLD_KERAS = "or use Keras 2: TF_USE_LEGACY_KERAS: 1 in program.env, and pip install tf_keras"


def keras_2(program: Program, around: Surroundings) -> Iterator[Problem]:
    """`tf.keras` is Keras 3 since TensorFlow 2.16, and refuses what Keras 2 took."""
    if around.keras is None or around.keras < 3 or "TF_USE_LEGACY_KERAS" in program.words:
        return
    if _patches(program, "tensorflow.keras") or _patches(program, "keras"):
        return
    reported = set[str]()
    for module, node, name in _references(program):
        found = _removed(name)
        if found is not None and not found[1].keyword and found[0] not in reported:
            reported.add(found[0])
            yield _keras_problem(module, node, _shown(name, found[0]), found[1])
    for module in program.modules.values():
        for call in module.calls:
            if _runs(program, call):
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


def _keras_problem(module: Module, node: ast.AST, what: str, removed: Removed) -> Problem:
    message = f"Keras 3, which tf.keras is here, does not have {what}"
    if removed.keyword:
        message = f"Keras 3, which tf.keras is here, does not take {removed.keyword}= in {what}"
    return _problem(module, node, message, f"{removed.instead}, {_OLD_KERAS}")


def _keras_call(
    program: Program, module: Module, call: Use, around: Surroundings
) -> Iterator[Problem]:
    name = _only(program.names(module, _function(call)))
    key = _keras_name(name)
    node = call.node
    if not key or not isinstance(node, ast.Call):
        return
    found = _removed(f"{name}()") if "legacy" in name else _removed(name)
    if found is not None:
        given = {each.arg for each in node.keywords}
        if found[1].keyword in given or found[0].endswith("()"):
            yield _keras_problem(module, node, _shown(name, found[0]), found[1])
            return
    if key in FILE_ENDINGS:
        yield from _file_ending(program, module, call, key)
    elif key == "Model().fit" and sum(around.tasks.values()) > 1 and _is_collective(program):
        yield _problem(
            module,
            node,
            f"Model.fit of Keras 3, which tf.keras is here, fails under {_COLLECTIVE} with "
            "several workers",
            f"write a training loop, {_OLD_KERAS}",
        )


def _is_collective(program: Program) -> bool:
    return any(
        _only(program.names(module, _function(call))).endswith(f".{_COLLECTIVE}")
        and _runs(program, call)
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
    yield _problem(
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
        if _only(program.names(module, Use(node.func, scope, Context()))) == "os.path.join":
            inner = node.args[-1] if node.args else None
    elif isinstance(node, ast.Name):
        owner = scope.owner(node.id)
        meanings = owner.bindings[node.id] if owner else []
        if owner and len(meanings) == 1 and isinstance(meanings[0], ast.expr):
            inner, scope = meanings[0], owner
    if inner is None or isinstance(inner, ast.Starred) or depth > 5:
        return None
    return _end(program, module, scope, inner, depth + 1)


# Modules -----------------------------------------------------------------------------------


def imported_modules(program: Program) -> dict[str, Step]:
    """The first names of modules that are not beside the script, each where it is imported first.

    Only imports that certainly run; none if the program changes where modules are found.
    """
    found: dict[str, Step] = {}
    if _changes_path(program):
        return found
    for step in steps(program):
        node = step.node
        if isinstance(node, ast.Import | ast.ImportFrom) and not step.is_guarded:
            for each in step.module.imported(node):
                top = each.name.partition(".")[0]
                if top and top not in program.beside and not getattr(node, "level", 0):
                    found.setdefault(top, step)
    return found


def _changes_path(program: Program) -> bool:
    changing = ("sys.path", "sys.meta_path", "sys.modules", "site.", "sys.path_hooks", "pkgutil.")
    return any(
        name.startswith(changing)
        for module in program.modules.values()
        for use in (*module.uses, *module.assigned)
        for name in program.names(module, use)
    )


def missing_module(program: Program, around: Surroundings) -> Iterator[Problem]:
    """An import that fails ends every task at once."""
    for step in steps(program):
        if isinstance(step.node, ast.Import | ast.ImportFrom) and not step.is_guarded:
            for each in step.module.imported(step.node):
                if each.name in program.absent:
                    package, _, last = each.name.rpartition(".")
                    message = f"the package {package} does not have the module {last!r}"
                    yield _problem(step.module, step.node, message, "correct the name")
    for name, step in imported_modules(program).items():
        if name in around.missing:
            near = suggestion(name, program.beside) if program.beside else ""
            hint = near if near.startswith("did you mean") else ""
            yield _problem(
                step.module,
                step.node,
                f"there is no module {name!r}: neither beside the script, nor in {around.python}",
                hint or "install it for this interpreter, or correct the name",
            )


RULES: tuple[Callable[[Program, Surroundings], Iterator[Problem]], ...] = (
    another_strategy,
    own_cluster,
    late_strategy,
    servers,
    joining_chief,
    tensorflow_1,
    keras_2,
    missing_module,
)
