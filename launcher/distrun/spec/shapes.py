"""What a value in a spec can look like: each shape reads nodes and explains itself.

A shape is the one source for three things: reading a value (with every problem's position), the
JSON Schema that editors complete from, and the words of the reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from distrun.spec import units
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.yamlnodes import Mapping, Node, Scalar, Sequence, describe

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Schema = dict[str, Any]

FAILED: Any = object()
"""What `read` returns where it has added a problem."""


@dataclass(frozen=True)
class At(Generic[T]):
    """A value and where it stands."""

    mark: Mark
    value: T


class Shape(Protocol):
    """See the module's docstring. `words` completes "must be ..."."""

    @property
    def words(self) -> str: ...

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        """The value at `path`, or FAILED once what is wrong has been added to `problems`."""

    def schema(self) -> Schema: ...


def mismatch(node: Node, path: str, words: str, problems: Problems, hint: str = "") -> Any:
    """Add "must be X, not Y" and return FAILED."""
    found = describe(node)
    message = f"{path} is empty" if found == "empty" else f"{path} must be {words}, not {found}"
    if found == "empty" and not hint:
        hint = f"write {words}, or remove the key"
    problems.add(node.mark, message, hint)
    return FAILED


def _bad_character(text: str) -> str | None:
    if "\0" in text:
        return "a NUL byte"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "half a surrogate pair or a byte that is not UTF-8"
    return None


def clean(text: str, node: Node, path: str, problems: Problems) -> bool:
    """Whether `text` has only characters that a process can be given; else adds a problem."""
    bad = _bad_character(text)
    if bad:
        problems.add(node.mark, f"{path} holds {bad}", "remove it")
    return not bad


@dataclass(frozen=True, kw_only=True)
class Text:
    """Text. Numbers must be quoted, unless `verbatim`: then any scalar is taken as written."""

    words: str = "text"
    pattern: str | None = None
    least: int = 0
    most: int | None = None
    verbatim: bool = False
    check: Callable[[str], str | None] | None = None
    """Says what is wrong with a text, or None; `pattern` is then for the JSON Schema alone."""

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if not isinstance(node, Scalar):
            return mismatch(node, path, self.words, problems)
        if node.empty:
            hint = "write \"\" for an empty text" if self.least == 0 else ""
            return mismatch(node, path, self.words, problems, hint)
        if not self.verbatim and not isinstance(node.value, str):
            return mismatch(node, path, self.words, problems, f'put it in quotes: "{node.text}"')
        if not clean(node.text, node, path, problems):
            return FAILED
        wrong = self._wrong(node.text)
        if wrong:
            problems.add(node.mark, f"{path} {wrong}")
            return FAILED
        return node.text

    def _wrong(self, text: str) -> str | None:
        if not text and self.least:
            return f"is empty; write {self.words}"
        if self.most is not None and len(text) > self.most:
            return f"has {len(text)} characters; at most {self.most} are allowed"
        if self.check:
            return self.check(text)
        if self.pattern and not re.fullmatch(self.pattern, text):
            return f"must be {self.words}, not {quoted(text)}"
        return None

    def schema(self) -> Schema:
        kinds = ["string", "number", "boolean", "null"] if self.verbatim else "string"
        schema: Schema = {"type": kinds}
        if self.least:
            schema["minLength"] = self.least
        if self.most is not None:
            schema["maxLength"] = self.most
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        return schema


