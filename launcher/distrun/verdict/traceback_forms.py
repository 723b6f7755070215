"""Tracebacks as loggers and pretty printers write them, in the plain form of Python.

Known are rich, IPython, loguru, stackprinter, pretty_errors, Ray, loggers that write one JSON
object or one escaped text a line, and prefixes such as those of mpirun.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import Any

START = "Traceback (most recent call last):"
_HEAD = "Traceback (most recent call last)"
_RICH_START = re.compile(
    r"\s*(?:[╭┌+][─━-]+|[─━-]{2,}) Traceback \(most recent call last\) [─━-]+[╮┐+]?\s*$"
)
_RICH_LINE = re.compile(r"\s*[│┃|] (?P<text>(?:.*\S)?)\s*[│┃|]\s*$")
_RICH_END = re.compile(r"\s*[╰└+][─━-]+[╯┘+]\s*$")
_RICH_ERROR = re.compile(r"\s*[╭┌+]?[─-]+ (?:Error|Parsing error|\w+ options) [─-]+[╮┐+]?\s*$")
"""Above what click or tyro refuses, in a box of typer, of rich-click or of tyro."""
_RICH_FRAME = re.compile(r"(?P<path>\S.*?):(?P<line>\d{1,9})(?: in (?P<name>\S*))?$")
_IPYTHON_START = re.compile(r"[\w.]+\s{3,}Traceback \(most recent call last\)$")
_IPYTHON_FRAME = re.compile(
    r"(?:File )?(?P<path>~?/?[^\s:]+|Cell In ?\[\d+\])"
    r"(?::(?P<line>\d{1,9})|, line (?P<number>\d{1,9}))"
    r"(?:, in (?P<name>[\w.<>]+).*)?$"
)
_IPYTHON_7_FRAME = re.compile(r"(?P<path>[^\s:]*[/.<][^\s:]*) in (?P<name>[\w.<>]+)")
_IPYTHON_7_LINE = re.compile(r"-+> *(\d{1,9}) ")
_PYTEST_ERROR = re.compile(r"E {3,}(\S.*)$")
_PYTEST_PLACE = re.compile(r"(\S+\.py):(\d{1,9}): ")
_MOST_PYTEST_LINES = 40
"""From the error to its place."""
_FRAMES = ('"exc_type":', '"stack_trace":', '"lineno":')
"""Keys of JSON objects whose frames are objects, or a text without its first line."""
_HEADLESS = re.compile(
    r"\s{0,2}File \"([^\"]+)\", line (\d{1,9}), in (.+)$|(\S+\.py) (\d{1,9}) ([\w.<>]+)$"
)
"""A frame of stackprinter or Ray, or one of pretty_errors, which write no line above the first."""
_RAISED = re.compile(
    r"(?:(?:(?:\w+\.)+\w*|\w+)(?:Error|Exit|Interrupt|Iteration|Warning)|(?:\w+\.)*\w*Exception)"
    r"(?:: |:?$)"
)
_MOST_HEADLESS_LINES = 100
"""From the first frame to the exception."""
_IPYTHON_CODE = re.compile(r"-+> *\d+ |\s*\d+ |-+>")
_GROUP = re.compile(r"\s*[|+]")
_MOST_DEPTH = 6


def plain_lines(lines: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return lines with each traceback in Python's form, and the index that each had."""
    marks = (_HEAD, *_FRAMES)
    is_known = any(any(mark in line for mark in marks) or line[:4] == "E   " for line in lines)
    found = list(_plain(lines) if is_known else _with_heads(lines))
    return [line for line, _ in found], [index for _, index in found]


def _plain(lines: Sequence[str]) -> Iterator[tuple[str, int]]:
    inside, prefix, frame = "", re.compile(""), ""
    for index, line in enumerate(lines):
        if _RICH_START.match(line):
            inside = "rich"
            yield START, index
        elif _IPYTHON_START.match(line):
            inside = "ipython"
            yield START, index
        elif inside.startswith("rich"):
            after = "".join(lines[index + 1 : index + 2])
            text, frame, inside = _of_rich(line, frame, inside, after)
            yield text, index
        elif inside == "ipython" and line:
            text, frame = _of_ipython(line, frame)
            inside = inside if text[0].isspace() else ""
            yield text, index
        elif inside == "stripped":
            text, frame = _of_stripped(prefix.sub("", line, count=1), frame)
            inside = inside if text[:1].isspace() else ""
            yield text, index
        elif line.startswith("E   ") or _may_be_escaped(line):
            is_pytest = line.startswith("E   ")
            found = _of_pytest(lines, index) if is_pytest else _escaped(line)
            yield from ((each, index) for each in found)
        else:
            before, start, rest = line.partition(START)
            after = lines[index + 1] if index + 1 < len(lines) else ""
            is_start = bool(start) and not rest
            is_prefix = is_start and before.strip() and not _GROUP.match(before)
            is_stripped = is_start and _alike(f'{before}File "').match(after)  # by a shell's read
            if is_stripped or (is_prefix and _alike(f"{before}  File ").match(after)):
                prefix, inside, frame = _alike(before), "stripped" if is_stripped else "", ""
            elif not prefix.match(line):
                prefix = re.compile("")
            text = prefix.sub("", line, count=1)
            yield f"  {text[2:]}" if text.startswith("> File ") else text, index


