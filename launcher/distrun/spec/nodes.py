"""Nodes of YAML with their places: what is written, and its value by the core schema of YAML 1.2.

Source of the rules: https://yaml.org/spec/1.2.2/#103-core-schema
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from distrun.frozen import Frozen
from distrun.spec.problems import Mark, quoted

# Compiled when first used: every command imports this module, few read YAML.
_INT = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = (
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_LONGEST_NUMBER = 100
_PLAIN = re.compile(r"(?!(?:true|false|null|~)\Z)-{0,2}[\w./$~][\w./=+$-]*", re.IGNORECASE)
"""Texts that need no quotes."""


class Scalar(Frozen):
    """A text as in the file; `plain` if it is written without quotes.

    `expanded`: it contains the value of a variable, which may be meant as a number or as text.
    """

    mark: Mark
    text: str
    plain: bool = True
    expanded: bool = False

    @property
    def value(self) -> bool | int | float | str | None:
        """The value of the text by the core schema."""
        if not self.plain and not (self.expanded and self.text):
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        if re.fullmatch(_INT, self.text) and len(self.text) <= _LONGEST_NUMBER:
            return int(self.text, {"0o": 8, "0x": 16}.get(self.text[:2], 10))
        if re.fullmatch(_FLOAT, self.text):
            ends_in_word = self.text[-1].isalpha()  # .inf and .nan, which Python writes without "."
            return float(self.text.replace(".", "") if ends_in_word else self.text)
        return self.text

    @property
    def empty(self) -> bool:
        return self.plain and not self.text


class Sequence(Frozen):
    """A list."""

    mark: Mark
    items: tuple[Node, ...]


class Entry(Frozen):
    """One key of a mapping and its value."""

    key: Scalar
    value: Node


class Mapping(Frozen):
    """Keys and values in the file's order. No key occurs twice."""

    mark: Mark
    entries: tuple[Entry, ...]

    def get(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key.text == name), None)


Node: TypeAlias = Scalar | Sequence | Mapping


def describe(node: Node) -> str:
    """A node in words, for a message."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    value = node.value
    if value is None:
        return "empty" if node.empty else quoted(node.text)
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    return quoted(node.text)[1:-1]


def flow_style(value: Any) -> str:
    """A value as YAML on one line, for examples in messages and in the reference."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {flow_style(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow_style(one) for one in value) + "]"
    if not isinstance(value, str) or _PLAIN.fullmatch(value):
        return str(value)
    return "'{}'".format(value.replace("'", "''"))
