"""Tracebacks as loggers and pretty printers write them, in the plain form of Python.

Known are rich, IPython, loguru, loggers that write one JSON object or one escaped text a line, and
prefixes such as those of mpirun.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

START = "Traceback (most recent call last):"
_HEAD = "Traceback (most recent call last)"
_RICH_START = re.compile(r"\s*[╭┌+]?[─━-]{2,} Traceback \(most recent call last\) [─━-]+[╮┐+]?\s*$")
_RICH_LINE = re.compile(r"\s*[│┃|] (?P<text>.*?)\s*[│┃|]\s*$")
_RICH_END = re.compile(r"\s*[╰└+][─━-]+[╯┘+]\s*$")
_RICH_FRAME = re.compile(r"(?P<path>\S.*?):(?P<line>\d{1,9})(?: in (?P<name>\S*))?$")
_IPYTHON_START = re.compile(r"[\w.]+\s{3,}Traceback \(most recent call last\)$")
_IPYTHON_FRAME = re.compile(
    r"(?:File )?(?P<path>~?/?[^\s:]+|Cell In ?\[\d+\])"
    r"(?::(?P<line>\d{1,9})|, line (?P<number>\d{1,9}))"
    r"(?:, in (?P<name>[\w.<>]+).*)?$"
)
_IPYTHON_CODE = re.compile(r"-+> *\d+ |\s*\d+ |-+>")
_GROUP = re.compile(r"\s*[|+]")
_MOST_DEPTH = 6


def plain_lines(lines: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return lines with each traceback in Python's form, and the index that each had."""
    if not any(_HEAD in line for line in lines):
        return list(lines), list(range(len(lines)))
    found = list(_plain(lines))
    return [line for line, _ in found], [index for _, index in found]


def _plain(lines: Sequence[str]) -> Iterator[tuple[str, int]]:
    inside, prefix = "", ""
    for index, line in enumerate(lines):
        if _RICH_START.match(line):
            inside = "rich"
            yield START, index
        elif _IPYTHON_START.match(line):
            inside = "ipython"
            yield START, index
        elif inside == "rich":
            inside = "" if _RICH_END.match(line) else inside
            yield _of_rich(line), index
        elif inside == "ipython" and line:
            text = _of_ipython(line)
            inside = inside if text[0].isspace() else ""
            yield text, index
        elif "\\n" in line and _HEAD in line:
            yield from ((each, index) for each in _escaped(line))
        else:
            before, start, rest = line.partition(START)
            after = lines[index + 1] if index + 1 < len(lines) else ""
            is_prefix = before.strip() and not _GROUP.match(before)
            if start and not rest and is_prefix and after.startswith(f"{before}  File "):
                prefix = before
            elif prefix and not line.startswith(prefix):
                prefix = ""
            text = line[len(prefix) :]
            yield f"  {text[2:]}" if text.startswith("> File ") else text, index


def _frame(path: str, line: str, name: str | None) -> str:
    return f'  File "{path}", line {line}, in {name or "<module>"}'


def _of_rich(line: str) -> str:
    inner = _RICH_LINE.match(line)
    frame = None if inner is None else _RICH_FRAME.match(inner["text"])
    if frame is None:
        return "    " + ("" if inner is None else inner["text"])
    return _frame(frame["path"], frame["line"], frame["name"])


def _of_ipython(line: str) -> str:
    frame = _IPYTHON_FRAME.match(line)
    if frame is not None:
        return _frame(frame["path"], frame["line"] or frame["number"], frame["name"])
    return f"    {line}" if _IPYTHON_CODE.match(line) else line


def _escaped(line: str) -> Iterator[str]:
    """Yield the traceback in a JSON object, or in an escaped text."""
    try:
        text = next(_texts(json.loads(line[line.index("{") :])), "")
    except (ValueError, RecursionError):
        text = ""
    if not text:
        text = line[line.index(_HEAD) :].replace("\\n", "\n").replace('\\"', '"').rstrip("\"'}] ")
    yield from text[text.index(_HEAD) :].rstrip("\n").split("\n")


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts in a JSON value that are tracebacks."""
    if isinstance(value, str):
        if _HEAD in value:
            yield value
    elif depth < _MOST_DEPTH and isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each, depth + 1)
