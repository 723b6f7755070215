"""Parses YAML into nodes with positions, by the core schema of YAML 1.2.

PyYAML's parser only provides events (structure, text and positions); :mod:`.nodes` decides which
texts are numbers. No other objects are constructed, and whatever can grow without bound in YAML is
limited (aliases of aliases, nesting, directives).
"""

from __future__ import annotations

import json
import os
import re
from collections import abc
from collections.abc import Iterator
from typing import Any, NoReturn
from unicodedata import east_asian_width

import yaml

from distrun.spec.nodes import Entry, Mapping, Node, Scalar, Sequence, describe
from distrun.spec.problems import Mark, Problems, printable, quoted

# Both have the same grammar and positions; libyaml's is 20 times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_BYTES = 1 << 20 if yaml.__with_libyaml__ else 1 << 16
MAX_DEPTH = 64
MAX_NODES = 50_000

OF_PROGRAM = "the spec"
"""The name of a spec that a program has made."""

_AROUND = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)
_CLOSED = re.compile("flow|quoted")
"""In what libyaml says of brackets and quotes, which need an end."""
_WIDEST = 72
"""Characters of a line that are shown."""

# All but YAML's printable characters (section 5.1). Python lets half surrogates through.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DIRECTIVE = re.compile(r"^%(?:TAG|YAML (?!1\.))\S*", re.MULTILINE)


class Verbatim(str):
    """A text for a key that takes numbers as they are written: they need no quotes."""

    __slots__ = ()


def node_of(
    value: Any,
    place: str,
    problems: Problems,
    marks: abc.Mapping[str, Mark] | None = None,
    depth: int = 0,
) -> Node:
    """Return the node of a value of Python, as if it was written, so deep in others.

    Its mark is `place`, a key; or that of `marks` for the key, or for the nearest around it.
    """
    if hasattr(value, "tolist"):  # numbers and arrays of numpy and pandas
        value = _of_numpy(value)
    mark = Mark(place or OF_PROGRAM) if marks is None else _nearest_mark(place, marks)
    if depth > MAX_DEPTH:
        problems.add(mark, "this is nested too deeply")
        return Scalar(mark, "")
    if isinstance(value, abc.Mapping):
        entries = []
        for key, each in value.items():
            inner = f"{place}.{key}" if place else str(key)
            node = node_of(each, inner, problems, marks, depth + 1)
            at = mark if marks is None else node.mark
            entries.append(Entry(Scalar(at, key if isinstance(key, str) else repr(key)), node))
        return Mapping(mark, tuple(entries))
    if isinstance(value, (list, tuple)):
        items = (
            node_of(each, f"{place}[{index}]", problems, marks, depth + 1)
            for index, each in enumerate(value)
        )
        return Sequence(mark, tuple(items))
    if isinstance(value, (str, os.PathLike)):
        text = str(os.fsdecode(value))
        if marks is None and (bad := _FORBIDDEN.search(text)):
            problems.add(mark, f"the character {bad[0]!r} is not allowed")
        kinds = (str, int, float) if isinstance(value, Verbatim) else (str,)
        return Scalar(mark, text, plain=type(Scalar(mark, text).value) in kinds)
    if value is None:
        problems.add(mark, "None is not a value of a spec", "leave it out")
    elif not isinstance(value, (bool, int, float)):
        hint = "put it into a script" if callable(value) else "write it as a text"
        problems.add(mark, f"{type(value).__name__} is not a value of a spec", hint)
    return Scalar(mark, json.dumps(value, default=repr))


def _of_numpy(value: Any) -> Any:
    """Return a number or an array as Python has it; a float32 as it is shown, not as a double."""
    found = value.tolist()
    if isinstance(found, list):
        return list(value)
    return float(str(value)) if isinstance(found, float) else found


def _nearest_mark(place: str, marks: abc.Mapping[str, Mark]) -> Mark:
    while place not in marks:
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return marks[place]


def parse(text: str, file: str, problems: Problems, *, whole: Mark | None = None) -> Node | None:
    """The one document in `text`, or None after adding a problem.

    With `whole`, every node has this place (for a text that is not a file).
    """
    found = parse_all(text, file, problems, whole=whole, most=1)
    return next(iter(found), None)


def parse_all(
    text: str, file: str, problems: Problems, *, whole: Mark | None = None, most: int | None = None
) -> list[Node]:
    """The documents in `text`, at least one and at most so many; none after adding a problem."""
    composer = _Composer(file, problems, whole)
    bad = _FORBIDDEN.search(text)
    if bad:
        message = f"the character {quoted(bad[0])} is not allowed in YAML"
        hint = "remove it, or write it as an escape in double quotes"
        problems.add(composer.mark_at(text, bad.start()), message, hint)
        return []
    if directive := _DIRECTIVE.search(text):
        mark, what = composer.mark_at(text, directive.start()), directive[0].split()[0]
        problems.add(mark, f"{what} is not used here", f"remove the {what} line")
        return []
    try:
        return composer.documents(yaml.parse(text, Loader=_LOADER), most)
    except _RejectedError:
        return []
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        context, begin = f"{error.context}, " if error.context else "", error.context_mark
        if begin and place and begin.line < place.line and _CLOSED.search(context):
            context = context.replace(",", f" that begins in line {begin.line + 1},")
            if not "".join(text.split("\n")[place.line :]).strip():
                place = begin  # the end of the file shows nothing
        if begin and "simple key" in context:
            place = begin  # what lacks the colon
        hint = _syntax_hint(text, place, error.problem or "") if place else ""
        problems.add(composer.mark(place), f"not valid YAML: {context}{error.problem}", hint)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Errors of PyYAML's reader, and of escapes outside Unicode, have no position.
        problems.add(whole or Mark(file, 1, 1), f"not valid YAML: {error}")
    return []


