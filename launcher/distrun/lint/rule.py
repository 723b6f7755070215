"""What the rules are given, and what several of them ask."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.spec.problems import Problem
from distrun.strategies import STRATEGIES, Role, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from re import Pattern

    from distrun.lint.module import Step
    from distrun.spec.model import Spec

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
        spec: with the roles that run the program.
        python: the interpreter, as messages name it.
        keras: the first number of the version of `tf.keras`; None if that is not known.
        missing: the modules, by their first names, that the interpreter does not have.
    """

    spec: Spec
    python: str = "python"
    keras: int | None = None
    missing: frozenset[str] = frozenset()

    @property
    def strategy(self) -> Strategy:
        return STRATEGIES[self.spec.strategy].with_workers(self.spec.workers)

    @property
    def has_chief(self) -> bool:
        return any(each.role is Role.CHIEF and each.count for each in self.spec.roles)

    @property
    def has_several_tasks(self) -> bool:
        return sum(each.count for each in self.spec.roles) > 1

    @property
    def serving(self) -> list[str]:
        """The roles whose tasks wait at a server."""
        return [role.value for role, row in self.strategy.roles.items() if row.serves]


def calls(steps: Iterable[Step], pattern: Pattern[str]) -> Iterator[tuple[Step, ast.Call]]:
    """Those of some steps that call what has a name of this form."""
    for step in steps:
        if isinstance(step.node, ast.Call) and pattern.fullmatch(step.name):
            yield step, step.node


def says_port(spec: Spec) -> bool:
    """Whether the spec says who listens on the tasks' ports, or there are none."""
    is_said = spec.program.binds_port is not None or not STRATEGIES[spec.strategy].tf_config
    return is_said or all(role.expects_free_port for role in spec.roles)


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


def short_name(name: str) -> str:
    """A dotted name as programs write it, with `tf` for tensorflow."""
    return re.sub(r"^tensorflow\b", "tf", name)