@dataclass(frozen=True, kw_only=True)
class Integer:
    """A whole number between two bounds, both included."""

    least: int
    most: int
    says: str = ""

    @property
    def words(self) -> str:
        return self.says or f"a whole number from {self.least} to {self.most}"

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if type(value) is int and self.least <= value <= self.most:
            return value
        hint = ""
        if isinstance(node, Scalar) and not node.plain and re.fullmatch("[0-9]{1,9}", node.text):
            hint = f"write {node.text} without quotes"
        return mismatch(node, path, self.words, problems, hint)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of a few words."""

    values: tuple[str, ...]
    unknown: Callable[[str], str] | None = None
    """What to look for among `values` in place of an unknown one."""

    @property
    def words(self) -> str:
        return " or ".join(filter(None, [", ".join(self.values[:-1]), self.values[-1]]))

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.text in self.values:
            return node.text
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            return mismatch(node, path, self.words, problems)
        guess = self.unknown(node.text) if self.unknown else node.text
        noun = path.rpartition(".")[2]
        problems.add_unknown(
            node.mark, f"unknown {noun} {quoted(node.text)}", guess, self.values
        )
        return FAILED

    def schema(self) -> Schema:
        return {"enum": list(self.values)}


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Seconds, written with their unit; None where it is `off`."""

    off: bool = False
    zero: bool = False

    @property
    def words(self) -> str:
        return "a duration such as 500ms, 10s, 5m or 1h" + (", or off" if self.off else "")

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if not isinstance(node, Scalar):
            return mismatch(node, path, self.words, problems)
        if node.text == units.OFF and self.off:
            return None
        seconds = units.duration(node.text)
        if seconds is None:
            return mismatch(node, path, self.words, problems, self._hint(node))
        if seconds == 0 and not self.zero:
            hint = "write off for no limit" if self.off else ""
            problems.add(node.mark, f"{path} must be longer than {quoted(node.text)[1:-1]}", hint)
            return FAILED
        return seconds

    def _hint(self, node: Scalar) -> str:
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", node.text):
            return f"give it a unit: {node.text}s"
        if self.off and not node.empty and node.value in (None, False):
            return "write off"
        if node.text == units.OFF:
            return "this one cannot be off"
        return ""

    def schema(self) -> Schema:
        pattern = f"{units.DURATION_PATTERN}|off" if self.off else units.DURATION_PATTERN
        return {"type": "string", "pattern": f"^(?:{pattern})$"}


@dataclass(frozen=True, kw_only=True)
class Size:
    """Bytes, written with their unit; None where it is `off`."""

    words: str = "a size such as 100MB or 1GiB, or off"

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if not isinstance(node, Scalar):
            return mismatch(node, path, self.words, problems)
        if node.text == units.OFF:
            return None
        value = units.size(node.text)
        if value:
            return value
        hint = ""
        if re.fullmatch(r"[0-9]{1,12}", node.text) and value is None:
            hint = f"give it a unit: {node.text}MB"
        return mismatch(node, path, self.words, problems, hint)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^(?:{units.SIZE_PATTERN}|off)$"}


@dataclass(frozen=True, kw_only=True)
class ListOf:
    """A list; reads as a tuple of :class:`At`. Written with nothing in it, it is empty."""

    item: Shape
    words: str
    least: int = 0
    noun: str = "item"
    text_hint: Callable[[str], str] | None = None
    """What to write in place of a text that should have been a list."""

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty and not self.least:
            return ()
        if not isinstance(node, Sequence):
            hint = ""
            if self.text_hint and isinstance(node, Scalar) and not node.empty:
                hint = self.text_hint(node.text)
            return mismatch(node, path, self.words, problems, hint)
        if len(node.items) < self.least:
            problems.add(node.mark, f"{path} has no {self.noun}", f"write {self.words}")
            return FAILED
        read = [
            At(item.mark, self.item.read(item, f"{path}[{index}]", problems))
            for index, item in enumerate(node.items)
        ]
        return FAILED if any(at.value is FAILED for at in read) else tuple(read)

    def schema(self) -> Schema:
        if self.least:
            return {"type": "array", "items": self.item.schema(), "minItems": self.least}
        return {"type": ["array", "null"], "items": self.item.schema()}


@dataclass(frozen=True, kw_only=True)
class MapOf:
    """Names of the user's own choice, each with a value; reads as a dict of :class:`At`."""

    value: Shape
    words: str
    noun: str
    name_pattern: str
    check_name: Callable[[str], str | None]

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty:
            return {}
        if not isinstance(node, Mapping):
            return mismatch(node, path, self.words, problems)
        read: dict[str, At[Any]] = {}
        for entry in node.entries:
            name = entry.key.text
            wrong = self.check_name(name)
            if wrong:
                problems.add(entry.key.mark, f"{path}: the {self.noun} {quoted(name)} {wrong}")
            value = self.value.read(entry.value, f"{path}.{quoted(name)[1:-1]}", problems)
            read[name] = At(entry.key.mark, FAILED if wrong else value)
        return FAILED if any(at.value is FAILED for at in read.values()) else read

    def schema(self) -> Schema:
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": self.name_pattern},
            "additionalProperties": self.value.schema(),
        }


