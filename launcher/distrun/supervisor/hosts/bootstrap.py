"""The agent as bytes for the standard input of a login on a host that has only a python3.

The command on the host reads one line from standard input: a program, which knows the size of the
agent's modules. It reads them and runs the agent. The link's messages follow the modules. Each
module is sent as source, and also compiled for hosts with the same version of Python as this one,
because compiling would take most of an agent's start. Docstrings, comments, annotations in
functions and imports for them, most of the indentation, values of enumerations, codes of causes
that no agent makes, column numbers and qualified names are not sent.
bzip2 makes the compiled code a quarter smaller than zlib does. A Python without bzip2 uses the
source.
"""

from __future__ import annotations

import ast
import io
import marshal
import re
import sys
import tokenize
import zlib
from functools import lru_cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

COMMAND = "exec python3 -I -S -c \"exec(open(0,'rb',0,closefd=False).readline())\""
"""It means the same to sh, csh and fish; `exec` leaves no shell in between."""
EXIT_TOO_OLD = 67
TOO_OLD = "distrun: its python3 is"
"""Printed before the version if Python is too old for the agent."""
EXIT_NO_AGENT = 66
NO_AGENT = "distrun: its agent is gone"
"""Printed by a new connection if the agent and everything that it had started are gone."""
EXIT_TASKS_ALIVE = 68
TASKS_ALIVE = "distrun: these processes do not end:"
"""Printed before the ids of processes that an earlier supervisor of the job has left."""
_OLDEST = (3, 8)
_LEVEL = 9
"""The best compression of zlib: the payload is sent to every host."""
_WITHOUT_DOCSTRINGS = 2
_SOURCES = Path(__file__).parents[3]
_REATTACH = (
    *("distrun", "distrun.agent", "distrun.agent.reattach", "distrun.agent.structs"),
    *("distrun.agent.linux", "distrun.agent.linux.peers"),
)
"""The modules that pass a new connection to a running agent."""
_FORMER = ("distrun.agent.former", "distrun.agent.linux.job_processes")
"""The modules that end what an earlier supervisor has left on a host; no agent needs them."""
_SAME_FILES = "distrun.agent.linux.same_files"
"""The module for hosts that may share a file system with this one."""
_SOURCE_ONLY = (
    *("distrun.agent.unsent_reports", "distrun.agent.linux.exposure"),
    *("distrun.agent.linux.sock_diag", "distrun.agent.tasks.gpu_usage"),
)
"""Modules that so few agents need that they are not sent compiled."""

_FIRST = """\
import os, sys
if sys.version_info < {oldest!r}:
    sys.stderr.write("{words} %d.%d\\n" % tuple(sys.version_info[:2]))
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

class Modules:
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

sys.meta_path.insert(0, Modules(*marshal.loads(zlib.decompress(inflate.unused_data))))
del block, inflate
"""


def start_agent(mark: bytes) -> bytes:
    """Return the input that starts an agent, which writes `mark` before its first message."""
    start = f"from distrun.agent import main\nmain.main_over_ssh({mark!r})\n"
    return _bootstrap(_agent_modules(), start)


def start_agent_beside_files(mark: bytes, *arguments: object) -> bytes:
    """Return the same input, for a host that first says whether it sees the same files.

    Args:
        mark: as for :func:`start_agent`; the answer comes before it.
        arguments: those of :func:`distrun.agent.linux.same_files.announce`.
    """
    sources = {_SAME_FILES: _file_of(_SAME_FILES)[0].read_bytes()}
    start = f"sys.meta_path[0].sources.update({sources!r})\n"
    start += f"from {_SAME_FILES} import announce\nannounce({', '.join(map(ascii, arguments))})\n"
    start += f"from distrun.agent import main\nmain.main_over_ssh({mark!r})\n"
    return _bootstrap(_agent_modules(), start)


def reattach(mark: bytes, token: str) -> bytes:
    """Return the input that passes a new connection to the running agent with that token."""
    arguments = ", ".join(map(ascii, (mark, token, NO_AGENT, EXIT_NO_AGENT)))
    return _bootstrap(_REATTACH, f"from distrun.agent.reattach import main\nmain({arguments})\n")


