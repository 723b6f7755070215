"""The modules of a program: the script, and those beside it that it imports."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import os
import tokenize
import warnings
from collections.abc import Iterator

from distrun.lint.module import Function, Module, Sure, Use, packages, runs_later
from distrun.spec.interpreter_probe import syntax_errors
from distrun.spec.model import Spec
from distrun.spec.packages import PIP_NAMES
from distrun.spec.regular_file import open_regular_file
from distrun.spec.target import Target, find_target, folder_above, shown_path

_MOST_MODULES = 200
_MOST_BYTES = 1 << 19
"""Of a file, and of all. Reading more would take seconds."""
_RUNNERS = ("absl.app.run()", "tensorflow.compat.v1.app.run()", "fire.Fire()")
"""Calls that call the function that they are given."""


class Program:
    """Reads a program. There is nothing of it if it is not Python, or cannot be read.

    Attributes:
        modules: by name, the script first, as `__main__`. Empty if that could not be parsed.
        uses, words: those of all modules.
        beside: the first names of modules that are beside the script.
        hiding: those of files with the name of a package that programs use.
        faults: line, column and message of the syntax error of each file that has one.
        unread: why files could not be read.
        python: its interpreter, as messages name it. install: what installs packages for that.
        missing: the modules, by their first names, that the interpreter does not have.
        folder_above: returns which folder above has a module; '': none.
        keras: the first number of the version of `tf.keras`; None if that is not known.
    """

    def __init__(self, target: Target | None) -> None:
        self.folder = target.folder if target else ""
        self.modules: dict[str, Module] = {}
        self.folder_above = functools.partial(folder_above, self.folder)
        self.beside = _modules_in(self.folder)
        own = PIP_NAMES & self.beside
        self.hiding = sorted(e for e in own if self._file_of(e).endswith(f"{e}.py"))
        self.files: list[str] = []
        self.faults: dict[str, tuple[int, int, str]] = {}
        self.unread: dict[str, str] = {}
        self.python, self.install = "python", "python -m pip install"
        self.missing: frozenset[str] = frozenset()
        self.keras: int | None = None
        waiting = [("__main__", target.path, target.package)] if target else []
        size = 0
        for name, path, package in waiting:  # it grows
            if len(self.modules) >= _MOST_MODULES or size >= _MOST_BYTES:
                what = f"the first {_MOST_MODULES}, or {_MOST_BYTES >> 10} KB, are read"
                self.unread[waiting[0][1]] = f"of its modules, {what}"
                break
            module = None if name in self.modules else self._read(name, path, package)
            if module is not None:
                self.modules[name] = module
                size += os.path.getsize(path)
                waiting += [each for use in module.uses for each in self._files_of(use)]
        self.uses = [self._resolved(use) for each in self.modules.values() for use in each.uses]
        self.words = frozenset[str]().union(*(each.words for each in self.modules.values()))

    @functools.cached_property
    def running(self) -> list[Use]:
        """The uses that run for all that can be seen, and whose exceptions end the program."""
        sure = (use for use in self.uses if use.sure)
        return [e for e in sure if self.words.issuperset(each.name for each in e.functions)]

    @functools.cached_property
    def run(self) -> list[Use]:
        """The uses of a run in their order. Those of a function are where it is entered first."""
        functions = {name: (module, function) for module in self.modules.values()
                     for name, function in module.functions.items()}  # fmt: skip
        found: list[Use] = []
        entered: dict[tuple[str, Function | None], Sure] = {}

        def enter(module: Module, function: Function | None, sure: Sure) -> None:
            if entered.get((module.name, function), -1) >= sure or runs_later(function):
                return
            entered[module.name, function] = sure
            for use in module.blocks.get(function, []):
                its = min(use.sure, sure)
                found.append(use._replace(sure=its))
                for name in packages(use.name) if use.is_import else ():
                    if name in self.modules:
                        enter(self.modules[name], None, its)
                called = use.name.removesuffix("()")
                if use.name in _RUNNERS and 0 in use.arguments:
                    called = module.name_of(use.arguments[0])
                if called in functions and isinstance(use.node, ast.Call):
                    enter(*functions[called], its)

        if self.modules:
            enter(self.modules["__main__"], None, Sure.ALL)
        return found

    @functools.cached_property
    def certain(self) -> list[Use]:
        """Those of `run` that every task comes to."""
        return [use for use in self.run if use.sure is Sure.ALL]

    @functools.cached_property
    def certain_files(self) -> set[str]:
        """The files that every task runs, the script first, also those with faults."""
        imported = (path for use in self.certain for _, path, _ in self._files_of(use))
        return {*self.files[:1], *imported}

    def _resolved(self, use: Use) -> Use:
        """Name what is used of that which a function returns by that: `keras.Model().fit()`."""
        called, _, rest = use.name.partition("().")
        module = self.modules.get(called.rpartition(".")[0]) if rest else None
        known = None if module is None else module.result_of(f"{called}()")
        return use._replace(name=f"{known}.{rest}") if known else use

    def _files_of(self, use: Use) -> Iterator[tuple[str, str, str]]:
        """Name, file and package of each module beside the script that an import may run."""
        for name in packages(use.name) if use.is_import and use.top in self.beside else ():
            if file := self._file_of(name):
                is_package = file.endswith("__init__.py")
                yield name, file, name if is_package else name.rpartition(".")[0]

    def _file_of(self, name: str) -> str:
        path = os.path.join(self.folder, *name.split("."))
        return next(filter(os.path.isfile, (f"{path}/__init__.py", f"{path}.py")), "")

    def _read(self, name: str, path: str, package: str) -> Module | None:
        text = b""
        try:
            with open_regular_file(path, follow_link=True) as file:
                text = file.read(_MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            self.unread[path] = f"it cannot be read ({getattr(error, 'strerror', None) or error})"
        if len(text) > _MOST_BYTES:
            self.unread[path] = f"it is larger than {_MOST_BYTES >> 10} KB"
        if b"\0" in text and (b"PK\5\6" in text or text[2:4] == b"\r\n"):  # Python runs these, too
            self.unread[path] = "it is a zip archive, or compiled"
        if path in self.unread:
            return None
        self.files.append(path)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
            # Comments, too, must be in the file's encoding.
            decoded = text.decode(tokenize.detect_encoding(io.BytesIO(text).readline)[0])
            return Module(name, shown_path(path), decoded, tree, package)
        except (SyntaxError, ValueError):
            self.faults |= syntax_errors([path])
        except (RecursionError, MemoryError):  # of this interpreter
            self.unread[path] = "it nests too deeply"
        return None


def read_program(spec: Spec) -> Program:
    target = find_target(spec)
    return Program(None if target is not None and target.is_bundled else target)


def _modules_in(folder: str) -> set[str]:
    with contextlib.suppress(OSError):
        return {
            each.partition(".")[0]
            for each in os.listdir(folder)
            if each.endswith((".py", ".pyc", ".so")) or os.path.isdir(os.path.join(folder, each))
        }
    return set()
