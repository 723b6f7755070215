"""What the rules are given, and what several of them ask."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.spec.problems import Problem
from distrun.strategies import STRATEGIES, Role, Strategy

if TYPE_CHECKING:
    from distrun.lint.module import Step
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


def problem(step: Step, message: str, hint: str = "") -> Problem:
    assert isinstance(step.node, ast.expr | ast.stmt)  # noqa: S101
    column = step.module.column(step.node)
    return Problem(step.module.shown, step.node.lineno, column, message, hint)


def unchecked_problem(file: str, why: str) -> Problem:
    """What a user is told of a check that could not be made."""
    return Problem(file, None, None, f"not checked: {why}")


def why_unchecked(error: Exception) -> str:
    """Say why a check has failed."""
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"the check has failed ({text}): this is a defect in distrun, please report it"


def runs(program: Program, step: Step) -> bool:
    """Whether the code runs for all that can be seen, and what it raises ends the program."""
    context = step.context
    return not (context.is_conditional or context.is_guarded) and all(
        each.name in program.words
        or each.name.startswith("__")
        or bool(each.decorator_list)
        or each in step.module.overriding
        for each in context.functions
    )


def short_name(name: str) -> str:
    """A dotted name as programs write it, with `tf` for tensorflow."""
    return re.sub(r"^tensorflow\b", "tf", name)