def _with_heads(lines: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield lines with a first line above frames that have none and end in an exception."""
    ends, stop = [at for at, line in enumerate(lines) if _RAISED.match(line)], 0
    for index, line in enumerate(lines):
        frame = _HEADLESS.match(line) if ends else None
        if frame is not None and index >= stop and _may_be_first(lines, index):
            end = ends[min(bisect(ends, index), len(ends) - 1)]
            stop = end if 0 < end - index < _MOST_HEADLESS_LINES else 0
            yield from [(START, index)] if stop else []
        boxed = _RICH_LINE.match(line) if index and _RICH_ERROR.match(lines[index - 1]) else None
        if index >= stop:
            yield (line if boxed is None else f"Error: {boxed['text']}"), index
        elif frame is None:
            yield f"    {line}", index
        else:
            yield _frame(*filter(None, frame.groups())), index


def _may_be_first(lines: Sequence[str], index: int) -> bool:
    """Whether a frame may be the first of an exception: other stacks, and lists, look alike."""
    above = lines[index - 1].strip() if index else ""
    if lines[index][0].isspace():  # Ray's
        return "ray::" in above
    return lines[index].startswith("File ") or not above


def _may_be_escaped(line: str) -> bool:
    return any(mark in line for mark in _FRAMES) or ("\\n" in line and _HEAD in line)


def _frame(path: Any, line: Any, name: Any) -> str:
    return f'  File "{path}", line {line}, in {name or "<module>"}'


def _of_rich(line: str, before: str, inside: str, after: str) -> tuple[str, str, str]:
    """Return a line, what of a path or an error goes on in the next one, and the part that is in.

    Rich breaks lines that are too long: paths anywhere, and errors behind a space. Its handler for
    logs sets all of them in, and fills them with spaces.
    """
    if inside == "rich error":
        text, depth = before + line.strip(), len(line) - len(line.lstrip())
        is_broken = after[:depth].isspace() if depth else line.endswith(" ")
        return ("    ", f"{text} ", inside) if is_broken and after.strip() else (text, "", "")
    if _RICH_END.match(line):
        return "    ", "", "rich error"
    inner = _RICH_LINE.match(line)
    text = "" if inner is None else before + inner["text"]
    frame = _RICH_FRAME.match(text)
    if frame is not None:
        return _frame(frame["path"], frame["line"], frame["name"]), "", inside
    cut = re.match(r"/\S+( in)?$", text)
    return f"    {text}", "" if cut is None else text + (" " if cut[1] else ""), inside


def _of_stripped(line: str, before: str) -> tuple[str, str]:
    """Return a line without its indentation with it, and the frame that it is, if it is one."""
    if line.startswith('File "'):
        return f"  {line}", line
    return f"    {line}" if before or not line.strip("^~ ") else line, ""


def _alike(text: str) -> re.Pattern[str]:
    """The pattern of a line's beginning with other numbers, such as the time."""
    return re.compile(re.sub(r"\d+", lambda _: r"\d+", re.escape(text)))


def _of_pytest(lines: Sequence[str], index: int) -> list[str]:
    """Return the exception that a line begins, and its place; nothing if it is none of pytest."""
    error = _PYTEST_ERROR.match(lines[index])
    is_first = index == 0 or lines[index - 1][:4] != "E   "
    after = lines[index + 1 : index + _MOST_PYTEST_LINES]
    place = next(filter(None, map(_PYTEST_PLACE.match, after)), None)
    if error is None or place is None or not is_first:
        return [lines[index]]
    kind = place.string[place.end() :]
    said = error[1] if kind in error[1] else f"{kind}: {error[1]}"
    return [START, _frame(place[1], place[2], None), said]


def _of_ipython(line: str, before: str) -> tuple[str, str]:
    """Return a line, and the frame of which a later line has the number, as IPython 7 has it."""
    older, number = _IPYTHON_7_FRAME.match(line), _IPYTHON_7_LINE.match(line)
    if older is not None:
        return "    ", _frame(older["path"], "0", older["name"])
    if before and number is not None:
        return before.replace("line 0", f"line {number[1]}"), ""
    frame = _IPYTHON_FRAME.match(line)
    if frame is not None:
        return _frame(frame["path"], frame["line"] or frame["number"], frame["name"]), ""
    return (f"    {line}" if _IPYTHON_CODE.match(line) else line), before


def _escaped(line: str) -> Iterator[str]:
    """Yield the traceback in a JSON object, or in an escaped text."""
    try:
        text = next(_texts(json.loads(line[line.index("{") :])), "")
    except (ValueError, RecursionError):
        text = ""
    if not text and _HEAD in line:
        text = line[line.index(_HEAD) :].rstrip("\"'}] ").removesuffix("\\n")
        text = re.sub(r"\\(n|[\"'])", lambda each: each[1].replace("n", "\n"), text)
    if text:
        yield from text[text.index(_HEAD) :].rstrip("\n").split("\n")
    else:
        yield line


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts in a JSON value that are tracebacks."""
    if isinstance(value, str):
        if _HEAD in value:
            yield value
    elif isinstance(value, dict) and (lines := _lines_of_frames(value)):
        kind, said = (value.get(key) for key in ("exc_type", "exc_value"))
        kind, said = kind or value.get("type"), said or value.get("message")
        error = f"{kind}: {said}" if kind else value.get("exception")
        yield "\n".join([START, *lines, str(error)])
    elif depth < _MOST_DEPTH and isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each, depth + 1)


def _lines_of_frames(value: dict[str, Any]) -> list[str]:
    """Return the frames of an exception in a JSON object; none: it has none."""
    text = value.get("stack_trace")
    if isinstance(text, str) and text.lstrip().startswith('File "'):
        return text.rstrip("\n").split("\n")
    for items in value.values():
        frames = [each for each in items if isinstance(each, dict)] if type(items) is list else []
        if frames and all("filename" in each and "lineno" in each for each in frames):
            names = (each.get("name") or each.get("func") for each in frames)
            pairs = zip(frames, names, strict=True)
            return [_frame(each["filename"], each["lineno"], name) for each, name in pairs]
    return []
