"""Error messages that TensorFlow and Keras wrap in others: the line that says what is wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distrun.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

_IN_CODE = ("in user code:", "in converted code:")
"""AutoGraph's. The lines of the program follow, then the error, all with one indentation."""
_NODE = "Detected at node"
"""Where the program made an operation. The indented lines that follow name that place."""
_WRAPPERS = re.compile(
    r"Exception encountered when calling |.*\bGraph execution error:$|.*\bError encountered:$"
    r"|\d+ root error\(s\) found\.$|Node: ['{]|<stack traces unavailable>$"
    r"|The above exception was raised while "
)
"""Lines of which the next one that is not empty says more."""
_FRAME = re.compile(r"File \"|\S+:\d+ \S+|relative to ")
ARGUMENTS = re.compile(r"\s*(?:Call a|A)rguments received by |\s*Received: ")
"""What the failed call was given follows; the error is above."""
_TYPE = re.compile(r"[A-Za-z_][\w.<>]*(?=:|$)")
_TYPED = re.compile(r"((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning)): (.*)")
_ANY_TYPED = re.compile(r"([A-Za-z_][\w.]*):(?: (.*)|$)")
_PREFIX = re.compile(
    r"\{\{function_node [^}]*\}\} |\(\d+\) [A-Za-z_ ]+: +"
    r"|Error in user-defined function passed to \S+ transformation with iterator: \S+: "
    r"|Collective ops is aborted by: (?=Collective |Shape mismatch |Device )"
)
"""What TensorFlow puts before an error: where in a graph it arose."""

_SUFFIX = re.compile(r" \[Op:\w+\](?: name:.*)?$")
_BUILD = "Unable to automatically build the model"
_ESCAPE = re.compile(r"\\x1b\[\d*m")
_QUOTES = "\"'"


class Message(Frozen, kw_only=True):
    """The message of an exception, without what it is wrapped in.

    Attributes:
        index: the line that says what is wrong.
        stop: the first line after it.
        type: the type of the exception that says it, with its module.
        text: that line without the operation's name; empty if the exception has no message.
    """

    index: int
    stop: int
    type: str
    text: str

    def __str__(self) -> str:
        name = self.type.rpartition(".")[2]
        return f"{name}: {self.text}" if self.text else name


def type_of(line: str) -> str:
    """Return the type, with its module, in a line that names an exception."""
    match = _TYPE.match(line)
    return match[0] if match is not None else ""


def unwrap(lines: Sequence[str], first: int, stop: int) -> Message:
    """Return what an exception says. `first`: the line that names it; `stop`: its message's end."""
    line = lines[first].strip()
    kind = type_of(line)
    text = line[len(kind) :].removeprefix(":").strip() if kind else line
    index: int | None = first
    last = first
    while index is not None:
        last = index
        if text.endswith(_IN_CODE):
            index = _after_frames(lines, index + 1, stop)
            pattern = _ANY_TYPED
        else:
            index = _after_wrapper(lines, index, stop, text)
            pattern = _TYPED
        if index is not None:
            text = lines[index].strip()
            match = pattern.match(text)
            kind, text = (match[1], match[2] or "") if match is not None else (kind, text)
    if "\\n" in text and _WRAPPERS.match(text.lstrip(_QUOTES)):
        # A KeyError shows its message as Python writes a string: on one line.
        shown = _ESCAPE.sub("", text.strip(_QUOTES)).split("\\n")
        inner = unwrap(shown, 0, len(shown)).text
        text = repr(inner) if kind == "KeyError" else inner
    end = (each for each in range(last + 1, stop) if ARGUMENTS.match(lines[each]))
    return Message(
        index=last,
        stop=next(end, stop),
        type=kind,
        text=_without_operation(text),
    )


def _without_operation(text: str) -> str:
    start = 0
    while match := _PREFIX.match(text, start):
        start = match.end()
    return _SUFFIX.sub("", text[start:])


def _after_wrapper(lines: Sequence[str], index: int, stop: int, text: str) -> int | None:
    """Return the line that says more than the one at `index`; None if that says it itself."""
    if text.startswith(_NODE):
        depth = _depth(lines[index])
        rest = (i for i in range(index + 1, stop) if lines[i].strip())
        return next((i for i in rest if _depth(lines[i]) <= depth), None)
    if text.startswith(_BUILD):
        above = (i for i in range(index + 1, stop - 1) if lines[i] == "Exception encountered:")
        return next((i + 1 for i in above), None)
    if _WRAPPERS.match(text.lstrip(_QUOTES)) and "\\n" not in text:
        return next((i for i in range(index + 1, stop) if lines[i].strip()), None)
    return None


def _after_frames(lines: Sequence[str], first: int, stop: int) -> int | None:
    """Return the first line that is indented like the frames at `first` and is none itself."""
    depth = None
    for index in range(first, stop):
        line = lines[index]
        if not line.strip():
            continue
        depth = _depth(line) if depth is None else depth
        if _depth(line) < depth:
            return None
        if _depth(line) == depth and not _FRAME.match(line.strip()):
            return index
    return None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
