"""A parsed module: what it imports, where it names what, and which code runs on a condition."""

from __future__ import annotations

import ast
from typing import NamedTuple, TypeAlias

UNKNOWN = ""
"""The dotted name of whatever cannot be decided."""
ROLES = frozenset({"chief", "worker", "ps", "evaluator", "master"})

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Binding: TypeAlias = "str | ast.expr | None"
"""What a name may mean: a dotted name, the value of an expression, or anything (None)."""


class Context(NamedTuple):
    """When the code at a place runs, seen from the start of its function or module."""

    functions: tuple[Function, ...] = ()
    """The functions around the place, the outermost first."""
    is_conditional: bool = False
    """Whether it may be left out. A branch by role is not: some task runs it."""
    is_guarded: bool = False
    """Whether an exception is caught."""


class Scope:
    """Names that are bound in a module, class or function."""

    def __init__(self, parent: Scope | None = None, *, class_name: str | None = None) -> None:
        self.parent = parent
        self.class_name = class_name
        """The dotted name of a class at the top of a module; empty for another class."""
        self.bindings: dict[str, list[Binding]] = {}

    def bind(self, name: str, meaning: Binding) -> None:
        self.bindings.setdefault(name, []).append(meaning)

    def owner(self, name: str) -> Scope | None:
        """The scope whose binding of `name` is seen here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or scope.class_name is None):
                return scope
            scope = scope.parent
        return None

    @property
    def enclosing_class(self) -> str:
        """The dotted name of the class around this scope; empty if there is none."""
        scope: Scope | None = self
        while scope is not None and scope.class_name is None:
            scope = scope.parent
        return UNKNOWN if scope is None else scope.class_name or UNKNOWN


class Use(NamedTuple):
    """A name, a dotted name or a call in the code."""

    node: ast.expr
    scope: Scope
    context: Context


class Import(NamedTuple):
    """A module that is imported, by its absolute name."""

    node: ast.Import | ast.ImportFrom
    name: str
    members: tuple[str, ...]
    """The names that `from ... import` takes from it; each may be a module, too."""


class Module:
    """A module of the program.

    Attributes:
        name: its dotted name; `__main__` for the script.
        shown: its file, as messages name it.
        text: the bytes of its file.
        package: the dotted name to which its relative imports are relative.
    """

    def __init__(self, name: str, shown: str, text: bytes, tree: ast.Module, package: str) -> None:
        self.name = name
        self.shown = shown
        self.text = text
        self.tree = tree
        self.package = package
        self.scope = Scope()
        self.scopes: dict[ast.AST, Scope] = {}
        """The inner scope of each function and class."""
        self.functions: dict[str, Function] = {}
        """The functions at the top of the module."""
        self.classes: dict[str, ast.ClassDef] = {}
        """The classes at the top of the module."""
        self.overriding: set[Function] = set()
        """The methods of classes that have bases, which may call them."""
        self.imports: list[Import] = []
        self.uses: list[Use] = []
        self.calls: list[Use] = []
        self.attributes: dict[str, list[tuple[Binding, Scope]]] = {}
        """What is assigned to `self.NAME`, by name."""
        self.words: set[str] = set()
        """Every name and attribute that is read, and every text."""
        self.assigned: list[Use] = []
        """Dotted names that are assigned to."""
        self.has_star = False
        _Reader(self).read()

    @property
    def is_package(self) -> bool:
        return self.name == self.package

    @property
    def is_main(self) -> bool:
        return self.name == "__main__"

    def column(self, node: ast.expr | ast.stmt) -> int:
        """The column of a node in characters, from 1."""
        lines = self.text.removeprefix(b"\xef\xbb\xbf").splitlines()
        line = lines[node.lineno - 1] if node.lineno <= len(lines) else b""
        try:
            line.decode()
        except UnicodeDecodeError:  # an older encoding: mostly one byte is one character
            line = line.decode("latin-1").encode()
        return len(line[: node.col_offset].decode("utf-8", "replace")) + 1

    def imported(self, node: ast.Import | ast.ImportFrom) -> list[Import]:
        """The modules of an import statement. A relative import out of the package has none."""
        if isinstance(node, ast.Import):
            return [Import(node, alias.name, ()) for alias in node.names]
        origin = node.module or ""
        if node.level:
            parts = self.package.split(".") if self.package else []
            if node.level > len(parts):
                return []
            parts = parts[: len(parts) - node.level + 1]
            origin = ".".join([*parts, origin] if origin else parts)
        return [Import(node, origin, tuple(alias.name for alias in node.names))]


def is_main_guard(test: ast.expr) -> bool:
    """Whether a test is `__name__ == "__main__"`."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and {ast.unparse(test.left), *map(ast.unparse, test.comparators)}
        == {"__name__", "'__main__'"}
    )