def _syntax_hint(text: str, place: Any, problem: str) -> str:
    """A hint for the line of a syntax error: the line, and a caret below the place."""
    lines = text.split("\n")
    culprit = lines[place.line] if place.line < len(lines) else ""
    if re.match(r"\s*\t", culprit):
        return "indent with spaces, not tabs"
    start = max(0, place.column - _WIDEST // 2)
    shown = printable(culprit[start : start + _WIDEST])
    before = printable(culprit[start : place.column])
    caret = "".join("  " if east_asian_width(each) in "WF" else " " for each in before)
    is_reserved = culprit[place.column : place.column + 1] in tuple("@`%")
    is_range = re.match(r"[\w-]\[\d", culprit[max(0, place.column - 1) :]) is not None
    is_variable = "${" in culprit[max(0, place.column - 2) : place.column + 1]
    is_alias = place.column and culprit[place.column - 1] in "*&"
    is_text = is_reserved or is_range or is_variable or is_alias
    remedy = "put quotes around the text; " if is_text else ""
    if problem.startswith(("did not find expected key", "did not find expected '-'")):
        remedy = "check the indentation; "
    if problem.startswith("could not find expected ':'"):
        remedy = "write ': ', a colon and a space, after a key; "
    if problem.startswith("mapping values are not allowed"):
        remedy = "check the indentation and the space after each ':', or put quotes around a text "
        remedy += "with a colon; "
    return f"{remedy}here:\n    {shown}\n    {caret}^" if shown else ""


class _RejectedError(Exception):
    """The whole document is rejected. The problem has been added."""


class _Composer:
    def __init__(self, file: str, problems: Problems, whole: Mark | None) -> None:
        self._file = file
        self._problems = problems
        self._whole = whole
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        self._count = 0

    def mark(self, mark: Any) -> Mark:
        if self._whole is not None:
            return self._whole
        return Mark(self._file, mark.line + 1, mark.column + 1) if mark else Mark(self._file, 1, 1)

    def mark_at(self, text: str, offset: int) -> Mark:
        before = text[:offset]
        column = offset - before.rfind("\n")
        return self._whole or Mark(self._file, before.count("\n") + 1, column)

    def documents(self, events: Iterator[Any], most: int | None) -> list[Node]:
        roots: list[Node] = []
        for event in events:
            if isinstance(event, _AROUND):
                continue
            if len(roots) == most:
                hint = "a spec is one document; remove the '---' and what does not belong"
                self._reject(event, "a second document begins here", hint)
            self._anchors.clear()
            roots.append(self._node(next(events), events, 0))
        return roots or [Scalar(self.mark(None), "")]

    def _reject(self, event: Any, message: str, hint: str = "") -> NoReturn:
        self._problems.add(self.mark(event.start_mark), message, hint)
        raise _RejectedError

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        self._charge(event, 1)
        if depth > MAX_DEPTH:
            self._reject(event, f"nested more than {MAX_DEPTH} deep", "no spec needs that")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            message = f"the YAML tag {quoted(tag)} is not allowed"
            self._problems.add(
                self.mark(event.start_mark), message, "write the value without a tag"
            )
        before = self._count
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # being built: an alias to it would be endless
        node = self._build(event, events, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._count - before + 1)
        return node

    def _build(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        mark = self.mark(event.start_mark)
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(mark, event.value, plain=event.implicit[0])
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(self._node(item, events, depth + 1))
            return Sequence(mark, tuple(items))
        entries: dict[str, Entry] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            self._entry(key, events, depth, entries)
        return Mapping(mark, tuple(entries.values()))

    def _entry(
        self, event: Any, events: Iterator[Any], depth: int, entries: dict[str, Entry]
    ) -> None:
        key = self._node(event, events, depth + 1)
        value = self._node(next(events), events, depth + 1)
        mark = self.mark(event.start_mark)
        if not isinstance(key, Scalar):
            self._problems.add(mark, f"a key must be text, not {describe(key)}")
        elif key.text in entries:
            first = entries[key.text].key.mark
            where = f" (first in line {first.line})" if first.line else ""
            message = f"the key {quoted(key.text)} is given twice{where}"
            self._problems.add(mark, message, "keep one of them")
        else:
            entries[key.text] = Entry(Scalar(mark, key.text, key.plain), value)

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            message = f"the alias '*{event.anchor}' names no anchor before it"
            self._reject(event, message, "put quotes around a text that begins with '*'")
        found = self._anchors[event.anchor]
        if found is None:
            self._reject(event, f"the alias '*{event.anchor}' contains itself")
        node, size = found
        self._charge(event, size)
        return node

    def _charge(self, event: Any, nodes: int) -> None:
        self._count += nodes
        if self._count > MAX_NODES:
            message = f"more than {MAX_NODES} values, aliases counted in full"
            self._reject(event, message, "no spec needs that many")
