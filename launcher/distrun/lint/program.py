"""The modules of a program: the script, and those beside it that it imports."""

from __future__ import annotations

import ast
import functools
import io
import os
import tokenize
import warnings
from typing import TYPE_CHECKING

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


class Program:
    """Reads a program.

    Args:
        folder: where Python looks for modules first.

    Attributes:
        modules: by name, the script first, as `__main__`. Empty if that could not be parsed.
        words: the words of all modules.
        beside: the first names of modules that are beside the script.
        files: the files that were read.
        faults: line, column and message of the syntax error of each file that has one.
        unread: why modules could not be read, by the path that messages name them with.
    """

    def __init__(self, folder: str, script: str, package: str = "") -> None:
        self.folder = folder
        self.modules: dict[str, Module] = {}
        self.beside = _modules_in(folder)
        self.files: list[str] = []
        self.faults: dict[str, tuple[int, int, str]] = {}
        self.unread: dict[str, str] = {}
        size = 0
        waiting = [("__main__", script, package)]
        while waiting:
            name, path, package = waiting.pop(0)
            if len(self.modules) >= _MOST_MODULES or size >= _MOST_BYTES:
                what = f"the first {_MOST_MODULES}, or {_MOST_BYTES >> 10} KB, are read"
                self.unread[shown_path(script)] = f"of its modules, {what}"
                break
            module = None if name in self.modules else self._read(name, path, package)
            if module is not None:
                self.modules[name] = module
                size += len(module.text)
                waiting += [each for found in module.imports for each in self._files_of(found)]
        self.words = frozenset[str]().union(*(each.words for each in self.modules.values()))

    @functools.cached_property
    def steps(self) -> list[Step]:
        """All steps of all modules."""
        return [step for module in self.modules.values() for step in module.steps]

    @functools.cached_property
    def running(self) -> list[Step]:
        """The steps that run for all that can be seen, and whose exceptions end the program."""
        return [step for step in self.steps if self._runs(step)]

    def _runs(self, step: Step) -> bool:
        context = step.context
        return not (context.is_conditional or context.is_guarded) and all(
            each.name in self.words
            or each.name.startswith("__")
            or bool(each.decorator_list)
            or each in step.module.overriding
            for each in context.functions
        )

    @functools.cached_property
    def run(self) -> list[Step]:
        """The steps of a run, from its first: functions and modules where it enters them first."""
        return list(self._enter(self.modules["__main__"], None, set(), is_guarded=False))

    @functools.cached_property
    def certain(self) -> list[Step]:
        """Those of `run` that every task certainly comes to."""
        return [step for step in self.run if step.context.is_certain]

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
        if step.imported:
            names = (name for each in step.imported for name in each.names)
            yield from ((self.modules[name], None) for name in names if name in self.modules)
        elif isinstance(node, ast.Call):
            name = step.name
            if name in _RUNNERS:
                name = module.name_of(node.args[0]) if node.args else f"{module.name}.main"
            yield from filter(None, map(self.function, (name, f"{name}().__init__")))

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
        inside = _modules_in(os.path.join(self.folder, *parent.split(".")))
        makes_modules = package.words & {"__path__", "__getattr__", "modules"}
        return bool(inside) and last not in inside and not makes_modules

    def _files_of(self, each: Import) -> Iterator[tuple[str, str, str]]:
        """Name, file and package of each module beside the script that an import may run."""
        for name in each.names if each.top in self.beside else ():
            path = os.path.join(self.folder, *name.split("."))
            init = os.path.join(path, "__init__.py")
            if os.path.isfile(init):
                yield name, init, name
            elif os.path.isfile(f"{path}.py"):
                yield name, f"{path}.py", name.rpartition(".")[0]

    def _read(self, name: str, path: str, package: str) -> Module | None:
        shown = shown_path(path)
        text = read_regular_file(path, largest=_LARGEST_FILE)
        if text is None:
            self.unread[shown] = _why_unread(path)
            return None
        self.files.append(path)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
            # Comments, too, must be in the file's encoding.
            decoded = text.decode(tokenize.detect_encoding(io.BytesIO(text).readline)[0])
            return Module(name, shown, decoded, tree, package)
        except SyntaxError as error:
            self.faults[path] = (error.lineno or 1, error.offset or 1, error.msg)
        except ValueError as error:  # not the file's encoding; before Python 3.12: a null byte
            self.faults[path] = (1, 1, str(error))
        except (RecursionError, MemoryError):
            self.unread[shown] = "it nests too deeply"  # for this interpreter
        return None


def _modules_in(folder: str) -> set[str]:
    """The names of the modules, packages and other folders in a folder."""
    try:
        found = os.listdir(folder)
    except OSError:
        return set()
    return {
        each.partition(".")[0]
        for each in found
        if each.endswith((".py", ".pyc", ".so")) or os.path.isdir(os.path.join(folder, each))
    }


def _why_unread(path: str) -> str:
    try:
        open_regular_file(path, follow_link=True).close()
    except FileNotFoundError:
        return "it is no regular file" if os.path.lexists(path) else "it is not on this machine"
    except (OSError, ValueError) as error:
        return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
    return f"it is larger than {_LARGEST_FILE >> 10} KB"


def shown_path(path: str) -> str:
    """A path as messages name it: relative to the current folder, if it is below that."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):  # the current folder is gone
        return path
    return path if inside.split(os.sep)[0] == os.pardir else inside
