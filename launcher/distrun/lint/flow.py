"""The order in which a program certainly runs its first statements, calls followed."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING, NamedTuple

from distrun.lint.module import Context, Scope, Use, is_main_guard, is_role_test

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Function, Module
    from distrun.lint.program import Program

_EXITS = ("sys.exit", "os._exit", "builtins.exit", "builtins.quit")
_RUNNERS = ("absl.app.run", "tensorflow.compat.v1.app.run", "fire.Fire")
"""Functions that call the function that they are given."""
_DEFERRED = (
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
)


class Step(NamedTuple):
    """A node that every run reaches, or (`is_certain` false) code that a run may leave out."""

    module: Module
    node: ast.AST
    scope: Scope
    is_certain: bool
    is_guarded: bool

    @property
    def use(self) -> Use:
        """The node as a use of names; only for expressions."""
        assert isinstance(self.node, ast.expr)  # noqa: S101
        return Use(self.node, self.scope, Context())


@functools.lru_cache(maxsize=1)
def steps(program: Program) -> tuple[Step, ...]:
    """The calls, assignments and imports of a run, from its first, as far as that is certain.

    Each function and each module is entered once. A statement that may be left out is one step.
    """
    return tuple(_Run(program).module(program.modules["__main__"]))


class _Run:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._entered: set[ast.AST] = set()
        self._is_guarded = False

    def module(self, module: Module) -> Iterator[Step]:
        if module.tree not in self._entered:
            self._entered.add(module.tree)
            yield from self._block(module, module.tree.body, module.scope)

    def _function(self, module: Module, function: Function) -> Iterator[Step]:
        if function in self._entered or isinstance(function, ast.AsyncFunctionDef):
            return
        self._entered.add(function)
        if not any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function)):
            yield from self._block(module, function.body, module.scopes[function])

    def _step(self, module: Module, node: ast.AST, scope: Scope, *, certain: bool = True) -> Step:
        return Step(module, node, scope, certain, self._is_guarded)

    def _block(self, module: Module, body: list[ast.stmt], scope: Scope) -> Iterator[Step]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            yield from self._statement(module, node, scope)
            if isinstance(node, ast.Return) or self._may_leave(module, node, scope):
                return

    def _statement(self, module: Module, node: ast.stmt, scope: Scope) -> Iterator[Step]:
        if isinstance(node, ast.If):
            yield from self._expression(module, node.test, scope)
            if is_main_guard(node.test) and module.is_main:
                yield from self._block(module, node.body, scope)
            else:
                yield self._step(module, node, scope, certain=False)
        elif isinstance(node, ast.For | ast.While | ast.Match | ast.AsyncFor):
            yield self._step(module, node, scope, certain=False)
        elif isinstance(node, ast.With):
            for item in node.items:
                yield from self._expression(module, item.context_expr, scope)
            yield from self._block(module, node.body, scope)
        elif isinstance(node, ast.Try):
            yield from self._try(module, node, scope)
        elif isinstance(node, ast.ClassDef):
            yield from self._block(module, node.body, module.scopes[node])
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield self._step(module, node, scope)
            yield from self._imports(module, node)
        else:
            yield from self._expression(module, node, scope)
            if isinstance(node, ast.Assign | ast.Delete):
                yield self._step(module, node, scope)

    def _try(self, module: Module, node: ast.Try, scope: Scope) -> Iterator[Step]:
        outer, self._is_guarded = self._is_guarded, self._is_guarded or bool(node.handlers)
        yield from self._block(module, node.body, scope)
        self._is_guarded = outer
        for handler in node.handlers:
            yield self._step(module, handler, scope, certain=False)
        yield from self._block(module, [*node.orelse, *node.finalbody], scope)

    def _imports(self, module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[Step]:
        for each in module.imported(node):
            parts = each.name.split(".")
            names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
            for name in (*names, *(f"{each.name}.{member}" for member in each.members)):
                found = self._program.modules.get(name)
                if found is not None:
                    yield from self.module(found)

    def _expression(self, module: Module, node: ast.AST, scope: Scope) -> Iterator[Step]:
        """The calls in an expression, in their order: arguments before the call."""
        if isinstance(node, _DEFERRED):
            return
        if isinstance(node, ast.BoolOp):
            yield from self._expression(module, node.values[0], scope)
            return
        for child in ast.iter_child_nodes(node):
            yield from self._expression(module, child, scope)
        if isinstance(node, ast.Call):
            yield self._step(module, node, scope)
            for name in self._called(module, node, scope):
                found = self._program.function(name) or self._program.constructor(name)
                if found is not None:
                    yield from self._function(*found)
        elif isinstance(node, ast.Compare | ast.Subscript) and not _is_target(node):
            yield self._step(module, node, scope)

    def _called(self, module: Module, node: ast.Call, scope: Scope) -> list[str]:
        """The functions that a call certainly runs: one, or none."""
        names = self._program.names(module, Use(node.func, scope, Context()))
        if len(names) == 1 and names <= set(_RUNNERS):
            given = node.args[0] if node.args else ast.Name("main", ast.Load())
            names = self._program.names(module, Use(given, scope, Context()))
        return list(names) if len(names) == 1 else []

    def _may_leave(self, module: Module, node: ast.stmt, scope: Scope) -> bool:
        """Whether a statement may end its function, or the program, for some run of all tasks.

        A branch by role may: the other tasks go on.
        """
        if isinstance(node, ast.If) and (is_role_test(node.test) or is_main_guard(node.test)):
            return False
        if not isinstance(
            node, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.Match | ast.Expr
        ):
            return False
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return):
                return True
            if isinstance(inner, ast.Call):
                names = self._program.names(module, Use(inner.func, scope, Context()))
                if names & set(_EXITS):
                    return True
        return False


def _is_target(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
