"""The modules of a program: the script, and those beside it that it imports."""

from __future__ import annotations

import ast
import functools
import io
import os
import tokenize
import warnings
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.lint.module import Import, Module, Step
from distrun.spec.regular_file import open_regular_file, read_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Function

_LARGEST_FILE = 1 << 19
_MOST_MODULES = 200
_MOST_BYTES = 1 << 19
"""Reading more would take seconds."""
_RUNNERS = ("absl.app.run", "tensorflow.compat.v1.app.run", "fire.Fire")
"""Functions that call the function that they are given."""


class SyntaxFault(Frozen):
    """Why a file could not be parsed. Line and column count from 1."""

    file: str
    shown: str
    line: int
    column: int
    message: str


class Program:
    """Reads a program.

    Args:
        folder: where Python looks for modules first.

    Attributes:
        modules: by name, the script first, as `__main__`. Empty if that could not be parsed.
        words: the words of all modules.
        beside: the first names of modules that are beside the script.
        files: the files that were read.
        faults: those that could not be parsed.
        unread: why modules could not be read, by the path that messages name them with.
    """

    def __init__(self, folder: str, script: str, package: str = "") -> None:
        self._folder = folder
        self.modules: dict[str, Module] = {}
        self.beside: set[str] = set()
        self.files: list[str] = []
        self.faults: list[SyntaxFault] = []
        self.unread: dict[str, str] = {}
        self._bytes = 0
        waiting = [("__main__", script, package)]
        while waiting:
            name, path, package = waiting.pop(0)
            if len(self.modules) >= _MOST_MODULES or self._bytes >= _MOST_BYTES:
                what = f"the first {_MOST_MODULES}, or {_MOST_BYTES >> 10} KB, are read"
                self.unread[shown_path(script)] = f"of its modules, {what}"
                break
            module = None if name in self.modules else self._read(name, path, package)
            if module is not None:
                self.modules[name] = module
                waiting += [each for found in module.imports for each in self._files_of(found)]
        self.words = frozenset[str]().union(*(each.words for each in self.modules.values()))

    @property
    def is_complete(self) -> bool:
        """Whether all modules beside the script that it imports were read."""
        return not self.faults and not self.unread

    def steps(self) -> Iterator[Step]:
        """All steps of all modules."""
        return (step for module in self.modules.values() for step in module.steps)

    @functools.cached_property
    def run(self) -> tuple[Step, ...]:
        """The steps of a run, from its first: functions and modules where it enters them first."""
        return tuple(self._enter(self.modules["__main__"], None, set(), is_guarded=False))

    def _enter(
        self, module: Module, function: Function | None, entered: set[object], *, is_guarded: bool
    ) -> Iterator[Step]:
        start = (module.name, function)
        if start in entered or isinstance(function, ast.AsyncFunctionDef):
            return
        entered.add(start)
        if function and any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function)):
            return
        for step in module.blocks[function]:
            guarded = is_guarded or step.context.is_guarded
            yield step._replace(context=step.context._replace(is_guarded=guarded))
            if step.context.is_certain:
                for inner, called in self._entered_by(step):
                    yield from self._enter(inner, called, entered, is_guarded=guarded)

    def _entered_by(self, step: Step) -> Iterator[tuple[Module, Function | None]]:
        module, node = step.module, step.node
        if isinstance(node, ast.Import | ast.ImportFrom):
            for each in module.imported(node):
                found = (self.modules.get(name) for name in _names(each))
                yield from ((inner, None) for inner in found if inner is not None)
        elif isinstance(node, ast.Call):
            name = step.name
            if name in _RUNNERS:
                name = module.name_of(node.args[0]) if node.args else f"{module.name}.main"
            for one in (name, f"{name}().__init__"):
                called = self.function(one)
                yield from [] if called is None else [called]

    def function(self, name: str) -> tuple[Module, Function] | None:
        """The function of this dotted name, if the program has it; a method: `m.C().method`."""
        for module in self.modules.values():
            found = module.functions.get(name.removeprefix(f"{module.name}."))
            if found is not None and name.startswith(f"{module.name}."):
                return module, found
        return None

    def lacks(self, name: str) -> bool:
        """Whether a package beside the script lacks a module, and does not make it otherwise."""
        parent, _, last = name.rpartition(".")
        package = self.modules.get(parent)
        if package is None or package.package != parent or name in self.modules:
            return False
        if package.words & {"__path__", "__getattr__", "modules"}:
            return False
        try:
            inside = os.listdir(os.path.join(self._folder, *parent.split(".")))
        except OSError:
            return False
        return not any(each.partition(".")[0] == last for each in inside)

    # Files ---------------------------------------------------------------------------------

    def _files_of(self, each: Import) -> Iterator[tuple[str, str, str]]:
        """Name, file and package of each module beside the script that an import may run."""
        top = each.name.partition(".")[0]
        if top not in self.beside and not self._is_beside(top):
            return
        self.beside.add(top)
        for name in _names(each):
            path = os.path.join(self._folder, *name.split("."))
            init = os.path.join(path, "__init__.py")
            if os.path.isfile(init):
                yield name, init, name
            elif os.path.isfile(f"{path}.py"):
                yield name, f"{path}.py", name.rpartition(".")[0]

    def _is_beside(self, top: str) -> bool:
        """Whether something in the folder is a module of this name, also an extension module."""
        path = os.path.join(self._folder, top)
        if (
            not top
            or os.path.isdir(path)
            or any(map(os.path.isfile, (f"{path}.py", f"{path}.pyc")))
        ):
            return bool(top)
        return any(each.startswith(f"{top}.") for each in self._extensions)

    @functools.cached_property
    def _extensions(self) -> list[str]:
        try:
            return [each for each in os.listdir(self._folder) if each.endswith(".so")]
        except OSError:
            return []

    def _read(self, name: str, path: str, package: str) -> Module | None:
        shown = shown_path(path)
        text = read_regular_file(path, largest=_LARGEST_FILE)
        if text is None:
            self.unread[shown] = _why_unread(path)
            return None
        self.files.append(path)
        self._bytes += len(text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
            if not text.isascii():  # comments, too, must be in the file's encoding
                text.decode(tokenize.detect_encoding(io.BytesIO(text).readline)[0])
            return Module(name, shown, text, tree, package)
        except SyntaxError as error:
            place = (error.lineno or 1, error.offset or 1)
            self.faults.append(SyntaxFault(path, shown, *place, error.msg))
        except ValueError as error:  # not the file's encoding; before Python 3.12: a null byte
            self.faults.append(SyntaxFault(path, shown, 1, 1, str(error)))
        except (RecursionError, MemoryError):
            self.unread[shown] = "it nests too deeply"  # for this interpreter
        return None


def _names(each: Import) -> list[str]:
    """The modules that an import may run, packages first."""
    parts = each.name.split(".")
    above = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return [*above, *(f"{each.name}.{member}" for member in each.members)]


def _why_unread(path: str) -> str:
    try:
        with open_regular_file(path, follow_link=True) as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return "it is no regular file" if os.path.lexists(path) else "it is not on this machine"
    except (OSError, ValueError) as error:
        return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
    is_large = size > _LARGEST_FILE
    return f"it is larger than {_LARGEST_FILE >> 10} KB" if is_large else "it cannot be read"


def shown_path(path: str) -> str:
    """A path as messages name it: relative to the current folder, if it is below that."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):  # the current folder is gone
        return path
    return path if inside.split(os.sep)[0] == os.pardir else inside
