"""Rules about modules that are imported."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from distrun.lint.flow import Step, steps
from distrun.lint.rule import (
    Surroundings,
    function_of,
    only_name,
    problem,
    runs,
)
from distrun.spec.problems import Problem, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.program import Program


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


def notebook(program: Program, around: Surroundings) -> Iterator[Problem]:  # noqa: ARG001
    """A converted notebook calls IPython, which no script has."""
    for module in program.modules.values():
        for call in module.calls:
            name = only_name(program.names(module, function_of(call)))
            if name == "builtins.get_ipython" and runs(program, call):
                yield problem(
                    *(module, call.node, "get_ipython() is there only in a notebook"),
                    "remove the lines with it",
                )


def missing_module(program: Program, around: Surroundings) -> Iterator[Problem]:
    """An import that fails ends every task at once."""
    main = next(iter(program.modules.values()))
    for step in steps(program):
        if isinstance(step.node, ast.Import | ast.ImportFrom) and not step.is_guarded:
            if getattr(step.node, "level", 0) and step.module is main and not main.package:
                message = "a script has no package, so that this relative import fails"
                yield problem(step.module, step.node, message, around.as_module)
            for each in step.module.imported(step.node):
                if each.name in program.absent:
                    package, _, last = each.name.rpartition(".")
                    message = f"the package {package} does not have the module {last!r}"
                    yield problem(step.module, step.node, message, "correct the name")
    for name, step in imported_modules(program).items():
        if name in around.missing:
            near = suggestion(name, program.beside) if program.beside else ""
            hint = near if near.startswith("did you mean") else ""
            if name == around.package:
                hint = around.as_module
            yield problem(
                step.module,
                step.node,
                f"there is no module {name!r}: neither beside the script, nor in {around.python}",
                hint or "install it for this interpreter, or correct the name",
            )