def end_former(mark: bytes, *arguments: object) -> bytes:
    """Return the input that ends what an earlier supervisor has left on a host.

    Args:
        mark: is written before the first message.
        arguments: the others of :func:`distrun.agent.former.main`.
    """
    alive = (TASKS_ALIVE, EXIT_TASKS_ALIVE)
    written = ", ".join(map(ascii, (mark, *arguments, EXIT_NO_AGENT, alive)))
    # Compiling all modules again would keep a supervisor from its hosts for a second.
    sources = {name: _file_of(name)[0].read_bytes() for name in _FORMER}
    start = f"sys.meta_path[0].sources.update({sources!r})\n"
    start += f"from distrun.agent.former import main\nmain({written})\n"
    return _bootstrap(_agent_modules(), start)


def _agent_modules() -> tuple[str, ...]:
    """The dotted names of the modules that every agent is sent, packages included."""
    found = {"distrun"}
    for path in (_SOURCES / "distrun" / "agent").rglob("*.py"):
        parts = path.relative_to(_SOURCES).with_suffix("").parts
        found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return tuple(sorted(found.difference({*_FORMER, _SAME_FILES})))


def _file_of(name: str) -> tuple[Path, bool]:
    """A module's file, and whether the module is a package."""
    path = _SOURCES.joinpath(*name.split("."))
    return (path / "__init__.py", True) if path.is_dir() else (path.with_suffix(".py"), False)


def _bootstrap(names: tuple[str, ...], start: str) -> bytes:
    block = zlib.compress((_SECOND + start).encode("ascii")) + _modules(names)
    first = _FIRST.format(oldest=_OLDEST, words=TOO_OLD, too_old=EXIT_TOO_OLD, size=len(block))
    return f"exec({first!r})\n".encode("ascii") + block


@lru_cache(maxsize=2)
def _modules(names: tuple[str, ...]) -> bytes:
    """The version of the compiled code, the packages, the sources by name, and the code."""
    sources: dict[str, bytes] = {}
    codes: dict[str, CodeType] = {}
    # The agent needs nothing that users import from the top package.
    texts = {name: "" if name == "distrun" else _file_of(name)[0].read_text() for name in names}
    packages = [name for name in names if _file_of(name)[1]]
    used = set(re.findall(r"\bCode\.(\w+)", "".join(texts.values())))
    for name, text in texts.items():
        sources[name] = _shorten(text, used)
        if name in _SOURCE_ONLY:
            continue
        tree = ast.parse(sources[name])
        _drop_columns(tree)
        code = compile(tree, name, "exec", dont_inherit=True, optimize=_WITHOUT_DOCSTRINGS)
        codes[name] = _without_qualified_names(code)
    # Every Python reads version 2 of the format. The code is bytes in it, marshalled as one
    # object so that names that many modules use are stored once.
    parts = (MAGIC_NUMBER, packages, sources, _compress(codes))
    return _deflate(marshal.dumps(parts, 2))


def _deflate(block: bytes) -> bytes:
    """The block compressed. With less memory there are more code tables, which fit their parts."""
    deflate = zlib.compressobj(_LEVEL, memLevel=6)
    return deflate.compress(block) + deflate.flush()


def _compress(codes: dict[str, CodeType]) -> bytes:
    """The code compressed; empty if this Python was built without bzip2."""
    try:
        import bz2
    except ImportError:
        return b""
    return bz2.compress(marshal.dumps(codes))


