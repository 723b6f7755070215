"""What rules are given, and what several of them ask of a program."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.lint.module import UNKNOWN, Use
from distrun.lint.program import TooComplexError
from distrun.spec.problems import Problem
from distrun.strategies import STRATEGIES, Role, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Function, Module
    from distrun.lint.program import Program

COLLECTIVE = "MultiWorkerMirroredStrategy"
STRATEGIES_BY_CLASS = {each: row.name for row in STRATEGIES.values() for each in row.classes}
STRATEGY_CLASS = re.compile(
    rf"tensorflow\.(compat\.v[12]\.)?distribute\.(experimental\.)?({'|'.join(STRATEGIES_BY_CLASS)})"
)
OWN_PORT = (
    "the program uses DISTRUN_ADDRESS, and distrun keeps that port bound for TensorFlow's server",
    "write program.binds_port: true if the program listens there by itself, else false",
)
"""A warning and its hint."""


class Surroundings(Frozen, kw_only=True):
    """What a program's meaning depends on.

    Attributes:
        strategy: the spec's.
        tasks: how many tasks each role has.
        keras: the first number of the version of `tf.keras`; None if that is not known.
        python: the interpreter, as messages name it.
        missing: the modules, by their first names, that the interpreter does not have.
        owns_tf_config: whether the spec says that the program sets TF_CONFIG.
        says_workers: whether the spec says what the workers do.
        says_port: whether the spec says who listens on the tasks' ports, or there are none.
        package: the name of the script's folder.
        as_module: how to run the script as a module of that.
    """

    strategy: Strategy
    tasks: dict[Role, int]
    keras: int | None = None
    python: str = "python"
    missing: frozenset[str] = frozenset()
    owns_tf_config: bool = False
    says_workers: bool = False
    says_port: bool = False
    package: str = ""
    as_module: str = ""


def problem(module: Module, node: ast.AST, message: str, hint: str = "") -> Problem:
    assert isinstance(node, ast.expr | ast.stmt)  # noqa: S101
    return Problem(module.shown, node.lineno, module.column(node), message, hint)


def unchecked_problem(file: str, why: str) -> Problem:
    """What a user is told of a check that could not be made."""
    return Problem(file, None, None, f"not checked: {why}")


def why_unchecked(error: Exception) -> str:
    """Say why a check has failed."""
    if isinstance(error, TooComplexError):
        return "it would take too long"
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"the check has failed ({text}): this is a defect in distrun, please report it"


def runs(program: Program, use: Use) -> bool:
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


def only_name(names: frozenset[str]) -> str:
    """The dotted name, if there is only one."""
    return next(iter(names)) if len(names) == 1 else UNKNOWN


def function_of(call: Use) -> Use:
    assert isinstance(call.node, ast.Call)  # noqa: S101
    return call._replace(node=call.node.func)


def short_name(name: str) -> str:
    """A dotted name as programs write it, with `tf` for tensorflow."""
    return re.sub(r"^tensorflow\b", "tf", name)


def references(program: Program) -> Iterator[tuple[Module, ast.AST, str]]:
    """Dotted names that certainly mean only one thing, in code that runs; imports are some."""
    for module in program.modules.values():
        plain = _plain_imports(module)
        for each in module.imports:
            if each.node in plain:
                yield module, each.node, each.name
                yield from ((module, each.node, f"{each.name}.{one}") for one in each.members)
        for use in module.uses:
            name = only_name(program.names(module, use))
            if "." in name and runs(program, use):
                yield module, use.node, name


def _plain_imports(module: Module) -> set[ast.AST]:
    """Imports at the top of a module, on no condition."""
    return {node for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)}


def patches_package(program: Program, package: str) -> bool:
    """Whether the program assigns to names of a package."""
    return any(
        name.startswith(f"{package}.")
        for module in program.modules.values()
        for use in module.assigned
        for name in program.names(module, use)
        if "()" not in name
    )