def is_role_test(test: ast.AST) -> bool:
    """Whether a test asks for the task's role: then some task runs each branch."""
    return any(isinstance(each, ast.Constant) and each.value in ROLES for each in constants(test))


def constants(node: ast.AST) -> list[ast.Constant]:
    """The hashable constants in a node."""
    return [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str | int)
    ]


class _Reader:
    """Fills a module's tables in one pass over its tree."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._is_main = module.is_main

    def read(self) -> None:
        self._block(self._module.tree.body, self._module.scope, Context())

    def _block(self, body: list[ast.stmt], scope: Scope, context: Context) -> None:
        for statement in body:
            self._visit(statement, scope, context)

    def _visit(self, node: ast.AST, scope: Scope, context: Context) -> None:
        getattr(self, f"_visit_{type(node).__name__}", self._inside)(node, scope, context)

    def _inside(self, node: ast.AST, scope: Scope, context: Context) -> None:
        for child in ast.iter_child_nodes(node):
            self._visit(child, scope, context)

    # Names ---------------------------------------------------------------------------------

    def _visit_Name(self, node: ast.Name, scope: Scope, context: Context) -> None:  # noqa: N802
        if isinstance(node.ctx, ast.Load):
            self._module.words.add(node.id)
            self._module.uses.append(Use(node, scope, context))
        else:
            scope.bind(node.id, None)

    def _visit_Attribute(self, node: ast.Attribute, scope: Scope, context: Context) -> None:  # noqa: N802
        inner: ast.expr = node
        if not isinstance(node.ctx, ast.Load):
            self._module.assigned.append(Use(node, scope, context))
        while isinstance(inner, ast.Attribute):
            self._module.words.add(inner.attr)
            inner = inner.value
        if isinstance(node.ctx, ast.Load):
            self._module.uses.append(Use(node, scope, context))
        if isinstance(inner, ast.Name):
            self._module.words.add(inner.id)
        else:
            self._visit(inner, scope, context)

    def _visit_Constant(self, node: ast.Constant, scope: Scope, context: Context) -> None:  # noqa: N802, ARG002
        if isinstance(node.value, str):
            self._module.words.add(node.value)

    def _visit_Call(self, node: ast.Call, scope: Scope, context: Context) -> None:  # noqa: N802
        self._module.calls.append(Use(node, scope, context))
        self._inside(node, scope, context)

    # Bindings ------------------------------------------------------------------------------

    def _visit_Import(self, node: ast.Import, scope: Scope, context: Context) -> None:  # noqa: N802, ARG002
        self._module.imports += self._module.imported(node)
        for alias in node.names:
            top = alias.name.partition(".")[0]
            scope.bind(alias.asname or top, alias.name if alias.asname else top)

    def _visit_ImportFrom(self, node: ast.ImportFrom, scope: Scope, context: Context) -> None:  # noqa: N802, ARG002
        found = self._module.imported(node)
        self._module.imports += found
        origin = found[0].name if found else UNKNOWN
        for alias in node.names:
            if alias.name == "*":
                self._module.has_star = True
            else:
                full = f"{origin}.{alias.name}" if origin else None
                scope.bind(alias.asname or alias.name, full)

    def _visit_Assign(self, node: ast.Assign, scope: Scope, context: Context) -> None:  # noqa: N802
        self._visit(node.value, scope, context)
        for target in node.targets:
            self._assign(target, node.value, scope, context)

    def _visit_AnnAssign(self, node: ast.AnnAssign, scope: Scope, context: Context) -> None:  # noqa: N802
        if node.value is not None:
            self._visit(node.value, scope, context)
            self._assign(node.target, node.value, scope, context)

    def _visit_NamedExpr(self, node: ast.NamedExpr, scope: Scope, context: Context) -> None:  # noqa: N802
        self._visit(node.value, scope, context)
        scope.bind(node.target.id, node.value)

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope, context: Context) -> None:
        if isinstance(target, ast.Name):
            scope.bind(target.id, value)
            return
        if isinstance(target, ast.Tuple | ast.List):
            values = getattr(value, "elts", ())
            if len(values) == len(target.elts):
                for inner, its in zip(target.elts, values, strict=True):
                    self._assign(inner, its, scope, context)
                return
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            self._module.attributes.setdefault(target.attr, []).append((value, scope))
        self._visit(target, scope, context)

    def _visit_For(self, node: ast.For | ast.AsyncFor, scope: Scope, context: Context) -> None:  # noqa: N802
        self._visit(node.iter, scope, context)
        items = getattr(node.iter, "elts", None)
        if items and isinstance(node.target, ast.Name):
            for item in items:
                scope.bind(node.target.id, item)
        else:
            self._visit(node.target, scope, context)
        self._block([*node.body, *node.orelse], scope, context)

    _visit_AsyncFor = _visit_For  # noqa: N815

    def _visit_ExceptHandler(  # noqa: N802
        self, node: ast.ExceptHandler, scope: Scope, context: Context
    ) -> None:
        if node.name:
            scope.bind(node.name, None)
        self._inside(node, scope, context)

    # Scopes --------------------------------------------------------------------------------

    def _visit_FunctionDef(self, node: Function, scope: Scope, context: Context) -> None:  # noqa: N802
        is_top = scope is self._module.scope
        scope.bind(node.name, f"{self._module.name}.{node.name}" if is_top else None)
        if is_top:
            self._module.functions[node.name] = node
        for each in (
            *node.decorator_list,
            *node.args.defaults,
            *filter(None, node.args.kw_defaults),
        ):
            self._visit(each, scope, context)
        inner = self._parameters(node, node.args, scope)
        # A function that is defined on a condition, or where exceptions are caught, stays so.
        self._block(node.body, inner, context._replace(functions=(*context.functions, node)))

    _visit_AsyncFunctionDef = _visit_FunctionDef  # noqa: N815

    def _visit_Lambda(self, node: ast.Lambda, scope: Scope, context: Context) -> None:  # noqa: N802
        self._visit(node.body, self._parameters(node, node.args, scope), context)

    def _parameters(self, node: ast.AST, arguments: ast.arguments, scope: Scope) -> Scope:
        inner = self._module.scopes[node] = Scope(scope)
        extra = filter(None, (arguments.vararg, arguments.kwarg))
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra):
            inner.bind(each.arg, None)
        return inner

    def _visit_ClassDef(self, node: ast.ClassDef, scope: Scope, context: Context) -> None:  # noqa: N802
        is_top = scope is self._module.scope
        scope.bind(node.name, f"{self._module.name}.{node.name}" if is_top else None)
        if is_top:
            self._module.classes[node.name] = node
        for each in (*node.decorator_list, *node.bases, *node.keywords):
            self._visit(each, scope, context)
        if node.bases:
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            self._module.overriding |= {each for each in node.body if isinstance(each, functions)}
        name = f"{self._module.name}.{node.name}" if is_top else UNKNOWN
        inner = self._module.scopes[node] = Scope(scope, class_name=name)
        self._block(node.body, inner, context)

    # Conditions ----------------------------------------------------------------------------

    def _visit_If(self, node: ast.If | ast.IfExp, scope: Scope, context: Context) -> None:  # noqa: N802
        self._visit(node.test, scope, context)
        branch = else_branch = context._replace(is_conditional=True)
        if is_main_guard(node.test):
            branch = context if self._is_main else branch
        elif is_role_test(node.test):
            branch = else_branch = context
        for body, inner in ((node.body, branch), (node.orelse, else_branch)):
            for each in body if isinstance(body, list) else [body]:
                self._visit(each, scope, inner)

    _visit_IfExp = _visit_If  # noqa: N815

    def _visit_BoolOp(self, node: ast.BoolOp, scope: Scope, context: Context) -> None:  # noqa: N802
        for each in node.values:
            self._visit(each, scope, context)
            context = context._replace(is_conditional=True)

    def _visit_Try(self, node: ast.Try, scope: Scope, context: Context) -> None:  # noqa: N802
        self._block(
            node.body, scope, context._replace(is_guarded=True) if node.handlers else context
        )
        for handler in node.handlers:
            self._visit(handler, scope, context._replace(is_conditional=True))
        self._block([*node.orelse, *node.finalbody], scope, context)

    _visit_TryStar = _visit_Try  # noqa: N815

    def _visit_With(self, node: ast.With | ast.AsyncWith, scope: Scope, context: Context) -> None:  # noqa: N802
        for item in node.items:
            self._visit(item, scope, context)
        names = (ast.unparse(item.context_expr) for item in node.items)
        if any("suppress(" in name or "raises(" in name for name in names):
            context = context._replace(is_guarded=True)
        self._block(node.body, scope, context)

    _visit_AsyncWith = _visit_With  # noqa: N815

    def _visit_match_case(self, node: ast.match_case, scope: Scope, context: Context) -> None:
        self._inside(node, scope, context._replace(is_conditional=True))

    def _visit_MatchAs(self, node: ast.MatchAs, scope: Scope, context: Context) -> None:  # noqa: N802
        if node.name:
            scope.bind(node.name, None)
        self._inside(node, scope, context)