def _drop_columns(tree: ast.Module) -> None:
    """Tracebacks from other hosts show lines only: columns would take a third of all bytes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.end_lineno = node.lineno
            node.col_offset = node.end_col_offset = -1


def _without_qualified_names(code: CodeType) -> CodeType:
    """Tracebacks show only the short names of functions."""
    constants = tuple(
        _without_qualified_names(each) if isinstance(each, CodeType) else each
        for each in code.co_consts
    )
    if sys.version_info >= (3, 11):
        return code.replace(co_consts=constants, co_qualname=code.co_name)
    return code.replace(co_consts=constants)


def _shorten(source: str, codes: Container[str] = ()) -> bytes:
    """The same program without comments, docstrings, and what only type checkers need.

    Every line keeps its number. Members of an enumeration lose their values, which
    :class:`distrun.agent.structs.StrEnum` makes of their names. `codes`: the members of
    :class:`distrun.agent.protocol.Code` that are needed; an agent receives none.
    """
    tree = ast.parse(source)
    lines = source.encode().split(b"\n")
    for row, begin in _comments(source):
        lines[row - 1] = lines[row - 1][:begin].rstrip()
    for row, begin, end in sorted(set(_annotations(tree)), reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:begin].rstrip(b" :->") + line[end:]
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            _replace(lines, node, node, b'""')
        elif isinstance(node, ast.ClassDef) and [*map(ast.unparse, node.bases)] == ["StrEnum"]:
            for member in node.body:
                if isinstance(member, ast.Assign):
                    text = ast.unparse(member.targets[0])
                    is_sent = node.name != "Code" or text in codes
                    _replace(lines, member, member, f'{text}=""'.encode() if is_sent else b"")
    _drop_typing(tree, lines)  # last, because the others are also in blocks for type checkers
    return _indented_by_one(b"\n".join(lines).decode())


def _drop_typing(tree: ast.Module, lines: list[bytes]) -> None:
    """Drop blocks for type checkers, and imports for annotations."""
    used = _used_names(tree)
    for node in tree.body:
        if _is_for_type_checkers(node):
            _replace(lines, node.body[0], node.body[-1], b"pass")
            if not node.orelse:
                _replace(lines, node, node, b"")
        elif isinstance(node, ast.ImportFrom) and node.module == "typing":
            names = [each.name for each in node.names if each.name in used]
            kept = f"from typing import {', '.join(names)}" if names else ""
            _replace(lines, node, node, kept.encode())


def _is_for_type_checkers(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _used_names(tree: ast.Module) -> set[str]:
    """The names that a module uses when it runs: annotations are not evaluated."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if _is_for_type_checkers(node):
            waiting += node.orelse
            found |= {"TYPE_CHECKING"} if node.orelse else set()
            continue
        if isinstance(node, ast.Name):
            found.add(node.id)
        unused = (getattr(node, "annotation", None), getattr(node, "returns", None))
        waiting += [each for each in ast.iter_child_nodes(node) if each not in unused]
    return found


def _indented_by_one(source: str) -> bytes:
    """The same program with one space a level, and none before continuation lines."""
    lines = source.split("\n")
    level, last_row, begins_statement = 0, 0, True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            level += 1 if token.type == tokenize.INDENT else -1
            continue
        row = token.start[0]
        if row > last_row and token.type != tokenize.NL:  # not the rows within a string
            indent = " " * level if begins_statement else ""
            lines[row - 1] = indent + lines[row - 1].lstrip(" ")
        last_row = token.end[0]
        if token.type != tokenize.NL:
            begins_statement = token.type == tokenize.NEWLINE
    return "\n".join(lines).encode()


def _replace(lines: list[bytes], first: ast.stmt, last: ast.stmt, statement: bytes) -> None:
    begin, end = first.lineno - 1, last.end_lineno or last.lineno
    lines[begin] = b" " * first.col_offset + statement
    lines[begin + 1 : end] = [b""] * (end - begin - 1)


def _comments(source: str) -> Iterator[tuple[int, int]]:
    """Row and first byte of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            yield row, len(token.line[:column].encode())


def _annotations(tree: ast.Module) -> Iterator[tuple[int, int, int]]:
    """Row, start and end (in bytes) of each annotation in functions that fits on one row."""
    for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)):
        for node in ast.walk(function):
            found = node.annotation if isinstance(node, ast.arg) else None
            if isinstance(node, ast.FunctionDef):
                found = node.returns
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                found = node.annotation
            if found is not None and found.lineno == found.end_lineno and found.end_col_offset:
                yield found.lineno, found.col_offset, found.end_col_offset
