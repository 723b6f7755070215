"""The agent's modules as they are sent to a host: short sources, and compiled code.

Docstrings, comments, annotations in functions and imports for them, most of the indentation, values
of enumerations, codes of causes that no agent makes, column numbers and qualified names are left
out. bzip2 would make the code a quarter smaller than zlib does, but takes 6 ms to read it.
"""

from __future__ import annotations

import ast
import io
import marshal
import re
import sys
import tokenize
import zlib
from importlib.util import MAGIC_NUMBER
from types import CodeType
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping

_LEVEL = 9
"""The best compression of zlib: the modules are sent to every host."""
_WITHOUT_DOCSTRINGS = 2


def pack(texts: Mapping[str, str], packages: Collection[str], source_only: Container[str]) -> bytes:
    """Return the version of the compiled code, the packages, the sources and the code, compressed.

    Args:
        texts: the source of each module, by its dotted name.
        packages: the names of those that are packages.
        source_only: the names of those that are not sent compiled.
    """
    sources: dict[str, bytes] = {}
    codes: dict[str, CodeType] = {}
    used = set(re.findall(r"\bCode\.(\w+)", "".join(texts.values())))
    for name, text in texts.items():
        sources[name] = shorten(text, used)
        if name in source_only:
            continue
        tree = ast.parse(sources[name])
        _drop_columns(tree)
        code = compile(tree, name, "exec", dont_inherit=True, optimize=_WITHOUT_DOCSTRINGS)
        codes[name] = _without_qualified_names(code)
    # Every Python reads version 2 of the format. The code is bytes in it, marshalled as one
    # object so that names that many modules use are stored once.
    parts = (MAGIC_NUMBER, list(packages), sources, marshal.dumps(codes))
    return _deflate(marshal.dumps(parts, 2))


def _deflate(block: bytes) -> bytes:
    """The block compressed. With less memory there are more code tables, which fit their parts."""
    deflate = zlib.compressobj(_LEVEL, memLevel=6)
    return deflate.compress(block) + deflate.flush()


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


def shorten(source: str, codes: Container[str] = ()) -> bytes:
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
            others = [name for name in names if name != "TYPE_CHECKING"]
            kept = [f"from typing import {', '.join(others)}"] if others else []
            kept += ["TYPE_CHECKING=False"] if len(others) < len(names) else []
            _replace(lines, node, node, ";".join(kept).encode())


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
