"""The modules of a program: the script, and those beside it that it imports."""

from __future__ import annotations

import ast
import functools
import io
import os
import tokenize
import warnings
from typing import TYPE_CHECKING

from distrun.lint.module import Module, Sure, Use, packages
from distrun.spec.regular_file import open_regular_file
from distrun.spec.target import find_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.lint.module import Function
    from distrun.spec.model import Spec

_LARGEST_FILE = 1 << 19
_MOST_MODULES = 200
_MOST_BYTES = 1 << 19
"""Reading more would take seconds."""
_RUNNERS = ("absl.app.run()", "tensorflow.compat.v1.app.run()", "fire.Fire()")
"""Calls that call the function that they are given."""


class Program:
    """Reads a program.

    Args:
        folder: where Python looks for modules first.

    Attributes:
        modules: by name, the script first, as `__main__`. Empty if that could not be parsed.
        uses: those of all modules.
        words: those of all modules.
        beside: the first names of modules that are beside the script.
        files: the files that were read.
        faults: line, column and message of the syntax error of each file that has one.
        unread: why modules could not be read, by the path that messages name them with.
        python: its interpreter, as messages name it.
        missing: the modules, by their first names, that the interpreter does not have.
        keras: the first number of the version of `tf.keras`; None if that is not known.
    """

    def __init__(self, folder: str, script: str, package: str = "") -> None:
        self.folder = folder
        self.modules: dict[str, Module] = {}
        self.beside = _modules_in(folder)
        self.files: list[str] = []
        self.faults: dict[str, tuple[int, int, str]] = {}
        self.unread: dict[str, str] = {}
        self.python = "python"
        self.missing: frozenset[str] = frozenset()
        self.keras: int | None = None
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
                size += os.path.getsize(path)
                waiting += [each for use in module.uses for each in self._files_of(use)]
        self.uses = [use for module in self.modules.values() for use in module.uses]
        self.words = frozenset[str]().union(*(each.words for each in self.modules.values()))

    @functools.cached_property
    def running(self) -> list[Use]:
        """The uses that run for all that can be seen, and whose exceptions end the program."""
        return [
            use
            for use in self.uses
            if use.sure
            and all(f.name in self.words or f.name.startswith("__") for f in use.functions)
        ]

    @functools.cached_property
    def run(self) -> list[Use]:
        """The uses of a run in their order. Those of a function are where it is entered first."""
        functions = {name: (module, function) for module in self.modules.values()
                     for name, function in module.functions.items()}  # fmt: skip
        found: list[Use] = []
        entered: dict[tuple[str, Function | None], Sure] = {}

        def enter(module: Module, function: Function | None, sure: Sure) -> None:
            if entered.get((module.name, function), -1) >= sure or _runs_later(function):
                return
            entered[module.name, function] = sure
            for use in module.blocks.get(function, []):
                its = min(use.sure, sure)
                found.append(use._replace(sure=its))
                if use.is_import:
                    for name in packages(use.name):
                        if name in self.modules:
                            enter(self.modules[name], None, its)
                called = use.name.removesuffix("()")
                if use.name in _RUNNERS and 0 in use.arguments:
                    called = module.name_of(use.arguments[0])
                if called in functions and isinstance(use.node, ast.Call):
                    enter(*functions[called], its)

        enter(self.modules["__main__"], None, Sure.ALL)
        return found

    @functools.cached_property
    def certain(self) -> list[Use]:
        """Those of `run` that every task comes to."""
        return [use for use in self.run if use.sure is Sure.ALL]

    @functools.cached_property
    def certain_files(self) -> set[str]:
        """The files that every task runs, the script first, also those with faults."""
        uses = self.certain if self.modules else []
        return {*self.files[:1], *(path for use in uses for _, path, _ in self._files_of(use))}

    def _files_of(self, use: Use) -> Iterator[tuple[str, str, str]]:
        """Name, file and package of each module beside the script that an import may run."""
        names = packages(use.name) if use.is_import else []
        for name in names if names and names[0] in self.beside else []:
            path = os.path.join(self.folder, *name.split("."))
            init = os.path.join(path, "__init__.py")
            if os.path.isfile(init):
                yield name, init, name
            elif os.path.isfile(f"{path}.py"):
                yield name, f"{path}.py", name.rpartition(".")[0]

    def _read(self, name: str, path: str, package: str) -> Module | None:
        shown = shown_path(path)
        try:
            with open_regular_file(path, follow_link=True) as file:
                text = file.read(_LARGEST_FILE + 1) or b""  # None: /proc/kmsg has nothing new
        except (OSError, ValueError) as error:
            self.unread[shown] = f"it cannot be read ({getattr(error, 'strerror', None) or error})"
            return None
        if len(text) > _LARGEST_FILE:
            self.unread[shown] = f"it is larger than {_LARGEST_FILE >> 10} KB"
            return None
        if b"\0" in text and (b"PK\5\6" in text or text[2:4] == b"\r\n"):  # Python runs these, too
            self.unread[shown] = "it is a zip archive, or compiled"
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
            self.faults[path] = (max(error.lineno or 1, 1), max(error.offset or 1, 1), error.msg)
        except ValueError as error:  # not the file's encoding; before Python 3.12: a null byte
            self.faults[path] = (1, 1, str(error))
        except (RecursionError, MemoryError):
            self.unread[shown] = "it nests too deeply"  # for this interpreter
        return None


def read_program(spec: Spec) -> Program | None:
    """Return a spec's program; None if it cannot be read, and for the bundled jobs."""
    target = find_target(spec)
    if target is None or target.is_bundled:
        return None
    program = Program(target.folder, target.path, target.package)
    return program if program.modules else None


def _runs_later(function: Function | None) -> bool:
    return isinstance(function, ast.AsyncFunctionDef) or any(
        isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function or ast.Pass())
    )


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


def shown_path(path: str) -> str:
    """A path as messages name it: relative to the current folder, if it is below that."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):  # the current folder is gone
        return path
    return path if inside.split(os.sep)[0] == os.pardir else inside
