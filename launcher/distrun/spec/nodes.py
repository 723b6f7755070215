"""Nodes of YAML with their places: what is written, and its value by the core schema of YAML 1.2.

Source of the rules: https://yaml.org/spec/1.2.2/#103-core-schema

`${NAME}` in values stands for a variable of the launching environment. Only this form is expanded:
`$NAME`, `${NAME:-text}` and the like belong to shells. `$${NAME}` stands for the text `${NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as Environ
from typing import Any, TypeAlias

from distrun.frozen import Frozen, replace
from distrun.spec.problems import Mark, Problems, quoted

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
REFERENCE = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
_VARIABLE = re.compile(rf"\$?{REFERENCE}")


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
        return str(value).lower() if isinstance(value, bool) else str(value)
    return "'{}'".format(value.replace("'", "''"))


def expand(root: Node, environ: Environ[str, str], problems: Problems) -> Node:
    """Expand the variables in all values, unless `vars` is off. Unset ones become problems."""
    setting = root.get("vars") if isinstance(root, Mapping) else None
    if setting is not None and isinstance(setting.value, Scalar) and setting.value.text == "off":
        return root

    def expanded(scalar: Scalar) -> Scalar:
        def value_of(match: re.Match[str]) -> str:
            text = match[0]
            if text.startswith("$$"):
                return text[1:]
            name = text[2:-1]
            if name not in environ:
                hint = f"set it, write $${{{name}}} for the text, or write 'vars: off'"
                message = f"the variable {quoted(name)} is not set here"
                problems.add(scalar.mark, message, hint, is_only=True)
            return environ.get(name, text)

        text = _VARIABLE.sub(value_of, scalar.text)
        # An empty value is an empty text, not nothing.
        return replace(scalar, text=text, plain=scalar.plain and bool(text), expanded=True)

    return _changed(root, expanded)


def escape(root: Node) -> Node:
    """Return nodes that :func:`expand` turns into these, whatever is set."""
    return _changed(root, lambda each: replace(each, text=_VARIABLE.sub(r"$\g<0>", each.text)))


def _changed(node: Node, change: Callable[[Scalar], Scalar]) -> Node:
    if isinstance(node, Scalar):
        return change(node) if "${" in node.text else node
    if isinstance(node, Sequence):
        return replace(node, items=tuple(_changed(each, change) for each in node.items))
    entries = (Entry(each.key, _changed(each.value, change)) for each in node.entries)
    return replace(node, entries=tuple(entries))
