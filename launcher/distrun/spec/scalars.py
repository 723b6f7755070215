"""Schemas of single values: text, numbers, one of a few words, durations, sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from distrun.frozen import Frozen
from distrun.spec import units
from distrun.spec.nodes import REFERENCE, Node, Scalar
from distrun.spec.problems import Problems, quoted
from distrun.spec.schema import FAILED, JsonSchema, alternatives, bad_character, mismatch


class ScalarSchema(Frozen):
    """One value, or a text with a variable that has it."""

    @property
    def expected(self) -> str:
        raise NotImplementedError

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar):
            return self.read_scalar(node, path, problems)
        return mismatch(node, path, self.expected, problems)

    def read_scalar(self, node: Scalar, path: str, problems: Problems) -> Any:
        raise NotImplementedError

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [self.own_schema(), {"type": "string", "pattern": REFERENCE}]}

    def own_schema(self) -> JsonSchema:
        """The JSON Schema of the value itself."""
        raise NotImplementedError


class Text(ScalarSchema, kw_only=True):
    """Text. Numbers must be quoted. With `verbatim`, any scalar is taken as it is written."""

    expected: str = "text"
    pattern: str | None = None
    form: str = ""
    """What a text that does not match the pattern must be; empty: `expected`."""
    wrong: str = ""
    """What is said of such a text; empty: what it must be."""
    least: int = 0
    most: int | None = None
    verbatim: bool = False
    check: Callable[[str], str | None] | None = None
    """Returns what is wrong with a text, or None. Only the JSON Schema uses `pattern` then."""

    def read_scalar(self, node: Scalar, path: str, problems: Problems) -> Any:
        if node.empty:
            hint = 'write "" for an empty text' if self.least == 0 else ""
            return mismatch(node, path, self.expected, problems, hint)
        if not (self.verbatim or node.expanded or isinstance(node.value, str)):
            fits = not self.pattern or re.fullmatch(self.pattern, node.text)
            hint = f'put it in quotes: "{node.text}"' if fits else ""
            return mismatch(node, path, self.expected, problems, hint)
        bad = bad_character(node.text)
        if bad:
            problems.add(node.mark, f"{path} holds {bad}", "remove it")
            return FAILED
        problem = self.problem(node.text)
        if problem:
            problems.add(node.mark, f"{path} {problem}")
            return FAILED
        return node.text

    def problem(self, text: str) -> str | None:
        if not text and self.least:
            return f"is empty; write {self.expected}"
        if self.most is not None and len(text) > self.most:
            return f"has {len(text)} characters; at most {self.most} are allowed"
        if self.check:
            return self.check(text)
        if self.pattern and not re.fullmatch(self.pattern, text):
            return self.wrong or f"must be {self.form or self.expected}, not {quoted(text)}"
        return None

    def own_schema(self) -> JsonSchema:
        kinds = ["string", "number", "boolean", "null"] if self.verbatim else "string"
        schema: JsonSchema = {"type": kinds}
        if self.least:
            schema["minLength"] = self.least
        if self.most is not None:
            schema["maxLength"] = self.most
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        return schema


class Integer(ScalarSchema, kw_only=True):
    """A whole number between two bounds, both included."""

    least: int
    most: int
    description: str = ""

    @property
    def expected(self) -> str:
        return self.description or f"a whole number from {self.least} to {self.most}"

    def read_scalar(self, node: Scalar, path: str, problems: Problems) -> Any:
        value = node.value
        if type(value) is int and self.least <= value <= self.most:
            return value
        hint = ""
        if not node.plain and re.fullmatch("[0-9]{1,9}", node.text):
            hint = f"write {node.text} without quotes"
        elif type(value) is int and value > self.most and self.expected.endswith("or more"):
            hint = f"the most is {self.most}"
        return mismatch(node, path, self.expected, problems, hint)

    def own_schema(self) -> JsonSchema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


class Choice(ScalarSchema, kw_only=True):
    values: tuple[str, ...]
    make: Callable[[str], Any] = str
    """Returns what a word means."""
    unknown: Callable[[str], str] | None = None
    """Maps an unknown word to the text for which the nearest of `values` is suggested."""
    all_forms: str = ""
    """If the word is one of several forms: all that can be written."""
    other_hint: str = ""
    """What to do about a value that is no word."""

    @property
    def expected(self) -> str:
        return alternatives(self.values)

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.text in self.values:
            return self.make(node.text)
        if self.all_forms or not isinstance(node, Scalar) or not isinstance(node.value, str):
            forms = self.all_forms or self.expected
            return mismatch(node, path, forms, problems, self.other_hint)
        guess = self.unknown(node.text) if self.unknown else node.text
        noun = path.rpartition(".")[2]
        problems.add_unknown(node.mark, f"unknown {noun} {quoted(node.text)}", guess, self.values)
        return FAILED

    def own_schema(self) -> JsonSchema:
        return {"enum": list(self.values)}


def one_of(kind: type[Enum], **settings: Any) -> Choice:
    """The words of an enum; reads as its member."""
    return Choice(values=tuple(each.value for each in kind), make=kind, **settings)


class Boolean(ScalarSchema):
    expected: str = "true or false"

    def read_scalar(self, node: Scalar, path: str, problems: Problems) -> Any:
        if isinstance(node.value, bool):
            return node.value
        word = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(node.text.lower())
        return mismatch(node, path, self.expected, problems, f"write {word}" if word else "")

    def own_schema(self) -> JsonSchema:
        return {"type": "boolean"}


class Duration(ScalarSchema, kw_only=True):
    """A duration with a unit; reads as seconds, or None for `off`.

    `shortest`: in seconds; and why it is not shorter, which completes "must be at least ...".
    """

    off: bool = False
    zero: bool = False
    shortest: float = 0.0
    why: str = ""
    unit: str = "s"
    """That of a number without one, most likely."""

    @property
    def expected(self) -> str:
        return "a duration such as 500ms, 10s, 5m or 1h" + (", or off" if self.off else "")

    def read_scalar(self, node: Scalar, path: str, problems: Problems) -> Any:
        if node.text == units.OFF and self.off:
            return None
        seconds = units.parse_duration(node.text)
        if seconds is None:
            return mismatch(node, path, self.expected, problems, self._hint(node))
        hint = "write off for no limit" if self.off else ""
        if seconds == 0 and not self.zero:
            wrong = f"{path} must be longer than {quoted(node.text)[1:-1]}"
        elif seconds < self.shortest:
            wrong = f"{path} must be at least {self.shortest:g}s, not {quoted(node.text)[1:-1]}"
            hint = self.why
        elif seconds > (units.parse_duration(units.LONGEST) or 0):
            wrong = f"{path} must be at most {units.LONGEST}"
        else:
            return seconds
        problems.add(node.mark, wrong, hint)
        return FAILED

    def _hint(self, node: Scalar) -> str:
        if self.off and not node.empty and node.value in (None, False, "never", "none"):
            return "write off"  # also for 0
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", node.text):
            return f"give it a unit: {node.text}{self.unit}"
        if (meant := units.meant_duration(node.text)) is not None:
            return f"write {meant}"
        if node.text == units.OFF:
            return "this one cannot be off"
        return ""

    def own_schema(self) -> JsonSchema:
        pattern = f"{units.DURATION_PATTERN}|off" if self.off else units.DURATION_PATTERN
        return {"type": "string", "pattern": f"^(?:{pattern})$"}


class Size(ScalarSchema, kw_only=True):
    """A size with a unit; reads as bytes, or None for `off`."""

    expected: str = "a size such as 100MB or 1GiB, or off"
    unit: str = "MB"
    """That of a number without one, most likely."""

    def read_scalar(self, node: Scalar, path: str, problems: Problems) -> Any:
        if node.text == units.OFF:
            return None
        value = units.parse_size(node.text)
        if value and value > (units.parse_size(units.LARGEST) or 0):
            problems.add(node.mark, f"{path} must be at most {units.LARGEST}")
            return FAILED
        if value:
            return value
        hint = ""
        other = re.fullmatch(r"([0-9.]{1,12})\s*([KMGT])(i?)(B?)", node.text, re.IGNORECASE)
        if re.fullmatch(r"[1-9][0-9]{0,11}", node.text):
            hint = f"give it a unit: {node.text}{self.unit}"
        elif other and value is None:
            infix = other[3].lower() if other[3] or other[4] else self.unit[1:-1]
            hint = f"write {other[1]}{other[2].upper()}{infix}B"
        return mismatch(node, path, self.expected, problems, hint)

    def own_schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^(?:{units.SIZE_PATTERN}|off)$"}
