"""The agent as bytes that go down ssh's standard input to a host that has only a python3.

The command on the host is one line that reads one line, a program, from standard input; that
reads the agent's modules behind it, exactly so many bytes, and the link begins. Each module goes
as its source, and compiled as well, for hosts with the same Python as this one: compiling takes
them longer than everything else they do to start. What a host has no use for stays here:
docstrings, comments, annotations of functions, and in what lines were columns. Code is made a
quarter smaller by bzip2 than by zlib; a Python without it takes the source.
"""

from __future__ import annotations

import ast
import marshal
import zlib
from functools import lru_cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent.protocol import EXIT_NO_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

COMMAND = "exec python3 -I -S -c \"exec(open(0,'rb',0,closefd=False).readline())\""
"""Means the same to sh, csh and fish; with `exec` no shell stays in between."""
EXIT_TOO_OLD = 67
_OLDEST = (3, 8)
_WITHOUT_DOCSTRINGS = 2
_SOURCES = Path(__file__).parents[3]
_REATTACH = ("distrun", "distrun.agent", "distrun.agent.reattach")
"""The modules that pass a new connection to a running agent."""

_FIRST = """\
import os, sys
if sys.version_info < {oldest!r}:
    sys.stderr.write("distrun: its python3 is %d.%d\\n" % tuple(sys.version_info[:2]))
    sys.stderr.flush()
    os._exit({too_old})
block = b""
while len(block) < {size}:
    more = os.read(0, {size} - len(block))
    if not more:
        os._exit(0)
    block += more
import zlib
inflate = zlib.decompressobj()
exec(compile(inflate.decompress(block), "distrun", "exec"))
"""

_SECOND = """\
import marshal
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER

class Carried:
    def __init__(self, magic, packages, sources, codes):
        self.packages = packages
        self.sources = sources
        self.codes = {}
        if codes and magic == MAGIC_NUMBER:
            try:
                from _bz2 import BZ2Decompressor
            except ImportError:
                return
            self.codes = marshal.loads(BZ2Decompressor().decompress(codes))
    def find_spec(self, name, path=None, target=None):
        if name in self.sources:
            return ModuleSpec(name, self, origin="distrun", is_package=name in self.packages)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(self.codes.get(name) or compile(self.sources[name], name, "exec"), module.__dict__)

sys.meta_path.insert(0, Carried(*marshal.loads(zlib.decompress(inflate.unused_data))))
del block, inflate
"""


def agent(mark: bytes) -> bytes:
    """What starts an agent that says `mark` before all else."""
    start = f"from distrun.agent import main\nmain.main_over_ssh({mark!r})\n"
    return _bootstrap(_agent_modules(), start)


def knock(mark: bytes, token: str) -> bytes:
    """What hands a new ssh over to the running agent with that token."""
    return _bootstrap(
        _REATTACH,
        f"from distrun.agent.reattach import main\nmain({mark!r}, {token!r}, {EXIT_NO_AGENT})\n",
    )


def _agent_modules() -> tuple[str, ...]:
    """The dotted names of all that the agent is made of, packages included."""
    found = {"distrun"}
    for path in (_SOURCES / "distrun" / "agent").rglob("*.py"):
        parts = path.relative_to(_SOURCES).with_suffix("").parts
        found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return tuple(sorted(found))


def _file_of(name: str) -> tuple[Path, bool]:
    """A module's file, and whether it is a package."""
    path = _SOURCES.joinpath(*name.split("."))
    return (path / "__init__.py", True) if path.is_dir() else (path.with_suffix(".py"), False)


def _bootstrap(names: tuple[str, ...], start: str) -> bytes:
    block = zlib.compress((_SECOND + start).encode("ascii")) + _modules(names)
    first = _FIRST.format(oldest=_OLDEST, too_old=EXIT_TOO_OLD, size=len(block))
    return f"exec({first!r})\n".encode("ascii") + block


@lru_cache(maxsize=2)
def _modules(names: tuple[str, ...]) -> bytes:
    """Which Python the code is for, the packages, the modules' sources by name, and their code."""
    sources: dict[str, bytes] = {}
    codes: dict[str, CodeType] = {}
    packages: list[str] = []
    for name in names:
        path, is_package = _file_of(name)
        if is_package:
            packages.append(name)
        # What users import of distrun is not the agent's.
        text = "" if name == "distrun" else path.read_text()
        tree = ast.parse(text)
        sources[name] = _shortened(text, tree)
        _forget_annotations(tree)
        _forget_columns(tree)
        codes[name] = compile(tree, name, "exec", dont_inherit=True, optimize=_WITHOUT_DOCSTRINGS)
    # Version 2 of the format has what every Python reads; the code in it is bytes here. What many
    # modules have, names above all, stands once in those.
    return zlib.compress(marshal.dumps((MAGIC_NUMBER, packages, sources, _packed(codes)), 2))


def _packed(codes: dict[str, CodeType]) -> bytes:
    """Nothing where this Python was built without bzip2."""
    try:
        import bz2
    except ImportError:
        return b""
    return bz2.compress(marshal.dumps(codes))


def _forget_columns(tree: ast.Module) -> None:
    """Tracebacks from other hosts tell lines; the columns would take a third of all bytes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.end_lineno = node.lineno
            node.col_offset = node.end_col_offset = 0


def _forget_annotations(tree: ast.Module) -> None:
    for function in _functions(tree):
        function.returns = None
        for each in _annotated(function):
            each.annotation = None


def _statements(tree: ast.Module) -> list[ast.stmt]:
    """Those of the module, and of the classes and functions in it."""
    found = list(tree.body)
    for node in found:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found += node.body
    return found


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in _statements(tree) if isinstance(node, ast.FunctionDef))


def _annotated(function: ast.FunctionDef) -> list[ast.arg]:
    found = function.args
    every = [*found.posonlyargs, *found.args, *found.kwonlyargs, found.vararg, found.kwarg]
    return [each for each in every if each is not None and each.annotation is not None]


def _shortened(source: str, tree: ast.Module) -> bytes:
    """The same program with its lines where they were: tracebacks tell the right ones."""
    lines = source.encode().split(b"\n")
    for node in _statements(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first] = b" " * node.col_offset + b'""'
            lines[first + 1 : last] = [b""] * (last - first - 1)
    for row, begin, end in sorted(_annotations(tree), reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:begin].rstrip(b" :->") + line[end:]
    return b"\n".join(b"" if line.lstrip().startswith(b"#") else line for line in lines)


def _annotations(tree: ast.Module) -> Iterator[tuple[int, int, int]]:
    """Row, begin and end of those of functions, as bytes; not those of several rows."""
    for function in _functions(tree):
        found = [function.returns, *(each.annotation for each in _annotated(function))]
        for each in found:
            if each is not None and each.lineno == each.end_lineno and each.end_col_offset:
                yield each.lineno, each.col_offset, each.end_col_offset
