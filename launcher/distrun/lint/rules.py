"""All rules, and the warnings that they find."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from distrun.lint.cluster_rules import early_connection, joining_chief, own_cluster, servers
from distrun.lint.import_rules import missing_module, notebook
from distrun.lint.keras_rules import keras_2
from distrun.lint.rule import Surroundings, unchecked_problem, why_unchecked
from distrun.lint.strategy_rules import another_strategy, late_strategy
from distrun.lint.tensorflow_rules import tensorflow_1
from distrun.lint.worker_rules import missing_chief, own_port, unsaid_independence
from distrun.spec.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distrun.lint.program import Program

_MOST_ALIKE = 20
"""Warnings of one rule that are shown; the last says how many more there are."""


def check(
    program: Program, around: Surroundings, rules: tuple[Rule, ...] | None = None
) -> list[Problem]:
    """The warnings of the rules, or of all, in the order of files and lines.

    A rule that fails leads to a warning that the program is not checked, or not wholly.
    """
    found: list[Problem] = []
    unchecked: dict[str, None] = {}
    for rule in RULES if rules is None else rules:
        try:
            these = list(dict.fromkeys(rule(program, around)))
        except Exception as error:  # noqa: BLE001 - the other rules go on
            unchecked[why_unchecked(error)] = None
            continue
        more = len(these) - _MOST_ALIKE
        if more > 0:
            last = these[_MOST_ALIKE - 1]
            these = these[: _MOST_ALIKE - 1]
            message = f"{last.message} (and {more} more like this)"
            these.append(Problem(last.file, last.line, last.column, message, last.hint))
        found += these
    files = {module.shown: number for number, module in enumerate(program.modules.values())}
    found.sort(key=lambda one: (files.get(one.file, 0), one.line or 0, one.column or 0))
    shown = next(iter(program.modules.values())).shown
    return [*found, *(unchecked_problem(shown, why) for why in unchecked)]


Rule: TypeAlias = "Callable[[Program, Surroundings], Iterator[Problem]]"
PROGRAM_RULES: tuple[Rule, ...] = (tensorflow_1, keras_2, missing_module, notebook)
"""Rules that hold for every program, whatever its role."""
RULES: tuple[Rule, ...] = (
    another_strategy,
    own_cluster,
    early_connection,
    late_strategy,
    servers,
    joining_chief,
    missing_chief,
    unsaid_independence,
    own_port,
    *PROGRAM_RULES,
)
