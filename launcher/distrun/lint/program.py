"""The modules of a program together: what a name in one of them means."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from distrun.lint.module import UNKNOWN

if TYPE_CHECKING:
    from distrun.lint.module import Binding, Function, Module, Scope, Use

_ANYTHING = frozenset({UNKNOWN})
_MOST_NAMES = 64
"""With more meanings than these, a name may have any: their number can double with each line."""
_LONGEST_NAME = 300
"""Characters. Each call and attribute makes a name longer: `a().b().c()`."""
_MOST_QUESTIONS = 2_000_000
"""How often the rules may ask what a name means: that takes seconds, and a launch waits for it."""


class TooComplexError(Exception):
    """A program takes too long to examine."""


class Program:
    """The modules of the program that were read.

    Attributes:
        modules: by name; the script first, as `__main__`.
        is_complete: whether all modules beside the script that it imports were read.
        beside: the first names of modules that are beside the script.
        absent: modules that packages beside the script do not have, but that are imported.
    """

    def __init__(
        self,
        modules: list[Module],
        *,
        is_complete: bool,
        beside: frozenset[str],
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self.modules = {module.name: module for module in modules}
        self.is_complete = is_complete
        self.beside = beside
        self.absent = absent
        self.words: frozenset[str] = frozenset().union(*(each.words for each in modules))
        self._questions = 0
        self._names: dict[ast.AST, frozenset[str]] = {}
        self._meanings: dict[tuple[Scope, str], frozenset[str]] = {}

    def function(self, name: str) -> tuple[Module, Function] | None:
        """The function that a call of this dotted name runs, if the program has it.

        It may be a method, as `__main__.Trainer().train`.
        """
        owner, _, last = name.rpartition(".")
        if owner.endswith("()"):
            return self._method(owner.removesuffix("()"), last)
        module = self.modules.get(owner)
        if module is None or len(module.scope.bindings.get(last, ())) != 1:
            return None
        return (module, module.functions[last]) if last in module.functions else None

    def constructor(self, name: str) -> tuple[Module, Function] | None:
        """The `__init__` of a class, if the program has it."""
        return self._method(name, "__init__")

    def _method(self, class_name: str, name: str) -> tuple[Module, Function] | None:
        owner, _, last = class_name.rpartition(".")
        module = self.modules.get(owner)
        if module is None or len(module.scope.bindings.get(last, ())) != 1:
            return None
        found = module.classes.get(last)
        methods = [] if found is None else [
            each for each in found.body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name
        ]  # fmt: skip
        return (module, methods[0]) if len(methods) == 1 else None

    def names(self, module: Module, use: Use) -> frozenset[str]:
        """The dotted names that the node of a use may stand for; UNKNOWN among them if any may.

        What a call returns is named by the call: `keras.Model()`, and its method
        `keras.Model().fit`.

        Raises:
            TooComplexError: the rules have asked for too many names.
        """
        self._questions += 1
        if self._questions > _MOST_QUESTIONS:
            raise TooComplexError
        found = self._names.get(use.node)
        if found is None:
            found = self._names[use.node] = self._resolve(module, use.node, use.scope)
        return found

    def _resolve(self, module: Module, node: ast.AST, scope: Scope) -> frozenset[str]:
        if isinstance(node, ast.Name):
            return self._resolve_name(module, node.id, scope)
        if isinstance(node, ast.Attribute):
            return self._resolve_attribute(module, node, scope)
        if not isinstance(node, ast.Call):
            return _ANYTHING
        found = set[str]()
        for name in self._resolve(module, node.func, scope):
            function = self.function(name)
            if function is None:
                found.add(name and f"{name}()")
            else:
                found |= self._resolve_result(*function)
        return _limited(found)

    def _resolve_name(self, module: Module, name: str, scope: Scope) -> frozenset[str]:
        owner = scope.owner(name)
        if owner is None:
            return _ANYTHING if module.has_star else frozenset({f"builtins.{name}"})
        known = self._meanings.get((owner, name))
        if known is None:
            self._meanings[owner, name] = _ANYTHING  # for a meaning that depends on itself
            values = [(each, owner) for each in owner.bindings[name]]
            known = self._meanings[owner, name] = self._resolve_all(module, values)
        return known

    def _resolve_all(self, module: Module, values: list[tuple[Binding, Scope]]) -> frozenset[str]:
        found = set[str]()
        for value, scope in values:
            if isinstance(value, ast.expr):
                found |= self._resolve(module, value, scope)
            else:
                found.add(value or UNKNOWN)
            if len(found) > _MOST_NAMES:
                break
        return _limited(found)

    def _resolve_attribute(
        self, module: Module, node: ast.Attribute, scope: Scope
    ) -> frozenset[str]:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            values = module.attributes.get(node.attr)
            if values is None:
                name = scope.enclosing_class
                return frozenset({f"{name}().{node.attr}"}) if name else _ANYTHING
            key = (module.scope, f"self.{node.attr}")
            if key not in self._meanings:
                self._meanings[key] = _ANYTHING
                self._meanings[key] = self._resolve_all(module, values)
            return self._meanings[key]
        inner = self._resolve(module, node.value, scope)
        return _limited({name and f"{name}.{node.attr}" for name in inner})

    def _resolve_result(self, module: Module, function: Function) -> frozenset[str]:
        """The names of what a function may return."""
        key = (module.scopes[function], "return")
        if key not in self._meanings:
            self._meanings[key] = _ANYTHING
            values: list[tuple[Binding, Scope]] = []
            for node in ast.walk(function):
                if isinstance(node, ast.Yield | ast.YieldFrom | ast.Lambda):
                    return _ANYTHING
                if isinstance(node, ast.Return):
                    values.append((node.value, module.scopes[function]))
            self._meanings[key] = self._resolve_all(module, values) or _ANYTHING
        return self._meanings[key]


def _limited(names: set[str]) -> frozenset[str]:
    is_small = len(names) <= _MOST_NAMES and max(map(len, names), default=0) <= _LONGEST_NAME
    return frozenset(names) if is_small else _ANYTHING