@dataclass(frozen=True)
class Forms:
    """A value that can be written in several ways, told apart by what kind of node it is."""

    number: Shape | None = None
    text: Shape | None = None
    list: Shape | None = None
    mapping: Shape | None = None

    @property
    def _all(self) -> tuple[Shape, ...]:
        forms = (self.number, self.text, self.list, self.mapping)
        return tuple(form for form in forms if form is not None)

    @property
    def words(self) -> str:
        return " or ".join(form.words for form in self._all)

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        form = self._form(node)
        if form is None:
            return mismatch(node, path, self.words, problems)
        return form.read(node, path, problems)

    def _form(self, node: Node) -> Shape | None:
        if isinstance(node, Sequence):
            return self.list
        if isinstance(node, Mapping):
            return self.mapping
        if node.empty:
            return None
        # A quoted number, or a word where only numbers are known: that form says it best.
        return (self.text or self.number) if isinstance(node.value, str) else (
            self.number or self.text
        )

    def schema(self) -> Schema:
        return {"anyOf": [form.schema() for form in self._all]}


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a :class:`Record`: its shape, and what people are told about it."""

    name: str
    shape: Shape
    says: str
    examples: tuple[Any, ...]
    default: str = ""
    """What holds where the key is not written, in words; a value of YAML in backquotes."""
    required: bool = False


@dataclass(frozen=True)
class Section:
    """What a :class:`Record` reads: the values that are there and right, and where they stand."""

    mark: Mark
    values: dict[str, Any] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def has(self, name: str) -> bool:
        """Whether the key is written, right or wrong."""
        return name in self.marks

    def wrong(self, name: str) -> bool:
        return name in self.marks and name not in self.values


@dataclass(frozen=True, kw_only=True)
class Record:
    """A mapping with known keys; reads as a :class:`Section`."""

    keys: tuple[Key, ...]
    words: str
    noun: str = "key"
    one_of: tuple[str, ...] = ()
    """Keys of which exactly one must be written."""
    elsewhere: Callable[[str], str] | None = None
    """Where a key that is unknown here belongs, as something to do, or ''."""

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if isinstance(node, Scalar) and node.empty:
            node = Mapping(node.mark, ())
        if not isinstance(node, Mapping):
            return mismatch(node, path or "the spec", self.words, problems)
        section = Section(node.mark)
        known = {key.name: key for key in self.keys}
        for entry in node.entries:
            name = entry.key.text
            if name not in known:
                self._unknown(entry.key, path, problems)
                continue
            section.marks[name] = entry.value.mark
            section.keys[name] = entry.key.mark
            value = known[name].shape.read(
                entry.value, f"{path}.{name}" if path else name, problems
            )
            if value is not FAILED:
                section.values[name] = value
        self._check_presence(section, path, problems)
        return section

    def _unknown(self, key: Scalar, path: str, problems: Problems) -> None:
        where = f" in {path}" if path else ""
        message = f"unknown {self.noun} {quoted(key.text)}{where}"
        if key.text == "<<":
            problems.add(key.mark, message, "YAML 1.2 has no merge keys; write the keys out")
            return
        hint = self.elsewhere(key.text) if self.elsewhere and not problems.full else ""
        if hint:
            problems.add(key.mark, message, hint)
        else:
            names = [known.name for known in self.keys]
            problems.add_unknown(key.mark, message, key.text, names)

    def _check_presence(self, section: Section, path: str, problems: Problems) -> None:
        where = path or "the spec"
        for key in self.keys:
            if key.required and not section.has(key.name):
                example = f"add '{key.name}: {key.examples[0]}'"
                problems.add(section.mark, f"{where} has no {key.name}", example)
        written = [name for name in self.one_of if section.has(name)]
        choice = Choice(values=self.one_of).words if self.one_of else ""
        if self.one_of and not written:
            problems.add(section.mark, f"{where} needs one of {choice}")
        for name in written[1:]:
            problems.add(section.keys[name], f"{where} has both {written[0]} and {name}",
                         f"keep one of {choice}")

    def schema(self) -> Schema:
        schema: Schema = {
            "type": ["object", "null"],
            "properties": {key.name: _documented(key) for key in self.keys},
            "additionalProperties": False,
        }
        required = [key.name for key in self.keys if key.required]
        if required:
            schema["required"] = required
        if required or self.one_of:
            schema["type"] = "object"
        if self.one_of:
            schema["oneOf"] = [{"required": [name]} for name in self.one_of]
        return schema


def _documented(key: Key) -> Schema:
    schema = key.shape.schema()
    default = f" Default: {key.default}." if key.default else ""
    return {"description": key.says + default, **schema, "examples": list(key.examples)}
