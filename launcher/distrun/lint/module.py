"""What a module's text shows: the names that it uses, in order, and how surely that code runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import IntEnum
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from distrun.spec.problems import Mark

UNKNOWN = "?"
"""The name of whatever cannot be decided. Names of its parts begin with it."""
_SOUGHT = f"{UNKNOWN}{UNKNOWN}"
ROLES = ("chief", "worker", "ps", "evaluator", "master")
_NOTED_TEXTS = ("TF_CONFIG", "DISTRUN_ADDRESS")
_LONGEST_NAME = 300
"""Characters. Each call and attribute makes a name longer: `a().b().c()`."""
_EXITS = {"exit", "_exit", "quit", "SystemExit"}

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_LATER = (ast.For, ast.AsyncFor, ast.While, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
          ast.GeneratorExp)  # fmt: skip
"""What may run its parts never, later or several times."""
_SUPPRESSES = re.compile(r"(?i)(?:suppress|raises|ignor\w*|try\w*)\(")
_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))  # of Python 3.11


class Sure(IntEnum):
    """How surely code runs, if its function is called."""

    MAYBE = 0  # on a condition, or where an exception is caught
    SOME = 1  # for some task
    ALL = 2  # for every task, in the order of the code


class Use(NamedTuple):
    """A place where a module reads, calls or imports a name, or sets an item of it."""

    name: str
    """`os.environ`, a call `os.getenv()`, an item that is set `os.environ[]`, a text `'a'`."""
    node: ast.expr | ast.stmt | ast.alias
    sure: Sure
    functions: tuple[Function, ...]
    """The functions around it, the outermost first."""
    module: Module

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, ast.Import | ast.ImportFrom | ast.alias)

    @property
    def arguments(self) -> dict[str | int | None, ast.expr]:
        if not isinstance(self.node, ast.Call):
            return {}
        return {**dict(enumerate(self.node.args)), **{k.arg: k.value for k in self.node.keywords}}

    @property
    def mark(self) -> Mark:
        line = self.module.lines[self.node.lineno - 1][: self.node.col_offset]
        return Mark(self.module.shown, self.node.lineno, len(line.decode("utf-8", "replace")) + 1)


class Module:
    """A module of the program.

    Args:
        name: its dotted name; `__main__` for the script.
        shown: its file, as messages name it.
        package: the dotted name to which its relative imports are relative.

    Attributes:
        blocks: the uses in each function, and (None) outside, in the order in which they run.
        words: its names, attributes and texts, and `while` if it has such a loop.
    """

    def __init__(self, name: str, shown: str, text: str, tree: ast.Module, package: str) -> None:
        self.name, self.shown, self.package, self.tree = name, shown, package, tree
        self.lines = text.encode().splitlines()
        self.blocks: dict[Function | None, list[Use]] = {}
        self.functions = {f"{name}.{each.name}": each for each in tree.body
                          if isinstance(each, Function)}  # fmt: skip
        self.words: set[str] = set()
        self._values = {each.targets[0]: each.value for each in ast.walk(tree)
                        if isinstance(each, ast.Assign) and len(each.targets) == 1}  # fmt: skip
        self._names: dict[ast.AST, str] = {}
        self._meanings: dict[str, list[str | ast.expr]] = {}
        """What each name may mean: a dotted name or the value of an expression."""
        for node in ast.walk(tree):
            self._note_words(node)
            for bound, meaning in self._bindings(node):
                self._meanings.setdefault(bound, []).append(meaning)
        self._visit(tree, Sure.ALL, ())

    @property
    def uses(self) -> list[Use]:
        return [use for block in self.blocks.values() for use in block]

    def name_of(self, node: ast.AST) -> str:
        """The dotted name that a node certainly stands for; it begins with UNKNOWN if none does.

        A name has a meaning if all that the module binds it to has the same. What a call returns is
        named by the call: `keras.Model()`, and its method `keras.Model().fit`.
        """
        if node not in self._names:
            self._names[node] = _SOUGHT  # while it is explained by itself
            name = self._explain(node)
            self._names[node] = name if len(name) <= _LONGEST_NAME else UNKNOWN
        return self._names[node]

    def value_of(self, node: ast.expr | None) -> ast.expr | None:
        """The expression that a name certainly stands for; any other node itself."""
        meanings = self._meanings.get(_written(node), []) if node is not None else []
        return meanings[0] if len(meanings) == 1 and isinstance(meanings[0], ast.expr) else node

    def result_of(self, name: str) -> str:
        """What a call of a function of this module certainly returns; else the call's own name.

        Empty while that is sought: what a function returns by itself says nothing new.
        """
        function = self.functions.get(name.removesuffix("()")) if name.endswith("()") else None
        is_known = function and not function.decorator_list and not runs_later(function)
        nodes = ast.walk(function) if function and is_known else ()
        values = [each.value for each in nodes if isinstance(each, ast.Return) and each.value]
        if any(self._names.get(each) == _SOUGHT for each in values):
            return ""
        found = {self.name_of(each) for each in values}
        returned = found.pop() if len(found) == 1 else UNKNOWN
        return name if returned.startswith(UNKNOWN) else returned

    def _explain(self, node: ast.AST) -> str:
        if isinstance(node, ast.Call):
            return f"{self.name_of(node.func)}()"
        if isinstance(node, ast.Constant | ast.JoinedStr):
            return "builtins.str"
        meanings = self._meanings.get(_written(node), [])
        found = {
            each if isinstance(each, str) else self.result_of(self.name_of(each))
            for each in meanings
        }
        found -= {""}
        if found:
            return found.pop() if len(found) == 1 else UNKNOWN
        if isinstance(node, ast.Attribute):
            return f"{self.name_of(node.value)}.{node.attr}"
        is_known = isinstance(node, ast.Name) and "*" not in self._meanings
        return f"builtins.{_written(node)}" if is_known else UNKNOWN

    def _imported(self, node: ast.AST) -> Iterator[tuple[str, ast.alias]]:
        """The dotted names that a node imports. Their first part is UNKNOWN outside the package."""
        if isinstance(node, ast.Import):
            yield from ((each.name, each) for each in node.names)
        if isinstance(node, ast.ImportFrom):
            yield from ((f"{self._origin(node)}.{each.name}", each) for each in node.names)

    def _origin(self, node: ast.ImportFrom) -> str:
        """The module from which a statement imports; UNKNOWN if that is not in the package."""
        parts = self.package.split(".") if self.package else []
        above = parts[: len(parts) - node.level + 1] if node.level else []
        is_outside = node.level > len(parts)
        return UNKNOWN if is_outside else ".".join([*above, *filter(None, [node.module])])

    def _note_words(self, node: ast.AST) -> None:
        words = {getattr(node, each, None) for each in ("id", "attr", "value")}
        if isinstance(node, ast.While):
            words.add("while")
        elif isinstance(node, ast.ClassDef) and node.bases:  # these may call its methods
            words |= {each.name for each in node.body if isinstance(each, Function)}
        elif isinstance(node, Function) and (node.decorator_list or node.name.startswith("__")):
            words.add(node.name)
        self.words |= {each for each in words if isinstance(each, str)}

    def _bindings(self, node: ast.AST) -> Iterator[tuple[str, str | ast.expr]]:
        """The names that a node binds, with their meanings."""
        for name, alias in self._imported(node):
            is_top = isinstance(node, ast.Import) and not alias.asname
            meaning = name.partition(".")[0] if is_top else name
            yield alias.asname or meaning.rpartition(".")[2], meaning
        if isinstance(node, Function | ast.ClassDef):
            yield node.name, f"{self.name}.{node.name}"
        elif isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield _written(node) or UNKNOWN, self._values.get(node, UNKNOWN)
        elif isinstance(node, ast.arg | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            yield str(node.arg if isinstance(node, ast.arg) else node.name), UNKNOWN

    def _visit(self, node: ast.AST, sure: Sure, functions: tuple[Function, ...]) -> None:
        fields = list(ast.iter_fields(node))
        for field, value in reversed(fields) if isinstance(node, ast.Assign) else fields:
            its = self._sure(node, field, sure)
            inside = functions
            if isinstance(node, Function) and field == "body":
                inside = (*functions, node)
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    self._visit(each, its, inside)
                    if its is Sure.ALL and _may_leave(each):
                        its = Sure.SOME
        block = self.blocks.setdefault(functions[-1] if functions else None, [])
        block += [Use(name, at, sure, functions, self) for name, at in self._used(node)]

    def _sure(self, node: ast.AST, field: str, sure: Sure) -> Sure:
        """How surely a part of a node runs."""
        most = Sure.ALL
        if isinstance(node, Function) and field == "body":
            return Sure.ALL if sure else sure  # one that is defined on a condition stays so
        if isinstance(node, ast.If | ast.IfExp) and field != "test":
            is_run = self.name == "__main__" and field == "body" and _is_main_guard(node.test)
            most = Sure.SOME if _is_role_test(node.test) else Sure.MAYBE
            most = Sure.ALL if is_run else most
        elif isinstance(node, ast.With) and field == "body":
            opened = " ".join(ast.unparse(each) for each in node.items)
            imports = any(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body)
            most = Sure.MAYBE if imports or _SUPPRESSES.search(opened) else most
        elif isinstance(node, ast.BoolOp | ast.match_case) or (
            isinstance(node, _TRIES) and node.handlers and field in ("body", "handlers", "orelse")
        ):
            most = Sure.MAYBE
        elif isinstance(node, _LATER):
            most = Sure.SOME
        return min(sure, most)

    def _used(self, node: ast.AST) -> Iterator[tuple[str, Any]]:
        is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if isinstance(node, ast.ImportFrom):
            yield self._origin(node), node
            yield from self._imported(node)
        elif isinstance(node, ast.Import):
            yield from ((name, node) for name, _ in self._imported(node))
        elif isinstance(node, ast.Name | ast.Attribute | ast.Call) and is_read:
            name = self.name_of(node)
            if isinstance(node, ast.Call) or not name.endswith("()"):  # else what a call returned
                yield name, node
        elif isinstance(node, ast.Attribute):
            yield f"{self.name_of(node)}=", node
        elif isinstance(node, ast.Subscript) and not is_read:
            yield f"{self.name_of(node.value)}[]", node
        elif isinstance(node, ast.Constant) and node.value in _NOTED_TEXTS:
            yield repr(node.value), node


def runs_later(function: Function | None) -> bool:
    return isinstance(function, ast.AsyncFunctionDef) or any(
        isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function or ast.Pass())
    )


def packages(name: str) -> list[str]:
    """A dotted name after those of the packages that it is in."""
    return [*accumulate(name.split("."), "{}.{}".format)]


def _written(node: ast.AST) -> str:
    """A name, or an attribute of `self`, as it is written; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return f"self.{node.attr}" if _written(node.value) == "self" else ""
    return node.id if isinstance(node, ast.Name) else ""


def _may_leave(node: ast.AST) -> bool:
    """Whether a statement may end its function or the program, for some run of all tasks.

    A branch by role may: the other tasks go on.
    """
    if isinstance(node, ast.expr | Function | ast.ClassDef):
        return False
    if isinstance(node, ast.If) and (_is_role_test(node.test) or _is_main_guard(node.test)):
        return False
    words = (getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(node))
    return not _EXITS.isdisjoint(words) or any(isinstance(e, ast.Return) for e in ast.walk(node))


def _is_main_guard(test: ast.expr) -> bool:
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _is_role_test(test: ast.AST) -> bool:
    """Whether a test asks for the task's role: then some task runs each branch."""
    return any(repr(role) in ast.unparse(test) for role in ROLES)
