"""Finds and reads the program's modules: the script and those beside it that it imports."""

from __future__ import annotations

import ast
import functools
import io
import os
import tokenize
import warnings
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.lint.module import Module
from distrun.lint.program import Program
from distrun.regular_file import open_regular_file, read_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_FILE = 1 << 19
_MOST_MODULES = 200
_MOST_BYTES = 1 << 19
"""Reading more would take seconds."""
_TOO_DEEP = "it nests too deeply"


class SyntaxFault(Frozen):
    """Why a file could not be parsed. Line and column count from 1."""

    file: str
    shown: str
    line: int
    column: int
    message: str


class Sources:
    """Reads a program.

    Args:
        folder: where Python looks for modules first.

    Attributes:
        program: its modules; None if the script could not be read or parsed.
        faults: the files that could not be parsed.
        files: the files that were read.
        unread: why modules could not be read, by the path that messages name them with.
    """

    def __init__(self, folder: str, script: str, package: str = "") -> None:
        self._folder = folder
        self._is_complete = True
        self._modules: dict[str, Module] = {}
        self._wanted: set[str] = set()
        self._bytes = 0
        self.faults: list[SyntaxFault] = []
        self.files: list[str] = []
        self.unread: dict[str, str] = {}
        self._tops: set[str] = set()
        self._shown_script = shown_path(script)
        main = self._read("__main__", script, package)
        self.program: Program | None = None
        if main is not None:
            self._read_imports(main)
            self.program = Program(
                list(self._modules.values()),
                is_complete=self._is_complete,
                beside=frozenset(self._tops),
                absent=frozenset(filter(self._is_absent, self._wanted)),
            )

    def _read_imports(self, main: Module) -> None:
        waiting = [main]
        while waiting:
            module = waiting.pop(0)
            for name in self._imported(module):
                if name in self._modules:
                    continue
                path = self.find(name)
                if path is not None:
                    package = name if _is_package(path) else name.rpartition(".")[0]
                    found = self._read(name, path, package)
                    waiting += [] if found is None else [found]

    def _imported(self, module: Module) -> Iterator[str]:
        """The names of modules beside the script that a module may import, packages first."""
        self._wanted |= {each.name for each in module.imports}
        names: list[str] = []
        for each in module.imports:
            names += [each.name, *(f"{each.name}.{one}" for one in each.members)]
        for name in dict.fromkeys(filter(None, names)):
            parts = name.split(".")
            if self._has_module(parts[0]):
                yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))

    def _has_module(self, top: str) -> bool:
        """Whether something in the folder is a module of this name, also an extension module."""
        if top in self._tops:
            return True
        path = os.path.join(self._folder, top)
        is_beside = os.path.isdir(path) or any(
            os.path.isfile(path + end) for end in (".py", ".pyc")
        )
        if not is_beside:
            is_beside = any(each.startswith(f"{top}.") for each in self._extensions)
        if is_beside:
            self._tops.add(top)
        return is_beside

    @functools.cached_property
    def _extensions(self) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                return [entry.name for entry in entries if entry.name.endswith(".so")]
        except OSError:
            return []

    def _is_absent(self, name: str) -> bool:
        """Whether a package beside the script lacks a module, and does not make it otherwise."""
        parent, _, last = name.rpartition(".")
        package = self._modules.get(parent)
        if package is None or not package.is_package:
            return False
        if package.words & {"__path__", "__getattr__", "modules"} or name in self._modules:
            return False
        folder = os.path.join(self._folder, *parent.split("."))
        try:
            return not any(each.partition(".")[0] == last for each in os.listdir(folder))
        except OSError:
            return False

    def find(self, name: str) -> str | None:
        """The file of a module beside the script."""
        path = os.path.join(self._folder, *name.split("."))
        files = (os.path.join(path, "__init__.py"), f"{path}.py")
        return next((each for each in files if os.path.isfile(each)), None)

    def _read(self, name: str, path: str, package: str) -> Module | None:
        if len(self._modules) >= _MOST_MODULES or self._bytes >= _MOST_BYTES:
            self._is_complete = False
            what = f"of its modules, the first {_MOST_MODULES}, or {_MOST_BYTES >> 10} KB, are read"
            self.unread[self._shown_script] = what
            return None
        text = read_regular_file(path, largest=LARGEST_FILE)
        if text is None:
            self.unread[shown_path(path)] = _why_unread(path)
        module = None if text is None else self._parse(name, path, text, package)
        if module is None:
            self._is_complete = False
        else:
            self._modules[name] = module
            self._bytes += len(module.text)
        return module

    def _parse(self, name: str, path: str, text: bytes, package: str) -> Module | None:
        self.files.append(path)
        shown = shown_path(path)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
            if not text.isascii():  # comments, too, must be in the file's encoding
                text.decode(tokenize.detect_encoding(io.BytesIO(text).readline)[0])
            return Module(name, shown, text, tree, package)
        except SyntaxError as error:
            fault = SyntaxFault(path, shown, error.lineno or 1, error.offset or 1, error.msg)
            self.faults.append(fault)
        except ValueError as error:  # not the file's encoding; before Python 3.12: a null byte
            self.faults.append(SyntaxFault(path, shown, 1, 1, str(error)))
        except (RecursionError, MemoryError):
            self.unread[shown] = _TOO_DEEP  # for this interpreter
        return None


def _why_unread(path: str) -> str:
    try:
        with open_regular_file(path, follow_link=True) as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return "it is no regular file" if os.path.lexists(path) else "it is not on this machine"
    except (OSError, ValueError) as error:
        return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
    if size > LARGEST_FILE:
        return f"it is larger than {LARGEST_FILE >> 10} KB"
    return "it cannot be read"


def _is_package(path: str) -> bool:
    return os.path.basename(path) == "__init__.py"


def shown_path(path: str) -> str:
    """A path as messages name it: relative to the current folder, if it is below that."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):  # the current folder is gone
        return path
    return path if inside.split(os.sep)[0] == os.pardir else inside
