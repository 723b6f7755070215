"""Rules about the strategy that the program creates."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from distrun.lint.flow import Step, steps
from distrun.lint.module import Context, Scope, Use
from distrun.lint.operations import is_operation
from distrun.lint.rule import (
    COLLECTIVE,
    STRATEGIES_BY_CLASS,
    STRATEGY_CLASS,
    Surroundings,
    function_of,
    only_name,
    problem,
    runs,
    short_name,
)
from distrun.spec.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Module
    from distrun.lint.program import Program


def another_strategy(program: Program, around: Surroundings) -> Iterator[Problem]:
    """The spec says what the tasks are told and when they restart, for the strategy it names."""
    found = created_strategy(program)
    if found is None or STRATEGIES_BY_CLASS[found[2]] == around.strategy.name:
        return
    module, call, name = found
    yield problem(
        module,
        call.node,
        f"the program creates {name}, but the spec has strategy: {around.strategy.name}",
        f"write strategy: {STRATEGIES_BY_CLASS[name]}, or create another strategy",
    )


def created_strategy(program: Program) -> tuple[Module, Use, str] | None:
    """The class of the strategy that the program creates, and where; None if that is not plain."""
    classes: set[str] = set()
    created: list[tuple[Module, Use, str]] = []
    for module in program.modules.values():
        for use in module.uses:
            for name in program.names(module, use):
                found = STRATEGY_CLASS.match(name)
                if found:
                    classes.add(found[3])
        for call in module.calls:
            if _takes_module(program, module, call):
                return None  # e.g. getattr(tf.distribute, name)
            found = STRATEGY_CLASS.fullmatch(only_name(program.names(module, function_of(call))))
            if found and runs(program, call):
                created.append((module, call, found[3]))
    kinds = {STRATEGIES_BY_CLASS[each] for each in classes}
    return created[0] if len(kinds) == 1 and created else None


def _takes_module(program: Program, module: Module, call: Use) -> bool:
    assert isinstance(call.node, ast.Call)  # noqa: S101
    return any(
        name in ("tensorflow.distribute", "tensorflow.distribute.experimental")
        for argument in call.node.args
        for name in program.names(module, call._replace(node=argument))
    )


def late_strategy(program: Program, around: Surroundings) -> Iterator[Problem]:
    """Collective operations can only be configured before TensorFlow's runtime starts."""
    graphs = {"disable_eager_execution", "disable_v2_behavior", "Graph"}
    if COLLECTIVE not in around.strategy.classes or program.words & graphs:
        return
    first: tuple[Step, str] | None = None
    for step in steps(program):
        if not step.is_certain:
            if any(_names_collective(program, each) for each in _inner_steps(step)):
                return
        elif isinstance(step.node, ast.Call):
            name = only_name(program.names(step.module, function_of(step.use)))
            if name.endswith(f".{COLLECTIVE}"):
                if first is not None:
                    operation, what = first
                    line = getattr(operation.node, "lineno", 0)
                    place = "" if operation.module is step.module else f"{operation.module.shown}:"
                    yield problem(
                        step.module,
                        step.node,
                        f"{COLLECTIVE} is created after a TensorFlow operation, {short_name(what)} "
                        f"in line {place}{line}; it fails with 'Collective ops must be "
                        f"configured at program startup'",
                        "create the strategy first",
                    )
                return
            if first is None and (is_operation(name) or _builds_layers(program, step, name)):
                first = step, name


def _builds_layers(program: Program, step: Step, name: str) -> bool:
    """Whether a call creates a Sequential model whose layers know the shape of their input."""
    node = step.node
    if not name.endswith("keras.Sequential") and not name.endswith("keras.models.Sequential"):
        return False
    layers = getattr(node.args[0], "elts", []) if isinstance(node, ast.Call) and node.args else []
    calls = [each for each in layers if isinstance(each, ast.Call)]
    names = [only_name(program.names(step.module, step.use._replace(node=each))) for each in calls]
    given = {each.arg for call in calls for each in call.keywords}
    has_shape = given & {"input_shape", "input_dim"} or (names[:1] and "Input" in names[0])
    return bool(has_shape) and any(map(is_operation, names))


def _inner_steps(step: Step) -> Iterator[tuple[Module, Scope, ast.expr]]:
    for node in ast.walk(step.node):
        if isinstance(node, ast.Name | ast.Attribute):
            yield step.module, step.scope, node


def _names_collective(program: Program, found: tuple[Module, Scope, ast.expr]) -> bool:
    module, scope, node = found
    names = program.names(module, Use(node, scope, Context()))
    return any(COLLECTIVE in name or program.function(name) for name in names)
