"""A parsed module: what its names mean, and which of its code certainly runs, in which order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNKNOWN = ""
"""The dotted name of whatever cannot be decided."""
ROLES = frozenset({"chief", "worker", "ps", "evaluator", "master"})
_LONGEST_NAME = 300
"""Characters. Each call and attribute makes a name longer: `a().b().c()`."""
_DEEPEST = 40
"""How many names may be explained by another one."""
_EXITS = ("exit", "_exit", "quit")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LATER = (ast.For, ast.AsyncFor, ast.While, ast.Match, ast.Lambda, ast.ListComp, ast.SetComp,
          ast.DictComp, ast.GeneratorExp)  # fmt: skip
"""What may run its parts never, later or several times."""
_NOTED = (ast.Name, ast.Attribute, ast.Call, ast.Compare, ast.Subscript, ast.Assign, ast.Delete,
          ast.Import, ast.ImportFrom)  # fmt: skip


class Context(NamedTuple):
    """When the code at a place runs."""

    functions: tuple[Function, ...] = ()
    """The functions around the place, the outermost first."""
    is_certain: bool = True
    """Whether each run of its function or module comes here, in the order of the code."""
    is_conditional: bool = False
    """Whether no task may run it. A branch by role is not conditional: some task runs it."""
    is_guarded: bool = False
    """Whether an exception is caught."""


class Step(NamedTuple):
    """A name, call, import, assignment, comparison or subscript in the code."""

    module: Module
    node: ast.AST
    context: Context

    @property
    def name(self) -> str:
        """The dotted name of the node, or of the function that it calls."""
        return self.module.name_of(getattr(self.node, "func", self.node))

    @property
    def imported(self) -> list[Import]:
        """The modules that it imports."""
        node = self.node
        return self.module.imported(node) if isinstance(node, ast.Import | ast.ImportFrom) else []


class Import(NamedTuple):
    """A module that is imported, by its absolute name."""

    name: str
    members: tuple[str, ...] = ()
    """The names that `from ... import` takes from it; each may be a module, too."""

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def names(self) -> list[str]:
        """The modules that the import may run, packages first."""
        parts = self.name.split(".")
        above = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return [*above, *(f"{self.name}.{member}" for member in self.members)]


class Module:
    """A module of the program.

    Args:
        name: its dotted name; `__main__` for the script.
        shown: its file, as messages name it.
        text: its file, decoded.
        package: the dotted name to which its relative imports are relative.

    Attributes:
        blocks: the steps of each function, and (None) of the module, in the order of the code.
        functions: those at the top by name, and methods as `Class().method`.
        overriding: the methods of classes that have bases, which may call them.
        words: every name and attribute that is read, and every text.
        assigned: attributes that are assigned to.
    """

    def __init__(self, name: str, shown: str, text: str, tree: ast.Module, package: str) -> None:
        self.name, self.shown, self.text, self.tree, self.package = name, shown, text, tree, package
        self.blocks: dict[Function | None, list[Step]] = {None: []}
        self.functions: dict[str, Function] = {}
        self.overriding: set[Function] = set()
        self.imports: list[Import] = []
        self.words: set[str] = set()
        self.assigned: list[ast.Attribute] = []
        self._has_star = False
        self._meanings: dict[str, list[str | ast.expr]] = {}
        """What each name may mean: a dotted name or the value of an expression."""
        self._names: dict[ast.AST, str] = {}
        self._explained: set[ast.AST] = set()
        for node in tree.body:
            self._add_functions(node)
        for each in ast.walk(tree):
            self._read(each)
        self._visit(tree, Context())

    @property
    def steps(self) -> list[Step]:
        return [step for block in self.blocks.values() for step in block]

    def column(self, node: ast.expr | ast.stmt) -> int:
        """The column of a node in characters, from 1."""
        lines = self.text.encode().splitlines()
        return len(lines[node.lineno - 1][: node.col_offset].decode("utf-8", "replace")) + 1

    def imported(self, node: ast.Import | ast.ImportFrom) -> list[Import]:
        """The modules of an import statement. A relative import out of the package has none."""
        if isinstance(node, ast.Import):
            return [Import(alias.name) for alias in node.names]
        origin = node.module or ""
        if node.level:
            parts = self.package.split(".") if self.package else []
            if node.level > len(parts):
                return []
            parts = parts[: len(parts) - node.level + 1]
            origin = ".".join([*parts, origin] if origin else parts)
        return [Import(origin, tuple(alias.name for alias in node.names))]

    # What names mean -----------------------------------------------------------------------

    def name_of(self, node: ast.AST, depth: int = 0) -> str:
        """The dotted name that a node certainly stands for, else UNKNOWN.

        A name has a meaning if no part of the module binds it to anything else. What a call
        returns is named by the call: `keras.Model()`, and its method `keras.Model().fit`.
        """
        found = self._names.get(node)
        if found is None:
            found = self._resolve(node, depth) if depth < _DEEPEST else UNKNOWN
            self._names[node] = found = found if len(found) <= _LONGEST_NAME else UNKNOWN
        return found

    def _resolve(self, node: ast.AST, depth: int) -> str:
        if isinstance(node, ast.Name):
            known = UNKNOWN if self._has_star else f"builtins.{node.id}"
            return self._meaning(node.id, known, depth)
        if isinstance(node, ast.Call):
            name = self.name_of(node.func, depth + 1)
            is_own = name.removeprefix(f"{self.name}.") in self.functions
            return UNKNOWN if is_own or not name else f"{name}()"
        if not isinstance(node, ast.Attribute):
            return UNKNOWN
        if ast.unparse(node.value) == "self":
            methods = [each for each in self.functions if each.endswith(f"().{node.attr}")]
            method = f"{self.name}.{methods[0]}" if len(methods) == 1 else UNKNOWN
            return self._meaning(f"self.{node.attr}", method, depth)
        owner = self.name_of(node.value, depth + 1)
        return owner and f"{owner}.{node.attr}"

    def _meaning(self, name: str, otherwise: str, depth: int) -> str:
        values = self._meanings.get(name, [otherwise])
        found = {v if isinstance(v, str) else self.name_of(v, depth + 1) for v in values}
        return found.pop() if len(found) == 1 else UNKNOWN

    def _add_functions(self, node: ast.stmt) -> None:
        if isinstance(node, _FUNCTIONS):
            self.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, _FUNCTIONS)]
            self.functions |= {f"{node.name}().{each.name}": each for each in methods}
            self.overriding |= set(methods if node.bases else ())

    def _read(self, node: ast.AST) -> None:
        """Note the names that a node binds, and the words that it has."""
        for word in (getattr(node, each, None) for each in ("id", "attr", "value")):
            self.words |= {word} if isinstance(word, str) else set()
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._read_import(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assign(target, node.value)
        elif isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if node not in self._explained:
                self._bind(ast.unparse(node))
            self.assigned += [node] if isinstance(node, ast.Attribute) else []
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            name = f"{self.name}.{node.name}" if node in self.tree.body else UNKNOWN
            self._bind(node.name, name)
        elif isinstance(node, ast.arg | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            self._bind(node.arg if isinstance(node, ast.arg) else node.name or "_")

    def _bind(self, name: str, meaning: str | ast.expr = UNKNOWN) -> None:
        self._meanings.setdefault(name, []).append(meaning)

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        if value and (isinstance(target, ast.Name) or ast.unparse(target).startswith("self.")):
            self._bind(ast.unparse(target), value)
            self._explained.add(target)

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        found = self.imported(node)
        self.imports += found
        for alias in node.names:
            top = alias.name.partition(".")[0]
            full = alias.name if alias.asname else top
            if isinstance(node, ast.ImportFrom):
                full = f"{found[0].name}.{alias.name}" if found else UNKNOWN
            self._has_star = self._has_star or alias.name == "*"
            self._bind(alias.asname or top, full)

    # Which code runs -----------------------------------------------------------------------

    def _visit(self, node: ast.AST, context: Context) -> None:
        if isinstance(node, _FUNCTIONS):
            self.blocks[node] = []
            for each in (*node.decorator_list, *node.args.defaults):
                self._visit(each, context)
            # A function that is defined on a condition, or where exceptions are caught, stays so.
            inside = context._replace(functions=(*context.functions, node), is_certain=True)
            for child, its in _block(node.body, inside):
                self._visit(child, its)
            return
        for child, its in _parts(node, context, is_main=self.name == "__main__"):
            self._visit(child, its)
        if isinstance(node, _NOTED) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            function = context.functions[-1] if context.functions else None
            self.blocks[function].append(Step(self, node, context))


def _parts(node: ast.AST, context: Context, *, is_main: bool) -> Iterator[tuple[ast.AST, Context]]:
    """The parts of a node, each with its context."""
    branch = context._replace(is_certain=False, is_conditional=True)
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test, context
        by_role = context._replace(is_certain=False)
        otherwise = by_role if is_role_test(node.test) else branch
        is_run = is_main and is_main_guard(node.test)
        yield from _block(node.body, context if is_run else otherwise)
        yield from _block(node.orelse, otherwise)
    elif isinstance(node, ast.Try):
        guarded = context.is_guarded or bool(node.handlers)
        yield from _block(node.body, context._replace(is_guarded=guarded))
        yield from ((each, branch) for each in node.handlers)
        yield from _block([*node.orelse, *node.finalbody], context)
    elif isinstance(node, ast.With | ast.AsyncWith):
        yield from ((each, context) for each in node.items)
        names = " ".join(ast.unparse(item.context_expr) for item in node.items)
        guarded = context.is_guarded or "suppress(" in names or "raises(" in names
        yield from _block(node.body, context._replace(is_guarded=guarded))
    elif isinstance(node, ast.BoolOp):
        yield node.values[0], context
        yield from ((each, branch) for each in node.values[1:])
    elif isinstance(node, ast.Attribute):  # only the whole of a dotted name is noted
        inner = node.value
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        yield from [] if isinstance(inner, ast.Name) else [(inner, context)]
    else:
        is_certain = context.is_certain and not isinstance(node, _LATER)
        inside = branch if isinstance(node, ast.match_case) else context
        yield from _block(ast.iter_child_nodes(node), inside._replace(is_certain=is_certain))


def _block(
    body: ast.AST | Iterable[ast.AST], context: Context
) -> Iterator[tuple[ast.AST, Context]]:
    """Nodes that follow each other. After one that may leave the block, none is certain."""
    for node in [body] if isinstance(body, ast.AST) else body:
        yield node, context
        if context.is_certain and isinstance(node, ast.stmt) and _may_leave(node):
            context = context._replace(is_certain=False)


def _may_leave(node: ast.stmt) -> bool:
    """Whether a statement may end its function or the program, for some run of all tasks.

    A branch by role may: the other tasks go on.
    """
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return False
    if isinstance(node, ast.If) and (is_role_test(node.test) or is_main_guard(node.test)):
        return False
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.Return) for each in ast.walk(node)) or any(
        getattr(each, "attr", getattr(each, "id", "")) in _EXITS for each in calls
    )


def is_main_guard(test: ast.expr) -> bool:
    """Whether a test is `__name__ == "__main__"`."""
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def is_role_test(test: ast.AST) -> bool:
    """Whether a test asks for the task's role: then some task runs each branch."""
    return not ROLES.isdisjoint(texts_in(test))


def texts_in(node: ast.AST) -> set[str]:
    """The texts that are written in a node."""
    constants = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return {each for each in constants if isinstance(each, str)}
